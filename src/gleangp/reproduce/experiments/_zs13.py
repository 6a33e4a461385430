"""What the five tables of Zhu & Sun 2013 share: methods, measures, splits.

Inputs are standardised on the training rows. Nothing is tuned: `scale` and `weight` are shown at fixed values
instead of chosen by cross-validation, and kernel, likelihood and inference are not chosen on test data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.preprocessing import StandardScaler

from gleangp import (
    EntropySelector,
    GraphSelector,
    RandomSelector,
    SparseGPClassifier,
    SparseGPRegressor,
    TaskRelevance,
)
from gleangp.reproduce.experiment import Column, Context, Experiment, Method, Quick, printed
from gleangp.reproduce.experiments._estimators import (
    Measure,
    PerTask,
    Split,
    estimator_method,
    task_auc,
)
from gleangp.reproduce.figures import draw_table

DEFAULT = "default"
NOTES = (
    "Paper's setting: predictions from the kept points alone (posterior='active'), t = 1, weight 1. The "
    "paper chose parameters by cross-validation, and kernel, likelihood and inference by the accuracy on "
    "test data; nothing is chosen here.",
    "“control”: the same selector task by task, without the regulariser.",
)
_COVERAGE = GraphSelector(scale=5.0, objective="coverage")
_SPARSE: dict[bool, Any] = {True: SparseGPClassifier, False: SparseGPRegressor}


def _linear(classes: bool) -> Any:
    return LogisticRegression(max_iter=1000) if classes else RidgeCV(alphas=np.logspace(-3, 3, 13))


def _nothing(classes: bool) -> Any:
    return DummyClassifier() if classes else DummyRegressor()


def one_task_methods(n_keep: int, measure: Measure, *, classes: bool) -> tuple[Method, ...]:
    """Default, IVM and MPGR in the paper's setting, then what they must be judged by."""
    paper = {"IVM": EntropySelector(), "MPGR": GraphSelector()}
    others = {
        "MPGR t=5": GraphSelector(scale=5.0),
        "MPGR t=10": GraphSelector(scale=10.0),
        "coverage t=5": _COVERAGE,
        "random points": RandomSelector(),
    }
    return (
        *_sparse_methods(paper, others, n_keep, measure, classes),
        estimator_method("linear model", lambda: _linear(classes), measure),
        estimator_method("majority or mean", lambda: _nothing(classes), measure),
    )


def many_task_methods(n_keep: float, measure: Measure, *, classes: bool) -> tuple[Method, ...]:
    """Default, MTIVM, rMTIVM, MTMPGR and rMTMPGR, their controls and variants, and linear models."""
    ivm, mpgr = EntropySelector(), GraphSelector()
    paper = {"MTIVM": ivm, "rMTIVM": TaskRelevance(ivm), "MTMPGR": mpgr, "rMTMPGR": TaskRelevance(mpgr)}
    others: dict[str, Any] = {"coverage t=5": _COVERAGE, "rcoverage t=5": TaskRelevance(_COVERAGE)}
    for name, base in (("IVM", ivm), ("MPGR", mpgr), ("coverage t=5", _COVERAGE)):
        others[f"{name} per task (control)"] = TaskRelevance(base, weight=0.0)
    for name, base in (("rMTIVM", ivm), ("rMTMPGR", mpgr)):
        others[f"{name} weight 1/2"] = TaskRelevance(base, weight=0.5)
        others[f"{name} weight 2"] = TaskRelevance(base, weight=2.0)
        others[f"{name}, posterior relevance"] = TaskRelevance(base, relevance="posterior")
    others["random points"] = RandomSelector()
    return (
        *_sparse_methods(paper, others, n_keep, measure, classes),
        estimator_method("linear model per task", lambda: PerTask(lambda: _linear(classes)), measure),
        estimator_method("linear model, rows pooled", lambda: _linear(classes), measure, pooled=True),
        estimator_method("majority or mean per task", lambda: PerTask(lambda: _nothing(classes)), measure),
    )


def _sparse_methods(
    paper: dict[str, Any], others: dict[str, Any], n_keep: float, measure: Measure, classes: bool
) -> list[Method]:
    """Our default; the paper's selectors and others, from their points alone; all points."""
    sparse = _SPARSE[classes]

    def keeping(selector: Any) -> Callable[[], Any]:
        how = {"selector": selector, "n_active": n_keep, "posterior": "active", "random_state": 0}
        return lambda: sparse(coupling="kernel", **how)

    out = [estimator_method(DEFAULT, lambda: sparse(random_state=0), measure, role="default")]
    for name, selector in {**paper, **others}.items():
        role = "paper" if name in paper else "other"
        out.append(estimator_method(name, keeping(selector), measure, role=role))
    everything = {"coupling": "kernel", "n_active": 1.0, "random_state": 0}
    out.append(estimator_method("all points", lambda: sparse(**everything), measure))
    return out


def split_rows(X: np.ndarray, y: np.ndarray, n_train: int, n_test: int, rng: np.random.Generator) -> Split:
    """Rows of one task, split at random and standardised."""
    rows = rng.permutation(len(X))[: n_train + n_test]
    train, test = rows[:n_train], rows[n_train:]
    scaler = StandardScaler().fit(X[train])
    return Split(scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test])


def one_task_table(
    name: str,
    source: str,
    load: Callable[..., Any],
    rows: tuple[int, int],
    n_keep: int,
    columns: tuple[Column, ...],
    paper: Mapping[str, tuple[float, float]],
    *,
    title: str,
    classes: int = 0,
    notes: tuple[str, ...] = (),
) -> Experiment:
    """Tables 1 to 3: rows to learn from and to test are drawn from a set; the first column is the paper's."""
    n_train, n_test = rows
    kind = {0: "regression", 2: "two classes", 3: "three classes"}[classes]
    measured = columns[0].name

    def problem(context: Context) -> Split:
        X, y = load(return_X_y=True)
        return split_rows(X, y, n_train, n_test, context.rng())

    return Experiment(
        name=name,
        source=source,
        shows=f"IVM and MPGR keep {n_keep} of {n_train} rows; {kind}.",
        problem=problem,
        methods=one_task_methods(n_keep, error_rate if classes else relative_error, classes=classes > 0),
        columns=columns,
        n_runs=10,
        test_share=n_test / n_train,
        paper=printed((measured,), **paper),
        quick=Quick(n_runs=2),
        draw=lambda results: {"errors": draw_table(results, measured, title)},
        notes=(*NOTES, *notes),
    )


def error_rate(split: Split, prediction: np.ndarray, probability: np.ndarray | None) -> dict[str, float]:
    """Percent of wrong labels; with two classes also the area under the curve."""
    values = {"error %": 100.0 * float(np.mean(prediction != split.y_test))}
    if probability is not None and probability.shape[1] == 2:
        values["AUC"] = task_auc(split, probability[:, 1])
    return values


def relative_error(split: Split, prediction: np.ndarray, _: np.ndarray | None) -> dict[str, float]:
    """Mean absolute relative error in percent (Zhu & Sun 2013, eq. 15)."""
    return {"MARE %": 100.0 * float(np.mean(np.abs(prediction / split.y_test - 1.0)))}
