"""The command line: quick help, the demo, errors in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gleangp

pytest.importorskip("typer")
SOURCE = str(Path(gleangp.__file__).parents[1])
START = f"import sys; sys.path.insert(0, {SOURCE!r}); from gleangp.cli import main; main()"


def run(*arguments, cwd, code=0):
    """What a command prints, given that it ends with this code."""
    done = subprocess.run(
        [sys.executable, "-c", START, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_help_does_not_load_numerics(tmp_path):
    """`gleangp --help` imports nothing heavy, and so answers at once."""
    code = START.replace(
        "main()",
        "import atexit; atexit.register(lambda: print(sorted({'numpy', 'sklearn', "
        "'scipy', 'pandas', 'matplotlib'} & set(sys.modules)))); main()",
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "demo" in done.stdout
    assert done.stdout.strip().endswith("[]")


def test_help_loads_no_numerics(tmp_path):
    """Help answers without importing what takes long to import."""
    code = START.replace("main()", "") + (
        "\nsys.argv = ['gleangp', '--help']\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "Usage" in done.stdout
    assert done.stdout.strip().endswith("heavy: []"), done.stdout[-500:] + done.stderr[-2000:]


def test_version(tmp_path):
    """`--version` prints it and nothing else."""
    assert run("--version", cwd=tmp_path).stdout.strip() == gleangp.__version__


@pytest.mark.slow
def test_demo(tmp_path):
    """Sharing beats a Gaussian process per task, in old tasks and in new ones with five rows."""
    pytest.importorskip("matplotlib")
    done = run("demo", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    tasks, new = result["tasks"], result["new_tasks"]
    assert sum(tasks["together"]) < sum(tasks["alone"])
    column = new["rows"].index(5)
    assert new["add_task"][column] < new["alone"][column]
    picture = tmp_path / "gleangp-demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
    run("demo", "--json", cwd=tmp_path)  # a picture of its own is replaced without --force


def test_error_is_one_line(tmp_path):
    """What the user can mend is told in one line; `--debug` shows the traceback."""
    missing = tmp_path / "no" / "such" / "folder" / "picture.png"
    done = run("demo", "-o", missing, cwd=tmp_path, code=1)
    assert done.stderr.strip().splitlines()[-1].startswith("gleangp: error: ")
    assert "Traceback" not in done.stderr
