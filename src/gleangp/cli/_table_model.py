"""A model of a table: the encoding of its columns and the estimator behind them, in one file."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from gleangp.cli._encoding import TableEncoding
from gleangp.exceptions import ModelFileError, TaskError


class TableModel(BaseEstimator):
    """What `gleangp fit` writes: predicts frames with the columns that it was fitted on.

    Parameters
    ----------
    estimator : estimator
        Fitted, taking arrays and `tasks=`.
    encoding : TableEncoding
        From columns to numbers.
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

    @property
    def known_tasks(self) -> list[str]:
        """Names of the tasks."""
        names = self.estimator.tasks_
        return [] if names is None else [str(name) for name in names]

    def predict(self, frame: Any) -> Any:
        """Mean and standard deviations, or class and probabilities, one row for each of the frame.

        `target_std` is the deviation of the function, `target_std_new` that of a new target, with noise.
        """
        import pandas as pd

        X, tasks = self.encoding.inputs(frame), self.encoding.tasks(frame)
        if tasks is not None:
            self._check_tasks(tasks)
        given = {} if tasks is None else {"tasks": tasks}
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
                out[f"{target}_std_new"] = np.sqrt(std**2 + self._noise_variance(X, tasks))
        return pd.DataFrame(out, index=frame.index)

    def _noise_variance(self, X: np.ndarray, tasks: np.ndarray | None) -> np.ndarray:
        """Variance of a new target's noise at every row, asked of one row of each task: tasks have units."""
        names, first, of_task = np.unique(
            np.zeros(len(X), dtype=int) if tasks is None else tasks, return_index=True, return_inverse=True
        )
        where = {"X": X[first], "return_std": True, **({} if tasks is None else {"tasks": names})}
        function, new = (self.estimator.predict(**where, include_noise=noisy)[1] for noisy in (False, True))
        return np.maximum(new**2 - function**2, 0.0)[of_task]

    def _check_tasks(self, tasks: np.ndarray) -> None:
        known = self.known_tasks
        unknown = sorted(set(tasks.tolist()) - set(known))
        if unknown:
            shown = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
            raise TaskError(
                f"the model does not know the task {unknown[0]!r} ({len(unknown)} unknown in all). Known: "
                f"{shown}. Teach it with `gleangp add-task`, or use --new-tasks prior."
            )
