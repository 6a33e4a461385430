"""gleangp against other Gaussian-process libraries: time, memory and accuracy on the same problems.

    python benchmarks/peers/run.py
    python benchmarks/peers/run.py --peers gleangp gpy --workloads ard2000 ard8000

Makes one virtual environment per peer (once), runs every peer on every workload in a process of its own with
one thread, and writes a table (Markdown), all numbers (JSON) and a plot. Times are those of the fit: CPU
seconds of all threads, and seconds on the clock. Results are added to those in the output folder, so that
peers can be run one after the other; ratios are only printed within what one machine measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from environments import REQUIREMENTS, interpreter
from score import score
from table import machine, plot, table
from workloads import WORKLOADS

from gleangp.exceptions import DatasetError

HERE = Path(__file__).parent
# Which peers have a model for which kind of workload.
KINDS = {
    "gleangp": ("regression", "classification", "tasks"),
    "sklearn": ("regression", "classification", "tasks"),
    "gpy": ("regression",),
    "gpflow": ("regression", "classification"),
    "gpytorch": ("regression", "classification", "tasks"),
}
ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    )
}


def run_worker(peer: str, python: Path, source: Path, folder: Path, timeout: float) -> dict:
    """Numbers of one peer on one workload; {"failed": why} where there are none."""
    results, predictions = folder / "results.json", folder / "predictions.npz"
    for old in (results, predictions):
        old.unlink(missing_ok=True)
    environment = {**os.environ, **ONE_THREAD, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    if REQUIREMENTS[peer] is None:
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1] / "src"), *sys.path[1:]])
    else:
        environment.pop("PYTHONPATH", None)
    command = [str(python), str(HERE / f"worker_{peer}.py"), str(source), str(results), str(predictions)]
    try:
        done = subprocess.run(command, env=environment, timeout=timeout, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {timeout:g} s"}
    if done.returncode != 0 or not results.exists():
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        if done.returncode < 0:
            last = f"ended by signal {-done.returncode}"
        print(done.stderr[-2000:], file=sys.stderr)
        return {"failed": last[:200]}
    with np.load(source) as workload, np.load(predictions) as found:
        return {**json.loads(results.read_text()), **score(dict(workload), dict(found))}


def main() -> None:
    """Run what was asked for, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "gleangp-peers")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of what is written")
    parser.add_argument("--constraint", type=Path, help="a constraints file for pip install")
    parser.add_argument("--timeout", type=float, default=1800.0, help="most seconds of one fit")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    store = arguments.output / "results.json"
    everything = json.loads(store.read_text()) if store.exists() else {}
    scratch = arguments.cache / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    for name in arguments.workloads:
        try:
            workload = WORKLOADS[name]()
        except DatasetError as missing:
            print(f"{name}: left out: {missing}", flush=True)
            continue
        source = scratch / f"{name}.npz"
        np.savez(source, **workload)
        for peer in arguments.peers:
            if workload["kind"] not in KINDS[peer]:
                continue
            python = interpreter(peer, arguments.cache, arguments.constraint)
            numbers = run_worker(peer, python, source, scratch, arguments.timeout)
            numbers["date"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
            numbers["load"] = os.getloadavg()[0]
            everything.setdefault("machine", machine())
            everything.setdefault("workloads", {}).setdefault(name, {})[peer] = numbers
            shown = {k: v for k, v in numbers.items() if k not in ("settings", "versions")}
            print(name, peer, shown, flush=True)
            store.write_text(json.dumps(everything, indent=1))
    (arguments.output / "peers.md").write_text(table(everything))
    plot(everything, arguments.output / "peers.png")
    print(table(everything))


if __name__ == "__main__":
    main()
