"""Held-out scores of models of many tasks: every task is learnt from and tested on in every fold."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from gleangp._typing import IntArray
from gleangp.cli._problem import Problem
from gleangp.cli._progress import Watch
from gleangp.numerics.parallel import on_one_thread
from gleangp.report.held_out import Score, at_rows, choose_folds, predict_folds, twin_of
from gleangp.report.inputs import known_columns, without_empty

_ON_INTERRUPT = "the held-out score ends here; all rows are fitted next"


def held_out(
    model: Any,
    problem: Problem,
    folds: int | None,
    seed: int,
    watch: Watch | None = None,
    *,
    n_used: int | None = None,
    for_report: bool = False,
) -> Score | None:
    """Task-aware cross-validation, or one hold-out for large tables; None if the first fit was cut short.

    A fold whose fit was cut short does not count, and none follows it; `n_used` ends after so many folds.
    `for_report` keeps the model and the uncertainty of every fold.
    """
    fold, n_chosen = choose_folds(problem.labeled, problem.tasks, folds, seed)
    n_used = n_used or n_chosen

    def fit(number: int, train: IntArray) -> Any:
        twin = twin_of(model, problem.y[train][problem.labeled[train]])
        if twin is None:
            return None
        if watch is None:
            return fit_rows(twin, problem.at(train))
        if watch.stopping:
            return None
        watch.begin(f"held-out {number + 1} of {n_used}", _ON_INTERRUPT)
        fitted = fit_rows(twin, problem.at(train))
        watch.end()
        if watch.stopping:
            watch.skip(n_used - number - 1)
        return None if watch.stopping else fitted

    def given(fitted: Any, test: IntArray) -> tuple[Any, dict[str, Any]]:
        return known_columns(fitted, problem.X.iloc[test]), at_rows(problem.tasks, test)

    return predict_folds(fold, n_used, fit, given, problem.y, problem.measure, keep=for_report)


def fit_rows(model: Any, problem: Problem) -> Any:
    """Fit; that an optimiser wanted more steps is no news on the command line."""
    with on_one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(without_empty(problem.X), problem.y, **problem.fit_arguments())
