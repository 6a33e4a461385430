"""A randomised soak: fit, add tasks, absorb rows, save, load, predict, compare with a fresh fit.

    python -m tests.endurance.soak --minutes 10 [--seed 0]

Every turn draws an estimator and a problem. Laws that each turn checks: predictions are finite; a saved and
loaded model, and a pickled one, predict the same bits; a fresh fit with the same seed gives the same bits; a
task that is added leaves the others alone; rows absorbed one by one give what a fit on all of them with the
same kernel gives (exact regression). Resident memory in the end is what it was after the first turns. The
seed of a turn that fails is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import pickle
import tempfile
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

import gleangp
from tests.endurance.every_estimator import CASES, make_rows

_WARM_UP = 10  # turns after which memory is compared: caches and pools are filled by then
_ALLOWED_GROWTH = 40e6  # bytes


def resident_bytes() -> int:
    """Resident memory of this process, without what the allocator keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check(law: bool, what: str) -> None:
    """Raise if a law is broken."""
    if not law:
        raise AssertionError(what)


def turn(seed: int, folder: str) -> str:
    """One turn; the name of what was tried."""
    rng = np.random.default_rng(seed)
    case = CASES[rng.integers(len(CASES))]
    n_tasks = int(rng.integers(2, 5))
    X, y, codes, _ = make_rows(int(rng.integers(12 * n_tasks, 40 * n_tasks)), seed, n_tasks)
    target = case.target(y)
    if case.kind == "two classes":  # tasks of one class are refused by latent spaces, and said so
        target[[np.flatnonzero(codes == t)[0] for t in range(n_tasks)]] = False
        target[[np.flatnonzero(codes == t)[1] for t in range(n_tasks)]] = True
    at, of = X[::3] + 0.1, codes[::3]
    model = case.new().fit(X, target, codes)
    said = case.outputs(model, at, of)
    check(np.isfinite(said).all(), "predictions are finite")
    path = os.path.join(folder, "model.gleangp")
    gleangp.save(model, path)
    loaded = gleangp.load(path)
    check(np.array_equal(case.outputs(loaded, at, of), said), "a loaded model predicts the same")
    check(np.array_equal(case.outputs(pickle.loads(pickle.dumps(model)), at, of), said), "so does a pickled")
    again = case.new().fit(X, target, codes)
    check(np.array_equal(case.outputs(again, at, of), said), "a fresh fit is the same")
    if hasattr(loaded, "add_task"):
        add(case, loaded, X, target, codes, at, of, said)
    if hasattr(again, "partial_fit"):
        absorb(case, again, X, target, codes, at, of)
    return case.name


def add(case, model, X, target, codes, at, of, said) -> None:
    """A new task with the rows of an old one is predicted, and the others stay."""
    rows = np.flatnonzero(codes == 0)
    new = int(codes.max()) + 1
    if case.kind == "two classes" and len(np.unique(target[rows])) < 2:
        return
    model.add_task(X[rows], target[rows], new)
    if case.name != "coupled":  # coupled tasks share the new one's knowledge
        check(np.array_equal(case.outputs(model, at, of), said), "adding a task leaves the others alone")
    added = case.outputs(model, at, np.full(len(at), new))
    check(np.isfinite(added).all(), "the new task is predicted")
    if case.name in ("regressor", "hierarchy"):  # near its rows; elsewhere it may have been better alone
        old, near = case.outputs(model, at, np.zeros(len(at), dtype=int)), of == 0
        apart = np.sqrt(np.mean((added[near, 0] - old[near, 0]) ** 2)) / np.std(target)
        check(apart < 0.3, f"alike predictions, {apart:.2f} deviations apart")


def absorb(case, model, X, target, codes, at, of) -> None:
    """Rows absorbed one by one, against a fit on all of them under the same kernel."""
    more = X[:5] + 0.05
    model.partial_fit(more, target[:5], codes[:5])
    said = case.outputs(model, at, of)
    check(np.isfinite(said).all(), "predictions after absorbing are finite")
    if case.name != "regressor":
        return
    settings = {"kernel": RBF(1.0), "noise_variance": 0.1, "optimizer": None, "normalize_y": False}
    parts = case.new(**settings).fit(X, target, codes).partial_fit(more, target[:5], codes[:5])
    whole = case.new(**settings).fit(
        np.vstack([X, more]), np.append(target, target[:5]), np.append(codes, codes[:5])
    )
    same = np.allclose(case.outputs(parts, at, of), case.outputs(whole, at, of), atol=1e-4 * np.std(target))
    check(same, "absorbed is as good as fitted")


def soak(minutes: float, seed: int = 0) -> tuple[int, dict[str, int], float]:
    """Turns for so many minutes: how many, of what, and by how many bytes memory grew after the first."""
    end, turns, first, counts = time.monotonic() + 60.0 * minutes, 0, 0, {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*singular in floating point")
        while time.monotonic() < end or turns < _WARM_UP + 2:
            try:
                name = turn(seed + turns, folder)
            except Exception as error:
                raise AssertionError(f"turn with seed {seed + turns}: {error}") from error
            counts[name] = counts.get(name, 0) + 1
            turns += 1
            if turns == max(_WARM_UP, 1):
                first = resident_bytes()
    growth = resident_bytes() - first
    check(growth < _ALLOWED_GROWTH, f"resident memory grew by {growth / 1e6:.1f} MB in {turns} turns")
    return turns, counts, growth


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    turns, counts, growth = soak(given.minutes, given.seed)
    print(f"{turns} turns {counts}; memory grew by {growth / 1e6:.1f} MB after the first {_WARM_UP}")
