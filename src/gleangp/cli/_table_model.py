"""A model of a table: the encoding of its columns and the estimator behind them, in one file."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, is_classifier

from gleangp.cli._encoding import TableEncoding
from gleangp.data.tables import ColumnEncoding, count_features, encode_columns
from gleangp.exceptions import ModelFileError, TaskError
from gleangp.io.classes import register


class TableModel(BaseEstimator):
    """What `gleangp fit` writes: predicts frames with the columns that it was fitted on.

    Parameters
    ----------
    estimator : estimator
        Fitted on a frame (in older files: on an array) and `tasks=`.
    encoding : TableEncoding
        What the columns of the table are.
    summary : dict
        How it was fitted and how good it is: plain values.
    """

    def __init__(self, estimator: Any, encoding: TableEncoding, summary: dict[str, Any]) -> None:
        self.estimator = estimator
        self.encoding = encoding
        self.summary = summary

    def _check_state(self) -> None:
        """Raise if parts are of another kind (a damaged model file)."""
        if not isinstance(self.encoding, TableEncoding) or not isinstance(self.estimator, BaseEstimator):
            raise ModelFileError("a table model without an encoding or an estimator.")
        if not isinstance(self.summary, dict):
            raise ModelFileError("a table model without a summary.")
        if getattr(self.estimator, "tasks_", 0) is None and self.encoding.task is not None:
            raise ModelFileError("a table model with a column of tasks, and an estimator without tasks.")
        n_inputs = count_features(self.columns) if self.encoding.columns else len(self.columns)
        if n_inputs != getattr(self.estimator, "n_features_in_", None):
            raise ModelFileError("a table model whose encoding is not of the estimator's inputs.")

    @property
    def columns(self) -> tuple[ColumnEncoding, ...]:
        """What the inputs are, in their order."""
        return self.encoding.columns or getattr(self.estimator, "columns_", None) or ()

    def inputs(self, frame: Any, *, strict: bool = False) -> Any:
        """What the estimator is given of a table; `strict` refuses gaps and unseen categories."""
        older = bool(self.encoding.columns)
        # Without rows: it raises if a column is not there.
        numbers = encode_columns(self.columns, frame if older or strict else frame[:0], strict=strict)
        return numbers if older else frame.rename(columns=str)[[column.name for column in self.columns]]

    @property
    def known_tasks(self) -> list[str]:
        """Names of the tasks."""
        names = self.estimator.tasks_
        return [] if names is None else [str(name) for name in names]

    def predict(self, frame: Any, *, strict: bool = False, interval: float | None = None) -> Any:
        """Mean and standard deviations, or class and probabilities, one row for each of the frame.

        `target_std` is the deviation of the function, `target_std_new` that of a new target, with noise.

        Parameters
        ----------
        frame : DataFrame
            With the columns that the model was fitted on.
        strict : bool, default=False
            Raise if a row has no task, or one that the model does not know, or a gap or an unseen category.
            By default such rows are predicted, with a warning.
        interval : float, default=None
            Coverage of the interval of a new target, in columns `target_lower` and `target_upper`.

        Returns
        -------
        DataFrame
        """
        import pandas as pd

        X, tasks = self.inputs(frame, strict=strict), self._tasks(frame, strict=strict)
        if tasks is not None and strict:
            self._check_tasks(tasks)
        given = {} if tasks is None else {"tasks": tasks}
        given.update(self.encoding.fields_of(frame, strict=strict))
        out: dict[Any, Any] = {} if tasks is None else {self.encoding.task: tasks}
        target = self.encoding.target
        if is_classifier(self.estimator):
            out[target] = self.estimator.predict(X, **given)
            proba = self.estimator.predict_proba(X, **given)
            out.update({f"p({label})": p for label, p in zip(self.estimator.classes_, proba.T, strict=True)})
        else:
            mean, std = self.estimator.predict(X, return_std=True, **given)
            out.update({target: mean, f"{target}_std": std})
            if len(X) and "include_noise" in signature(self.estimator.predict).parameters:
                std = self.estimator.predict(X, return_std=True, include_noise=True, **given)[1]
                out[f"{target}_std_new"] = std
            if interval is not None:
                out[f"{target}_lower"], out[f"{target}_upper"] = self._interval(X, given, interval, mean, std)
        return pd.DataFrame(out, index=frame.index)

    def unknown_tasks(self, frame: Any) -> list[str]:
        """Task of every row whose task the model does not know; an empty name for rows without one."""
        tasks = self._tasks(frame, strict=False)
        return [] if tasks is None else tasks[~np.isin(tasks, self.known_tasks)].tolist()

    def _tasks(self, frame: Any, *, strict: bool) -> np.ndarray | None:
        column = self.encoding.task
        if strict or column is None or column not in frame.columns or not frame[column].isna().any():
            return self.encoding.tasks(frame)
        there = frame[column].notna().to_numpy()
        tasks = np.full(len(frame), "", dtype=object)
        tasks[there] = self.encoding.tasks(frame[there])
        return tasks.astype(str)

    def _interval(
        self, X: Any, given: dict[str, Any], coverage: float, mean: np.ndarray, std: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of a new target: the estimator's own, or those of a normal distribution."""
        if hasattr(self.estimator, "predict_interval"):
            lower, upper = self.estimator.predict_interval(X, coverage, **given).T
            return lower, upper
        half = float(ndtri(0.5 + 0.5 * coverage)) * std
        return mean - half, mean + half

    def _check_tasks(self, tasks: np.ndarray) -> None:
        known = self.known_tasks
        unknown = sorted(set(tasks.tolist()) - set(known))
        if unknown:
            shown = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
            raise TaskError(
                f"the model does not know the task {unknown[0]!r} ({len(unknown)} unknown in all). Known: "
                f"{shown}. Teach it with `gleangp update`, or leave --strict out."
            )


register(TableModel, TableEncoding)
