"""A prediction of one row, which shows whether transformers of scikit-learn in a file are whole.

Estimators of gleangp check their state themselves; those of scikit-learn do not.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted


def predict_one_row(model: Any) -> None:
    """Predict a row that a pipeline, or a `TaskColumn` of one, can take; raises if that cannot be.

    Cells are the first category of a column of categories, what an imputer fills in, else zero.
    """
    inner = getattr(model, "estimator_", None) if hasattr(model, "estimator") else model
    if inner is None or not isinstance(inner, Pipeline) or not hasattr(inner[-1], "tasks_"):
        return  # not fitted, or no pipeline
    check_is_fitted(inner)
    headings = getattr(model, "feature_names_in_", None)
    names = list(range(model.n_features_in_)) if headings is None else list(headings)
    tasks = inner[-1].tasks_
    if inner is not model:
        names.remove(model.task if isinstance(model.task, str) else names[model.task])
    row = _row(_cells(inner, len(names)), None if headings is None else names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if inner is not model:  # what TaskColumn asks for before it predicts
            check_is_fitted(model)
            inner.get_metadata_routing()
        given = {} if tasks is None else {"tasks": tasks[:1]}
        answer = inner[-1].predict(inner[:-1].transform(row) if len(inner) > 1 else row, **given)
    if np.shape(answer) != (1,) or (np.asarray(answer).dtype.kind == "f" and not np.isfinite(answer).all()):
        raise ValueError("it does not predict a number for one row.")


def _row(cells: list[Any], names: list[Any] | None) -> Any:
    if names is None:
        row = np.empty((1, len(cells)), dtype=object)
        row[0] = cells
        return row if any(isinstance(cell, str) for cell in cells) else row.astype(np.float64)
    import pandas as pd

    return pd.DataFrame({name: [cell] for name, cell in zip(names, cells, strict=True)})


def _cells(step: Any, n_columns: int) -> list[Any]:
    """Cells of one row that a transformer can take."""
    if isinstance(step, Pipeline):
        return _cells(step.steps[0][1], n_columns)
    if hasattr(step, "transformers_"):
        cells: list[Any] = [0.0] * n_columns
        for name, part, _ in step.transformers_:
            at = step._transformer_to_input_indices.get(name, [])
            for i, cell in zip(at, _cells(part, len(at)), strict=True):
                cells[i] = cell
        return cells
    if hasattr(step, "categories_"):
        return [categories[0] for categories in step.categories_]
    if hasattr(step, "statistics_"):
        return list(step.statistics_)
    return [0.0] * n_columns
