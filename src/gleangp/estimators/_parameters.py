"""Constructor parameters that several estimators have: names, types, defaults, and what is allowed.

An estimator is a dataclass of its parameters: the constructor stores what it is given, and `fit` checks it
against `_parameter_constraints`, as scikit-learn asks for. `_docs` has the descriptions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from gleangp._compat import HasMethods, Interval, StrOptions
from gleangp._typing import FloatArray
from gleangp.exceptions import KernelError
from gleangp.selection.selectors import SELECTORS

_T = TypeVar("_T")


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
def parameters(cls: type[_T]) -> type[_T]:
    """A constructor from the annotated attributes of a class and of those bases that have this decorator."""
    return dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)


@parameters
class TaskParameters:
    """Of all estimators."""

    task: str | int | None = None
    new_tasks: str = "prior"
    random_state: Any = None
    verbose: int = 0


@parameters
class PartsParameters:
    """Of estimators that select rows."""

    kernel: Any = field(default=None, kw_only=False)
    n_active: int | float | None = None
    selector: Any = "residual"
    optimizer: str | None = "l-bfgs-b"
    n_rounds: int = 5
    n_jobs: int | None = None


@parameters
class SparseParameters(PartsParameters):
    """Of the sparse estimators."""

    coupling: Any = "auto"
    posterior: str = "local"
    n_restarts: int = 0
    priors: dict[str, Any] | None = None
    invariances: Any = None


@parameters
class ClassParameters:
    """Of the sparse estimators of labels."""

    selector: Any = None
    sites: str = "adf"
    learn_noise: Any = True
    unlabeled: Any = None


@parameters
class LatentParameters:
    """Of the estimators with a latent space."""

    n_components: int = field(default=2, kw_only=False)
    kernel: Any = None
    ard: bool = False
    back_constraint: str | None = "mlp"
    n_active: int | None = None
    hidden_units: int = 50
    n_observed: int | None = None
    label_weight: float = 1.0
    weight_decay: float = 20.0
    max_iter: int = 300
    tol: float = 3e-4
    n_init: int = 1
    transfer: str = "blend"


_COUNT = Interval(Integral, 1, None, closed="left")
_NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
_OF_TASKS = {
    "task": [str, Integral, None],
    "new_tasks": [StrOptions({"prior", "error"})],
    "random_state": ["random_state", np.random.Generator],
    "verbose": ["verbose"],
}
PARTS_CONSTRAINTS = {
    **_OF_TASKS,
    "kernel": [Kernel, None],
    "n_active": [_COUNT, Interval(Real, 0, 1, closed="right"), None],
    "selector": [StrOptions(set(SELECTORS)), HasMethods(["select"])],
    "optimizer": [StrOptions({"l-bfgs-b"}), None],
    "n_rounds": [_COUNT],
    "n_jobs": [Integral, None],
}
SPARSE_CONSTRAINTS = {
    **PARTS_CONSTRAINTS,
    "coupling": [StrOptions({"auto", "kernel", "function", "coregion"}), HasMethods(["terms"])],
    "posterior": [StrOptions({"local", "active", "projected"})],  # the last of version 0.1
    "n_restarts": [Interval(Integral, 0, None, closed="left")],
    "priors": [dict, None],
    "invariances": [callable, "array-like", None],
}
CLASS_CONSTRAINTS = {
    **SPARSE_CONSTRAINTS,
    "selector": [*SPARSE_CONSTRAINTS["selector"], None],
    "sites": [StrOptions({"adf", "ep"})],
    "learn_noise": ["boolean", "array-like"],
    "unlabeled": "no_validation",
}
LATENT_CONSTRAINTS = {
    **_OF_TASKS,
    "n_components": [_COUNT],
    "kernel": [Kernel, None],
    "ard": ["boolean"],
    "back_constraint": [StrOptions({"mlp"}), None],
    "n_active": [_COUNT, None],
    "hidden_units": [_COUNT],
    "n_observed": [_COUNT, None],
    "label_weight": [_NOT_NEGATIVE],
    "weight_decay": [_NOT_NEGATIVE],
    "max_iter": [_COUNT],
    "tol": [_NOT_NEGATIVE],
    "n_init": [_COUNT],
    "transfer": [StrOptions({"blend", "latent"})],
}


def generator_from(random_state: Any) -> np.random.Generator:
    """The one generator of a fit, from scikit-learn's kinds of `random_state`."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))


def as_covariance(given: Any, size: int) -> FloatArray:
    """The parameter `prior_cov`, a number or a matrix, as a covariance (size, size)."""
    given = np.asarray(given, dtype=np.float64)
    cov = given * np.eye(size) if given.ndim == 0 else given
    if cov.shape != (size, size) or not np.isfinite(cov).all():
        raise KernelError(
            f"prior_cov has shape {given.shape}; the kernel has {size} free parameters. Give "
            "one finite number, or a square matrix of that size."
        )
    if not np.allclose(cov, cov.T) or np.linalg.eigvalsh(cov).min(initial=0.0) < -1e-12:
        raise KernelError("prior_cov is not a covariance: it must be symmetric, no eigenvalue negative.")
    return cov
