"""Constructor parameters that several estimators have: types, defaults, what is allowed, what they mean.

An estimator is a dataclass of its parameters: the constructor stores what it is given, and `fit` checks it
against `_parameter_constraints`, as scikit-learn asks for. Estimators inherit the descriptions (`_docs`).
"""

from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel
from sklearn.utils import check_random_state

from gleangp._compat import HasMethods, Interval, StrOptions
from gleangp.estimators._docs import describe_parameters
from gleangp.exceptions import KernelError
from gleangp.selection.selectors import SELECTORS

_T = TypeVar("_T")

COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
_COUPLINGS = {"auto", "kernel", "function", "coregion"}
SELECTOR = [StrOptions(set(SELECTORS)), HasMethods(["select"])]


def given(allowed: Any, *, default: Any, kw_only: bool = True) -> Any:
    """A parameter: what scikit-learn's validation allows, and its default."""
    return field(default=default, kw_only=kw_only, metadata={"allowed": allowed})


def check_count(name: str, value: Any) -> int:
    """How many of something a method shall give, which is at least one."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r}; a whole number from 1 on is expected, such as {name}=3.")
    return int(value)


def check_probabilities(name: str, values: Any, *, single: bool = False) -> np.ndarray:
    """Probabilities between 0 and 1 as an array with one axis: one, or one and more."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # text, or lists of different lengths
        found = np.zeros(0)
    if found.ndim > 1 - single or not found.size or not ((found > 0.0) & (found < 1.0)).all():
        wanted = "one probability between 0 and 1, such as 0.95"
        wanted = wanted if single else f"{wanted}, or a list of them"
        raise ValueError(f"{name}={values!r}; {wanted}, is expected.")
    return np.atleast_1d(found)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(given,))
def parameters(cls: type[_T]) -> type[_T]:
    """A constructor from the declared parameters of a class and of those bases that have this decorator."""
    made: Any = dataclass(eq=False, repr=False, match_args=False)(cls)
    made._parameter_constraints = {f.name: f.metadata["allowed"] for f in fields(made)}
    describe_parameters(made)
    return made


@parameters
class TaskParameters:
    """Of all estimators.

    Parameters
    ----------
    task : str or int, default=None
        Name or position of the column of X that holds the task.
    new_tasks : {"prior", "error"}, default="prior"
        Rows of tasks that were not seen: "prior" predicts them from what the tasks share, as after
        `add_task(None, None, task)`, with a `NewTaskWarning`; "error" raises a `TaskError`.
    random_state : int, RandomState, Generator or None, default=None
        For all that is drawn.
    verbose : int, default=0
        If positive, print the result of every stage of learning.

    Attributes
    ----------
    tasks_ : ndarray or None
        Names of the tasks. With several outputs: the names or numbers of the columns of `y`.
    columns_ : tuple of ColumnEncoding, or None
        If X was a frame: name, kind, encoding and number of missing cells of every input column.
    n_features_in_ : int
        Number of features in `fit`, the task column included.
    feature_names_in_ : ndarray
        Names of the features, if all are strings.
    """

    task: str | int | None = given([str, Integral, None], default=None)
    new_tasks: str = given([StrOptions({"prior", "error"})], default="prior")
    random_state: Any = given(["random_state", np.random.Generator], default=None)
    verbose: int = given(["verbose"], default=0)


@parameters
class PartsParameters:
    """Of estimators that select rows.

    Parameters
    ----------
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        If None, the kernel parameters and the noise are not learnt.
    n_jobs : int, default=None
        Processes for the selection of many tasks.
    """

    kernel: Any = given([Kernel, None], default=None, kw_only=False)
    n_active: int | float | None = given([COUNT, Interval(Real, 0, 1, closed="right"), None], default=None)
    selector: Any = given(SELECTOR, default="residual")
    optimizer: str | None = given([StrOptions({"l-bfgs-b"}), None], default="l-bfgs-b")
    n_rounds: int = given([COUNT], default=5)
    n_jobs: int | None = given([Integral, None], default=None)

    def _chosen_selector(self) -> Any:
        return SELECTORS[self.selector]() if isinstance(self.selector, str) else self.selector

    def _given_kernel(self, which: int = 0, n_models: int = 1) -> Kernel | None:
        """A copy of the kernel that was given, of one of the binary problems; None: the default one."""
        if not isinstance(self.kernel, CompoundKernel):
            return None if self.kernel is None else clone(self.kernel)
        kernels = self.kernel.kernels
        if n_models == 1 or len(kernels) != n_models:
            raise KernelError(
                f"kernel is a CompoundKernel, which holds {len(kernels)} kernels side by side, and "
                f"{n_models} {'is' if n_models == 1 else 'are'} needed. Give one of them; a sum or "
                "product of kernels is one. A classifier of more than two classes takes one for each."
            )
        return clone(kernels[which])


@parameters
class SparseParameters(PartsParameters):
    """Of the sparse estimators.

    Parameters
    ----------
    coupling : {"auto", "kernel", "function", "coregion"} or object, default="auto"
        What tasks share. "function": a common function, beside an offset, slopes and an own function of each.
        "kernel": the parameters of the kernel alone. "coregion": tasks mix shared functions
        (`CoregionCoupling(rank=...)`). "auto": "function", or in regression "coregion" if it has more
        evidence; "kernel" for `posterior="active"`. `coupling_` has the choice.
    n_active : int or float, default=None
        Number of basis points, or their share of the rows. None: all of up to 2000 rows (labels: 1000), else
        400. For `posterior="active"`: active points of all tasks; None: at most 1000 per task, of a
        classifier 400.
    posterior : {"local", "active"}, default="local"
        "local": the covariance is exact within neighbourhoods of rows, and uses the basis between them.
        "active": predictions use the active points only (the method of LP04), as always with `invariances`.
    n_rounds : int, default=5
        For `posterior="active"`: maximum number of rounds of selecting points and learning the kernel.
    n_restarts : int, default=0
        Further starts of the optimiser, drawn within the bounds of the parameters.
    priors : dict, default=None
        Hyperparameter (as in `kernel_.hyperparameters`, or such as "noise__variance") -> prior, such as a
        `gleangp.models.priors.LogNormal`. They replace those of the default model.
    invariances : callable or list of callables, default=None
        Functions from rows to as many rows of the same targets, such as `translations((16, 16))`. Copies that
        they make of active points (virtual informative vectors; LPJ05, section 6) compete for the active set.

    Attributes
    ----------
    kernel_ : Kernel
        With the learnt parameters.
    coupling_ : Choice
        The coupling of the model (`.name`), with `.reason` and `.scores`.
    decisions_ : list of Decision
        Every choice that was made in the fit, as numbers and in words.
    task_correlation_ : ndarray of shape (M, M)
        Correlation of the tasks' functions under the learnt prior; the identity for "kernel".
    active_ : ndarray of shape (d,)
        Basis or active points as row numbers of `fit`, in order of inclusion. Rows that are added later are
        numbered on from its end. Of more than two classes this and the next are lists.
    active_gain_ : ndarray of shape (d,)
        Score of each point when it was included, in nats (`GraphSelector`: its degree).
    active_virtual_ : ndarray of shape (d,)
        Number of the invariance that made the point from the row in `active_`; -1 for the row itself.
    site_mean_, site_precision_ : ndarray of shape (d,)
        Gaussian approximations of the noise at the active points.
    log_evidence_, n_rounds_ : float, int
        Log evidence in units of the standardised targets (the sum over classes); rounds of learning.
    selection_objective_ : float or None
        Of the selector. `GraphSelector`: the mean over rows of the strongest link to a selected one.
    """

    coupling: Any = given([StrOptions(_COUPLINGS), HasMethods(["terms"])], default="auto")
    # "projected" is of version 0.1
    posterior: str = given([StrOptions({"local", "active", "projected"})], default="local")
    n_restarts: int = given([Interval(Integral, 0, None, closed="left")], default=0)
    priors: dict[str, Any] | None = given([dict, None], default=None)
    invariances: Any = given([callable, "array-like", None], default=None)


def generator_from(random_state: Any) -> np.random.Generator:
    """The one generator of a fit, from scikit-learn's kinds of `random_state`."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))
