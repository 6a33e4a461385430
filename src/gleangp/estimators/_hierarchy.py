"""What `HierarchicalGPRegressor` learns from rows, what it keeps, and its default kernel."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel

from gleangp._state import check_arrays
from gleangp._typing import FloatArray, IntArray
from gleangp.constraints import EncodedConstraints
from gleangp.estimators._random import generator_from
from gleangp.estimators._sparse import ChosenPartsMixin
from gleangp.estimators._sparse_regressor import SparseGPRegressor
from gleangp.estimators._targets import TargetUnits
from gleangp.estimators._warnings import level_of_caller, warn_about_fit
from gleangp.exceptions import KernelError
from gleangp.inference.data_dependent import DataDependentPosterior
from gleangp.inference.task_rows import TaskRows
from gleangp.io.classes import register
from gleangp.kernels import ScaledInputs, has_white
from gleangp.models.decisions import Decision
from gleangp.models.defaults import HIERARCHY
from gleangp.models.hierarchical.model import FittedTask, HierarchicalModel, fit_hierarchical_model
from gleangp.models.hierarchical.rows import GraphSettings, choose_active, task_rows
from gleangp.progress import Progress

# Where all noise is in the kernel's white part, the rest only keeps matrices factorable.
_NO_OTHER_NOISE = 1e-6
NO_TASK = -1  # the task of the common model that has no rows: the common function itself

register(DataDependentPosterior, FittedTask, HierarchicalModel)


class HierarchyMixin(ChosenPartsMixin):
    """From the parameters of the estimator to a `HierarchicalModel`, and to the attributes that show it."""

    mean: str | None
    prior_cov: Any
    theta_uncertainty: bool | None
    noise_variance: float | None
    tasks_: np.ndarray | None
    _center: FloatArray
    _spread: FloatArray
    _units: TargetUnits
    _model: HierarchicalModel

    def _learn_common(
        self, X: FloatArray, y: FloatArray, codes: IntArray, rows: list[IntArray]
    ) -> SparseGPRegressor | None:
        """The model whose common function is the mean of all tasks, in standard units; None without one."""
        if self.mean is None or sum(len(r) > 0 for r in rows) < 2:
            return None
        at = np.concatenate(rows)
        common = SparseGPRegressor(coupling="function", normalize_y=False, random_state=self.random_state)
        if self.optimizer is None:
            common.set_params(optimizer=None)
        standard_X = (X[at] - self._center) / self._spread
        common.fit(standard_X, self._units.to_standard(y, codes)[at], tasks=codes[at])
        return common.add_task(None, None, NO_TASK)

    def _most_labels(self, n_labelled: int) -> int:
        if self.n_active is None:
            return HIERARCHY.dense_labels
        if isinstance(self.n_active, Integral):
            return int(self.n_active)
        return max(1, round(self.n_active * n_labelled))

    def _learn(self, kernel: Kernel, blocks: list[TaskRows], progress: Progress) -> HierarchicalModel:
        noise = self.noise_variance
        if noise is None and (has_white(kernel) or self.optimizer is None):
            noise = _NO_OTHER_NOISE if has_white(kernel) else HIERARCHY.noise
        return fit_hierarchical_model(
            kernel,
            blocks,
            optimize=self.optimizer is not None,
            noise=noise,
            prior_cov=self._fixed_cov(kernel.n_dims),
            average_theta=self.theta_uncertainty,
            max_rounds=self.n_rounds,
            n_jobs=self.n_jobs,
            progress=progress,
        )

    def _fixed_cov(self, n_parameters: int) -> FloatArray | None:
        if self.prior_cov is None:
            return None
        given = np.asarray(self.prior_cov, dtype=np.float64)
        cov = given * np.eye(n_parameters) if given.ndim == 0 else given
        if cov.shape != (n_parameters, n_parameters) or not np.isfinite(cov).all():
            raise KernelError(
                f"prior_cov has shape {given.shape}; the kernel has {n_parameters} free parameters. Give "
                "one finite number, or a square matrix of that size."
            )
        if not np.allclose(cov, cov.T) or np.linalg.eigvalsh(cov).min(initial=0.0) < -1e-12:
            raise KernelError("prior_cov is not a covariance: it must be symmetric, no eigenvalue negative.")
        return cov

    def _store(self, model: HierarchicalModel) -> None:
        self._model = model
        names = [None] if self.tasks_ is None else self.tasks_.tolist()
        self.kernels_ = {name: t.kernel for name, t in zip(names, model.tasks, strict=True)}
        q = model.kernel.n_dims
        self.theta_cov_ = {name: t.theta_cov[:q, :q] for name, t in zip(names, model.tasks, strict=True)}
        self.alpha_ = {name: t.alpha for name, t in zip(names, model.tasks, strict=True)}
        self.kernel_ = model.kernel
        self.prior_mean_ = model.kernel.theta
        self.prior_cov_ = model.prior_cov[:q, :q]
        self.noise_variance_ = model.noise
        self.noise_variances_ = dict(zip(names, model.noise_of(np.arange(len(names))).tolist(), strict=True))
        self.constraint_noise_ = model.width
        self.log_evidence_ = float(sum(t.log_evidence for t in model.tasks))
        self.n_rounds_ = model.n_rounds

    def _warn(self, blocks: list[TaskRows]) -> None:
        model = self._model
        silent = [t for t, b in enumerate(blocks) if b.n_labelled == 0 and b.order is None]
        if silent and self.tasks_ is not None:
            first = self.tasks_[silent[0]].item()
            rest = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            warnings.warn(
                f"task {first!r}{rest} has no labelled row and no constraint; it is predicted from the "
                "prior that the other tasks taught.",
                UserWarning,
                stacklevel=level_of_caller(),
            )
        warn_about_fit(
            type(self).__name__,
            model,
            f"after {model.n_rounds} rounds while the prior still changed by {model.last_change:.3g} (its "
            "limit is 0.02). Raise n_rounds, or give prior_cov.",
            "A larger noise variance makes the model well-posed.",
        )

    def _check_state(self) -> None:
        """Raise if fitted parts are missing or do not fit together (a damaged model file)."""
        fitted = set(vars(self)) - set(self.get_params(deep=False))
        if not fitted:
            return
        n_tasks, n_inputs = self._check_fitted("_model", "_units", "_center", "_spread", "active_")
        if not isinstance(self._model, HierarchicalModel) or len(self._model.tasks) != n_tasks:
            raise ValueError(f"no fitted model for the {n_tasks} tasks.")
        if len(self._units.mean) != n_tasks:
            raise ValueError(f"target units of {len(self._units.mean)} tasks, not {n_tasks}.")
        check_arrays(self, {"p": n_inputs}, _center="p", _spread="p >0")
        common = getattr(self, "common_", None)  # older files have none, and no decisions
        self.decisions_ = list(getattr(self, "decisions_", ()))
        if not all(isinstance(made, Decision) for made in self.decisions_):
            raise ValueError("decisions that are none.")
        if self._model.tasks[0].n_inputs != n_inputs:
            raise ValueError(f"a model of other inputs than the {n_inputs} it says.")
        if common is not None and (type(common) is not SparseGPRegressor or NO_TASK not in common.tasks_):
            raise ValueError("a common function that is none.")
        if common is not None and common.n_features_in_ != n_inputs:
            raise ValueError(f"a common function of other inputs than the {n_inputs} it says.")
        self._store(self._model)


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
    labels is not known exactly.
    """
    root = np.sqrt(n_features)
    linear = ScaledInputs(DotProduct(0.0, "fixed"), 1.0 / root, "fixed")
    rbf = RBF(root, (1e-2 * root, 1e3 * root))
    kernel = ConstantKernel(0.4, (1e-4, 1e4)) * linear + ConstantKernel(0.5, (1e-4, 1e4)) * rbf
    return kernel + ConstantKernel(0.1, (1e-4, 1e4)) if offset else kernel
