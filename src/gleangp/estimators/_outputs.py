"""Several outputs of every row, `Y` of shape (n, q): q tasks over the same rows, one after the other.

An estimator that was fitted to them has their number in `_n_outputs`. It predicts all outputs of rows that
come without tasks, and the outputs that `tasks=` names of others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_regression_target
from gleangp.data.outputs import stack_outputs
from gleangp.exceptions import LabelError


def count_outputs(y: Any) -> int:
    """Number of columns of a target that has several; 0 for one target per row."""
    shape = np.shape(y) if hasattr(y, "shape") else np.array(y, dtype=object).shape
    return shape[1] if len(shape) == 2 and shape[1] > 1 else 0


def every_output(X: FloatArray, n_outputs: int) -> tuple[FloatArray, IntArray]:
    """The rows once for every output, and the number of the output of each."""
    return np.tile(X, (n_outputs, 1)), np.repeat(np.arange(n_outputs), len(X))


def names_of_outputs(Y: Any, n_rows: int) -> np.ndarray:
    """One name for each column of Y: its heading, or its number."""
    return stack_outputs(np.zeros((n_rows, 0)), Y)[2][::n_rows]


class OutputsMixin:
    """For a regressor with tasks."""

    tasks_: Any

    def _asks_for_outputs(self, tasks: Any) -> bool:
        """Whether rows stand for all their outputs."""
        return tasks is None and getattr(self, "_n_outputs", 0) > 0

    def _check_targets(self, y: Any, n_rows: int, tasks: Any) -> tuple[FloatArray, np.ndarray]:
        """Targets (n_rows,) of rows as `_resolve` returns them, and which rows have one."""
        if self._asks_for_outputs(tasks):
            q = len(self.tasks_)
            Y = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
            if Y.shape != (n_rows // q, q):
                raise LabelError(
                    f"y has shape {Y.shape}, but the model has {q} outputs and X has {n_rows // q} rows: "
                    f"shape {(n_rows // q, q)} is expected, NaN where an output is not known."
                )
            y = Y.ravel(order="F")
        return check_regression_target(y, n_rows)

    def _of_cells(self, values: FloatArray, n_rows: int) -> FloatArray:
        """What was given for every row, or for every cell of Y, for every row of `_resolve`."""
        if not getattr(self, "_n_outputs", 0):
            return values
        if values.shape == (n_rows // len(self.tasks_), len(self.tasks_)):
            return values.ravel(order="F")
        return np.tile(values, len(self.tasks_)) if values.shape == (n_rows // len(self.tasks_),) else values

    def _by_row(self, values: FloatArray, tasks: Any) -> FloatArray:
        """What was found for rows of `_resolve` (q n, ...), in the shape (n, q, ...) of Y."""
        if not self._asks_for_outputs(tasks):
            return values
        q = len(self.tasks_)
        return values.reshape(q, -1, *values.shape[1:]).swapaxes(0, 1)
