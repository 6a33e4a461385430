"""One virtual environment per peer, made once, so that their dependencies cannot clash."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

# What pip installs; None: this interpreter, which has gleangp and scikit-learn.
REQUIREMENTS: dict[str, list[str] | None] = {
    "gleangp": None,
    "sklearn": None,
    "gpy": ["GPy", "numpy<2", "matplotlib"],
    "gpflow": ["gpflow", "tensorflow-cpu<2.20", "tf-keras", "tensorflow-probability", "setuptools<80"],
    "gpytorch": ["gpytorch", "torch"],
}


def interpreter(peer: str, cache: Path, constraint: Path | None = None) -> Path:
    """The Python that has the peer; its environment is made if it is not there yet.

    `constraint` goes to `pip install -c`, for instance to ask for PyTorch without CUDA.
    """
    packages = REQUIREMENTS[peer]
    if packages is None:
        return Path(sys.executable)
    folder = cache / peer
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    done = folder / "installed"
    if not done.exists():
        print(f"installing {', '.join(packages)} in {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=False)
        command = [str(python), "-m", "pip", "install", "--quiet", *packages]
        if constraint is not None:
            command += ["--constraint", str(constraint)]
        subprocess.run(command, check=True)
        done.write_text("\n".join(packages) + "\n")
    return python
