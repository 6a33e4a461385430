"""Processes that are ended while they save: the file is whole, and nothing else is left.

    python -m tests.endurance.kills --count 100 [--seed 0]

A child saves two models to one path in turn until SIGKILL or SIGTERM ends it. The file must then be one of
the two. SIGTERM leaves no other file; what SIGKILL leaves is gone after the next save.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from gleangp import SparseGPRegressor, load, save
from tests.endurance.seeds import command


def _save_for_ever(models: list[Any], path: Path) -> None:
    """In a child process: never returns."""
    try:
        while True:
            for model in models:
                save(model, path)
    finally:
        os._exit(1)


def kills(count: int, seed: int = 0) -> Counter:
    """Number of kills, of damaged files, and of files that were left behind."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (40, 1))
    models = [SparseGPRegressor(optimizer=None).fit(X, f(X[:, 0])) for f in (np.sin, np.cos)]
    expected = [model.predict(X) for model in models]
    ended: Counter = Counter(kills=count, damaged=0, left=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.glean"
        save(models[0], path)
        for _ in range(count):
            number = (signal.SIGKILL, signal.SIGTERM)[rng.integers(2)]
            child = os.fork()
            if child == 0:
                _save_for_ever(models, path)
            time.sleep(rng.uniform(0.002, 0.05))
            os.kill(child, number)
            os.waitpid(child, 0)
            try:
                said = load(path).predict(X)
                ended["damaged"] += not any(np.array_equal(said, e) for e in expected)
            except Exception:
                ended["damaged"] += 1
            if number == signal.SIGKILL:
                save(models[0], path)
            ended["left"] += sum(1 for p in path.parent.iterdir() if p != path)
    return ended


if __name__ == "__main__":
    command(__doc__, kills, 100)
