"""What `HierarchicalGPRegressor` makes of rows and units before it learns, and its default kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel

from gleangp._typing import FloatArray, IntArray
from gleangp.constraints import EncodedConstraints
from gleangp.estimators._sparse import generator_from
from gleangp.inference.task_rows import TaskRows
from gleangp.kernels import ScaledInputs
from gleangp.models.hierarchical.rows import GraphSettings, choose_active, task_rows

NO_TASK = -1  # the task of the common model that has no rows: the common function itself


class BlockMaker:
    """The rows of every task as the hierarchy learns from them, in standard units."""

    def __init__(
        self,
        estimator: Any,
        X: FloatArray,
        y: FloatArray,
        codes: IntArray,
        rows: list[IntArray],
        encoded: EncodedConstraints | None,
    ):
        self.estimator, self.rows, self.encoded = estimator, rows, encoded
        self.X = (X - estimator._center) / estimator._spread
        self.mean = common_mean(estimator, self.X)
        self.y = estimator._units.to_standard(y, codes) - self.mean
        self.codes = codes
        self.active = np.zeros(0, dtype=np.intp)
        self.left_some_out = False

    def __call__(self, kernels: list[Kernel], noise: float) -> list[TaskRows]:
        model = self.estimator
        rng = generator_from(model.random_state)
        settings = GraphSettings(model.n_neighbors, model.n_landmarks, model.n_jobs)
        blocks, active = [], []
        for rows, kernel in zip(self.rows, kernels, strict=True):
            X, y = self.X[rows], self.y[rows]
            labelled = np.flatnonzero(~np.isnan(y))
            most = model._most_labels(len(labelled))
            chosen = choose_active(kernel, X, y, most, noise, model._chosen_selector(), rng)
            self.left_some_out |= chosen is not None
            active.append(rows[labelled if chosen is None else chosen])
            blocks.append(task_rows(X, y, self._constraints_of(rows), settings, rng, chosen))
        self.active = np.concatenate(active)
        return blocks

    def _constraints_of(self, rows: IntArray) -> tuple[csr_array, FloatArray] | None:
        if self.encoded is None or len(rows) == 0:
            return None
        task = self.codes[rows[0]]
        at = np.flatnonzero(self.encoded.task == task)
        if len(at) == 0:
            return None
        scale, coefficients = self.estimator._units.scale[task], self.encoded.coefficients[at][:, rows]
        # What the mean function already says of an inequality is no longer asked of the deviation from it.
        return coefficients, self.encoded.margin[at] / scale - coefficients @ self.mean[rows]


def common_mean(estimator: Any, X: FloatArray) -> FloatArray:
    """Common function (n,) of the tasks at rows in standard units; zero where there is none."""
    common = getattr(estimator, "common_", None)
    if common is None or len(X) == 0:
        return np.zeros(len(X))
    return common.predict(X, tasks=np.full(len(X), NO_TASK))


def input_units(X: FloatArray, standardize: bool) -> tuple[FloatArray, FloatArray]:
    if not standardize:
        return np.zeros(X.shape[1]), np.ones(X.shape[1])
    spread = np.std(X, axis=0)
    spread[spread <= 1e-12 * np.max(np.abs(X), axis=0, initial=0.0)] = 1.0  # constant columns
    return np.mean(X, axis=0), spread


def linear_plus_rbf(n_features: int, offset: bool) -> Kernel:
    """The kernel of Zhang & Yeung 2009, section 2.1, with the inner product per feature.

    `offset` adds a constant: tasks differ from the centre they share, and even the mean of a task's own
    labels is not known exactly (20 labels of SARCOS: lower error on 29 of 30 splits).
    """
    root = np.sqrt(n_features)
    linear = ScaledInputs(DotProduct(0.0, "fixed"), 1.0 / root, "fixed")
    rbf = RBF(root, (1e-2 * root, 1e3 * root))
    kernel = ConstantKernel(0.4, (1e-4, 1e4)) * linear + ConstantKernel(0.5, (1e-4, 1e4)) * rbf
    return kernel + ConstantKernel(0.1, (1e-4, 1e4)) if offset else kernel
