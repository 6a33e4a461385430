"""Held-out scores of models of many tasks: every task is learnt from and tested on in every fold."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from gleangp._typing import IntArray
from gleangp.cli._problem import Problem
from gleangp.cli._progress import Watch
from gleangp.report.held_out import HeldOutRows, join_spread, losses, spread_of

_ON_INTERRUPT = "the held-out score ends here; all rows are fitted next"
_SMALL = 2000  # rows up to which every row is held out once


@dataclass(frozen=True, eq=False)
class HeldOut(HeldOutRows):
    """The score that is printed, and what it is made of."""

    loss: np.ndarray  # (m,) squared error, or whether the label is wrong
    numeric: bool
    seconds: float  # of fitting
    last: Any  # the model of the last fold
    deviance: bool = False  # whether the loss is the Poisson deviance of counts

    def behind(self, other: HeldOut) -> tuple[float, float]:
        """How much larger the error is than another's on the same rows, and the paired standard error."""
        root = self.numeric and not self.deviance
        ours, theirs = (_influence(h.loss, h.error, root) for h in (self, other))
        return self.error - other.error, _spread_of_mean(ours - theirs)


def with_deviance(score: HeldOut, y: np.ndarray) -> HeldOut:
    """The score by the Poisson deviance, as counts are compared; predictions below zero count as small."""
    loss = losses(y[score.rows], score.predicted, "counts")
    error, std_error = float(np.mean(loss)), _spread_of_mean(loss)
    return replace(score, loss=loss, error=error, std_error=std_error, deviance=True)


def measured(
    rows: IntArray,
    fold: IntArray,
    predicted: np.ndarray,
    y: np.ndarray,
    numeric: bool,
    spread: Any = None,
    models: dict[int, Any] | None = None,
    seconds: float = 0.0,
    last: Any = None,
) -> HeldOut:
    """The score of predictions of these rows, whose targets are y."""
    loss = _loss(y, predicted, numeric)
    error = _error(loss, numeric)
    std_error = _spread_of_mean(_influence(loss, error, numeric))
    score = (error, std_error, models or {}, loss, numeric)
    return HeldOut(rows, fold, predicted, spread, *score, seconds, last)


def _error(loss: np.ndarray, numeric: bool) -> float:
    """Root mean square, or share of wrong labels."""
    mean = float(np.mean(loss))
    return float(np.sqrt(mean)) if numeric else mean


def _influence(loss: np.ndarray, error: float, numeric: bool) -> np.ndarray:
    """What every row contributes to the deviation of the error from its mean, to first order (m,)."""
    centred = loss - np.mean(loss)
    return centred / (2.0 * error) if numeric and error > 0.0 else centred


def task_folds(tasks: np.ndarray | None, n_rows: int, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Fold of every row (n,), dealt out task by task; a task's only row is never held out (-1)."""
    codes = np.zeros(n_rows, dtype=np.intp) if tasks is None else np.unique(tasks, return_inverse=True)[1]
    fold = np.empty(n_rows, dtype=np.intp)
    for task in range(codes.max(initial=-1) + 1):
        rows = rng.permutation(np.flatnonzero(codes == task))
        start = rng.integers(n_folds)
        fold[rows] = (np.arange(len(rows)) + start) % n_folds if len(rows) > 1 else -1
    return fold


def choose_folds(n_rows: int, wanted: int | None) -> tuple[int, int]:
    """Number of folds, and how many of them are held out: five of five for small tables, else one."""
    if wanted is not None:
        return wanted, wanted
    return (5, 5) if n_rows <= _SMALL else (5, 1)


def _spread_of_mean(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def held_out(
    model: Any,
    problem: Problem,
    fold: IntArray,
    n_used: int,
    watch: Watch | None = None,
    *,
    for_report: bool = False,
) -> HeldOut | None:
    """Fit and predict the first `n_used` folds in turn; None if the first was cut short.

    A fold whose fit was cut short does not count, and none follows it. `for_report` keeps the model and the
    uncertainty of every fold.
    """
    X, y, tasks = problem.X, problem.y, problem.tasks
    numeric = y.dtype.kind == "f"
    rows, folds, parts, seconds = [], [], [], 0.0
    spread: list[Any] = []
    models: dict[int, Any] = {}
    fitted = model
    for number, train, test in _splits(fold, n_used):
        if watch is not None:
            watch.begin(f"held-out {number + 1} of {n_used}", _ON_INTERRUPT)
        start = time.perf_counter()
        with threads_for(problem):
            fitted = fit_quietly(clone(model), problem.at(train))
        seconds += time.perf_counter() - start
        if watch is not None:
            watch.end()
            if watch.stopping:
                watch.skip(n_used - number - 1)
                break
        given = {} if tasks is None else {"tasks": tasks[test]}
        predicted = fitted.predict(X[test], **given)
        rows.append(test)
        folds.append(np.full(len(test), number))
        parts.append(predicted)
        if for_report:
            spread.append(spread_of(fitted, X[test], given))
            models[number] = fitted
    if not rows:
        return None
    joined = np.concatenate(parts)
    all_rows = np.concatenate(rows)
    more = (join_spread(spread), models, seconds, fitted)
    return measured(all_rows, np.concatenate(folds), joined, y[all_rows], numeric, *more)


def threads_for(problem: Problem) -> Any:
    """One thread for small tasks: what several have to say to each other costs more than they save.

    Seen with 200 tasks of 100 rows on two busy cores: 94 s of CPU time on all threads, 10 s on one.
    """
    largest = len(problem.y)
    if problem.tasks is not None:
        largest = int(np.unique(problem.tasks, return_counts=True)[1].max())
    return threadpool_limits(1) if largest <= _SMALL else nullcontext()


def _splits(fold: IntArray, n_used: int) -> Iterator[tuple[int, IntArray, IntArray]]:
    for number in range(n_used):
        test = np.flatnonzero(fold == number)
        if len(test):
            yield number, np.flatnonzero(fold != number), test


def _loss(y: np.ndarray, predicted: np.ndarray, numeric: bool) -> np.ndarray:
    return (y - predicted.astype(float)) ** 2 if numeric else (y != predicted).astype(float)


def fit_quietly(model: Any, problem: Problem) -> Any:
    """Fit; that an optimiser wanted more steps is no news on the command line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(problem.X, problem.y, **problem.fit_arguments())
