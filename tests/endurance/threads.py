"""Threads that add tasks to one model while another predicts: none is lost, and no state is half.

python -m tests.endurance.threads
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from gleangp import (
    HierarchicalGPRegressor,
    SharedLatentGPClassifier,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
)
from tests.endurance.every_estimator import Case, make_rows

N_THREADS, N_EACH = 8, 50
LATENT = {"n_components": 1, "max_iter": 10, "hidden_units": 3}
CASES = [
    Case("regressor", SparseGPRegressor(coupling="kernel", optimizer=None), "numbers"),
    Case("coupled", SparseGPRegressor(coupling="function", n_active=5, random_state=0), "numbers"),
    Case("classifier", SparseGPClassifier(coupling="kernel", n_rounds=1), "two classes"),
    Case("ordinal", SparseGPOrdinal(coupling="kernel", n_rounds=1), "grades"),
    Case("hierarchy", HierarchicalGPRegressor(optimizer=None, n_neighbors=None), "numbers"),
    Case("latent regressor", SharedLatentGPRegressor(**LATENT), "numbers"),
    Case("latent classifier", SharedLatentGPClassifier(**LATENT), "two classes"),
]


@contextmanager
def eager() -> Iterator[None]:
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def while_predicting(predict, change):
    """What `predict` gave again and again in another thread while `change` ran."""
    seen, done = [predict()], threading.Event()

    def keep_predicting():
        while not done.is_set():
            seen.append(predict())

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(keep_predicting)
        try:
            change()
        finally:
            done.set()
        reader.result()
    return seen


def small_table(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and tasks, and a few rows that make a new task."""
    X, y, codes, _ = make_rows(24, 0)
    target = case.target(y)
    kinds = [np.arange(len(y))] if case.kind == "numbers" else [target == c for c in np.unique(target)]
    return X, target, codes, np.concatenate([np.arange(len(y))[kind][:2] for kind in kinds])


def add_from_threads(case: Case, n_each: int = N_EACH) -> tuple[Any, int, int]:
    """A model to which eight threads added tasks; how many were lost, how many predictions were others."""
    X, target, codes, rows = small_table(case)
    model = case.new().fit(X, target, codes)
    expected = case.outputs(model, X, codes)

    def add(thread):
        for k in range(n_each):
            model.add_task(X[rows], target[rows], 1000 * (thread + 1) + k)

    def add_all():
        with ThreadPoolExecutor(N_THREADS) as pool:
            list(pool.map(add, range(N_THREADS)))

    with eager():
        seen = while_predicting(lambda: case.outputs(model, X, codes), add_all)
    added = {1000 * (thread + 1) + k for thread in range(N_THREADS) for k in range(n_each)}
    n_mixed = sum(not np.array_equal(said, expected) for said in seen)
    return model, len({0, 1, 2, *added} - set(model.tasks_.tolist())), n_mixed


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in CASES:
            _, n_lost, n_mixed = add_from_threads(each)
            print(f"{each.name}: {n_lost} of {N_THREADS * N_EACH} tasks lost, {n_mixed} predictions mixed")
