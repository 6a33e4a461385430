"""What the five tables of Zhu & Sun 2013 share: methods, measures, splits.

Inputs are standardised on the training rows. Nothing is tuned: `scale` and `weight` are shown at fixed values
instead of chosen by cross-validation, and kernel, likelihood and inference are not chosen on test data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from gleangp import (
    EntropySelector,
    GraphSelector,
    RandomSelector,
    SparseGPClassifier,
    SparseGPRegressor,
    TaskRelevance,
)
from gleangp.reproduce.experiment import Method
from gleangp.reproduce.experiments._estimators import Measure, PerTask, Split, estimator_method

DEFAULT = "default"
NOTES = (
    "Paper's setting: predictions from the kept points alone (posterior='active'), t = 1, weight 1. The "
    "paper chose parameters by cross-validation, and kernel, likelihood and inference by the accuracy on "
    "test data; nothing is chosen here.",
    "“projected”: all rows speak through the kept points. “control”: the same selector task by task, without "
    "the regulariser.",
)
_SPARSE: dict[bool, Any] = {True: SparseGPClassifier, False: SparseGPRegressor}


def _linear(classes: bool) -> Any:
    return LogisticRegression(max_iter=1000) if classes else RidgeCV(alphas=np.logspace(-3, 3, 13))


def _nothing(classes: bool) -> Any:
    return DummyClassifier() if classes else DummyRegressor()


def one_task_methods(n_keep: int, measure: Measure, *, classes: bool) -> tuple[Method, ...]:
    """Default, IVM and MPGR in the paper's setting, then what they must be judged by."""
    sparse = _SPARSE[classes]
    coverage = GraphSelector(scale=5.0, objective="coverage")
    selectors = {"IVM": EntropySelector(), "MPGR": GraphSelector(), "MPGR t=5": GraphSelector(scale=5.0)}
    selectors |= {"coverage t=5": coverage, "random points": RandomSelector()}
    out = [estimator_method(DEFAULT, lambda: sparse(random_state=0), measure, role="default")]
    out += _sparse_methods(sparse, selectors, n_keep, measure, paper=("IVM", "MPGR"))
    out.append(estimator_method("linear model", lambda: _linear(classes), measure))
    out.append(estimator_method("majority or mean", lambda: _nothing(classes), measure))
    return tuple(out)


def many_task_methods(n_keep: float, measure: Measure, *, classes: bool) -> tuple[Method, ...]:
    """Default, MTIVM, rMTIVM, MTMPGR and rMTMPGR, their controls, and linear models."""
    sparse = _SPARSE[classes]
    ivm, mpgr = EntropySelector(), GraphSelector()
    paper = {
        "MTIVM": ivm,
        "rMTIVM": TaskRelevance(ivm),
        "MTMPGR": mpgr,
        "rMTMPGR": TaskRelevance(mpgr),
    }
    selectors = {
        **paper,
        "IVM per task (control)": TaskRelevance(ivm, weight=0.0),
        "MPGR per task (control)": TaskRelevance(mpgr, weight=0.0),
        "random points": RandomSelector(),
    }
    out = [estimator_method(DEFAULT, lambda: sparse(random_state=0), measure, role="default")]
    out += _sparse_methods(sparse, selectors, n_keep, measure, paper=tuple(paper))
    out.append(estimator_method("linear model per task", lambda: PerTask(lambda: _linear(classes)), measure))
    out.append(
        estimator_method("majority or mean per task", lambda: PerTask(lambda: _nothing(classes)), measure)
    )
    return tuple(out)


def _sparse_methods(
    sparse: Any, selectors: dict[str, Any], n_keep: float, measure: Measure, paper: tuple[str, ...]
) -> list[Method]:
    out = []
    for posterior in ("active", "projected"):
        for name, selector in selectors.items():
            if posterior == "projected" and name not in (*paper, "random points"):
                continue

            def make(selector: Any = selector, posterior: str = posterior) -> Any:
                return sparse(
                    coupling="kernel",
                    selector=selector,
                    n_active=n_keep,
                    posterior=posterior,
                    random_state=0,
                )

            shown = name if posterior == "active" else f"{name}, projected"
            role = "paper" if posterior == "active" and name in paper else "other"
            out.append(estimator_method(shown, make, measure, role=role))
    return out


def split_rows(X: np.ndarray, y: np.ndarray, n_train: int, n_test: int, rng: np.random.Generator) -> Split:
    """Rows of one task, split at random and standardised."""
    rows = rng.permutation(len(X))[: n_train + n_test]
    train, test = rows[:n_train], rows[n_train:]
    scaler = StandardScaler().fit(X[train])
    return Split(scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test])


def error_rate(split: Split, prediction: np.ndarray, probability: np.ndarray | None) -> dict[str, float]:
    """Percent of wrong labels; with two classes also the area under the curve."""
    values = {"error %": 100.0 * float(np.mean(prediction != split.y_test))}
    if probability is not None and probability.shape[1] == 2:
        values["AUC"] = _task_auc(split, probability[:, 1])
    return values


def relative_error(split: Split, prediction: np.ndarray, _: np.ndarray | None) -> dict[str, float]:
    """Mean absolute relative error in percent (Zhu & Sun 2013, eq. 15)."""
    return {"MARE %": 100.0 * float(np.mean(np.abs(prediction / split.y_test - 1.0)))}


def _task_auc(split: Split, score: np.ndarray) -> float:
    """Area under the curve, averaged over the tasks whose test rows have both classes."""
    positive = split.y_test == np.max(split.y_test)
    tasks = np.zeros(len(score)) if split.tasks_test is None else split.tasks_test
    both = [
        roc_auc_score(positive[tasks == t], score[tasks == t])
        for t in np.unique(tasks)
        if 0 < positive[tasks == t].sum() < np.sum(tasks == t)
    ]
    return float(np.mean(both))
