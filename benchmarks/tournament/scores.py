"""Scores of predictions on one split, the same for all methods; and gleangp's own predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from benchmarks.common import cpu_seconds, regression_scores
from benchmarks.tournament.tables import FEW, TEST, TRAIN, Table
from scipy.stats import nbinom

MAIN = {"reg": "rmse", "count": "pdev", "bin": "logloss", "ord": "logloss"}  # lower is better


@dataclass
class Answer:
    """Predictions of the test rows: of observations, or probabilities of classes."""

    cpu: float
    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    proba: np.ndarray | None = None  # columns in the order of the sorted classes
    nlpd: float | None = None  # where the method has a density of its own


def score(table: Table, role: np.ndarray, answer: Answer) -> dict[str, float]:
    """RMSE, Poisson deviance or log loss; NLPD; coverage of all rows and its tenth percentile over groups."""
    test = role == TEST
    y = table.y[test]
    if answer.proba is not None:
        proba = np.clip(answer.proba, 1e-6, None)
        proba /= proba.sum(axis=1, keepdims=True)
        chosen = proba[np.arange(len(y)), np.searchsorted(np.unique(table.y), y)]
        loss = -float(np.mean(np.log(chosen)))
        return {"logloss": loss, "nlpd": loss}
    if table.kind == "count":
        return count_scores(y, np.maximum(answer.mean, 1e-3), answer.std, answer.nlpd)
    if answer.std is None:
        return {"rmse": float(np.sqrt(np.mean((y - answer.mean) ** 2)))}
    found = regression_scores(y, answer.mean, answer.std)
    if table.grouped:
        groups, rng = table.groups[test], np.random.default_rng(0)
        found["cov_lo"] = lowest_tenth(np.abs(y - answer.mean) < 1.96 * answer.std, groups)
        # Groups have few test rows: the same of intervals that cover every row with probability 0.95.
        exact = [lowest_tenth(rng.random(len(y)) < 0.95, groups) for _ in range(10)]
        found["cov_lo_exact"] = float(np.mean(exact))
    return found


def lowest_tenth(inside: np.ndarray, groups: np.ndarray) -> float:
    """Tenth percentile, over groups of at least four rows, of the share of the rows inside."""
    by_group = pd.Series(inside).groupby(groups).agg(["mean", "size"])
    shares = by_group.loc[by_group["size"] >= 4, "mean"]
    return float(shares.quantile(0.1)) if len(shares) else np.nan


def count_scores(y, mean, std, nlpd=None) -> dict[str, float]:
    """Mean Poisson deviance; log score as given, or of the negative binomial with these moments."""
    found = {"pdev": 2 * float(np.mean(np.where(y > 0, y * np.log(np.maximum(y, 1) / mean), 0) - (y - mean)))}
    if nlpd is None and std is not None:
        var = np.maximum(std**2, 1.0001 * mean)
        nlpd = -float(np.mean(np.maximum(nbinom.logpmf(y, mean**2 / (var - mean), mean / var), -27.6)))
    return found if nlpd is None else {**found, "nlpd": nlpd}


def default_estimator(kind: str):
    """What a user gets who sets nothing but the kind of the target."""
    from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor

    if kind == "count":
        return SparseGPRegressor(noise="negative_binomial", random_state=0)
    return {"reg": SparseGPRegressor, "bin": SparseGPClassifier, "ord": SparseGPOrdinal}[kind](random_state=0)


def gleangp(table: Table, role: np.ndarray, make=default_estimator) -> Answer:
    """Fit on the training rows, add the new groups with their few rows, predict the test rows."""
    model, X, y, groups = make(table.kind), table.X, table.y, table.groups
    train, few, test = (np.flatnonzero(role == r) for r in (TRAIN, FEW, TEST))

    def learn():
        if groups is None:
            return model.fit(X[train], y[train])
        model.fit(X[train], y[train], tasks=groups[train])
        for g in np.setdiff1d(groups[np.r_[few, test]], groups[train]):
            rows = few[groups[few] == g]
            model.add_task(*((X[rows], y[rows]) if len(rows) else (None, None)), task=g)
        return model

    _, cpu = cpu_seconds(learn)
    where = {} if groups is None else {"tasks": groups[test]}
    if table.kind in ("reg", "count"):
        mean, std = model.predict(X[test], return_std=True, include_noise=True, **where)
        nlpd = -model.log_density(X[test], y[test], **where)
        return Answer(cpu, np.asarray(mean), np.asarray(std), nlpd=nlpd if table.kind == "count" else None)
    classes = np.unique(y)
    proba = np.zeros((len(test), len(classes)))
    proba[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X[test], **where)
    return Answer(cpu, proba=proba)
