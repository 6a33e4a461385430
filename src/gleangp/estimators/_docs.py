"""Descriptions of parameters and attributes that several estimators have, written once.

A line of a docstring that consists of names in braces, such as ``{X, tasks}``, stands for the descriptions of
these parameters. `documented` puts them in when the class is made, so that `help` and the site show them.
"""

import re
from collections.abc import Callable
from inspect import cleandoc, isfunction
from textwrap import indent as indent_lines
from typing import TypeVar

__all__ = ["LATENT", "SPARSE", "TASK_COLUMN", "documented"]

_OF_METHODS = """
X : frame or array-like of shape (n, p)
    Inputs.
tasks : array-like of shape (n,), default=None
    Task of each row, if the model was fitted with tasks and names no column for them.
exposure, trials : array-like of shape (n,), default=None
    Of the rows, for counts; None: 1.
"""

_OF_FIT = """
X : frame or array-like of shape (n, p)
    Inputs, with the task column if `task` names one.
tasks : array-like of shape (n,), default=None
    Task of each row. None, and no task column: one task.
"""

_OF_ADD_TASK = """
X : frame or array-like of shape (m, p)
    Its rows, with or without the task column. None or no rows: the task is predicted from the prior.
task : str, int or bool
    Its name.
"""

_OF_ESTIMATORS = """
task : str or int, default=None
    Name or position of the column of X that holds the task.
new_tasks : {"prior", "error"}, default="prior"
    How rows of tasks that were not seen are predicted. "prior": from what the tasks share, as after
    `add_task(None, None, task)`, with a `NewTaskWarning`. "error": they raise a `TaskError`.
verbose : int, default=0
    If positive, print the result of every stage of learning.
tasks_ : ndarray or None
    Names of the tasks.
columns_ : tuple of ColumnEncoding, or None
    If X was a frame: name, kind, encoding and number of missing cells of every input column.
n_features_in_ : int
    Number of features in `fit`, the task column included.
feature_names_in_ : ndarray
    Names of the features, if all are strings.
"""

SPARSE = """
coupling : {"auto", "kernel", "function", "coregion"} or object, default="auto"
    What tasks share. "function": a common function, and for each task an offset, slopes and an own function,
    whose sizes are learnt. "kernel": the parameters of the kernel alone. "coregion": tasks are mixtures of
    shared functions with learnt weights (`CoregionCoupling(rank=...)`). "auto": "function", or in regression
    "coregion" if it has more evidence; "kernel" if the posterior is "active". `coupling_` has the choice.
    Ignored with one task.
n_active : int or float, default=None
    Number of basis points, or their share of the rows. None: all rows if there are at most 2000, else 400.
    For `posterior="active"`: the number of active points over all tasks; None: at most 1000 per task, of a
    classifier 400.
selector : {"residual", "entropy", "information", "random", "graph"} or object, default=None
    How points are selected. None: `ResidualSelector(weight="variance")`, which does not use the labels, so
    wrong labels have no effect on it; "entropy" for `posterior="active"`.
posterior : {"local", "active"}, default="local"
    "local": the covariance is exact within neighbourhoods of rows and goes through the basis between them. A
    new row is predicted from the basis and the rows near it. "active": predictions use the active points only
    (the method of LP04). With `invariances` it is always "active".
sites : {"adf", "ep"}, default="adf"
    For `posterior="active"`: sites from filtering alone, or refined by expectation propagation.
optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
    If None, the kernel parameters and the noise are not learnt.
n_rounds : int, default=5
    For `posterior="active"`: maximum number of rounds of selecting points and learning the kernel.
n_restarts : int, default=0
    Further starts of the optimiser, drawn within the bounds of the parameters.
priors : dict, default=None
    Priors by name of the hyperparameter (as in `kernel_.hyperparameters`, or such as "noise__variance"), each
    like `gleangp.models.priors.LogNormal`. They replace those of the default model.
invariances : callable or list of callables, default=None
    Functions that take rows, without the task column, and return as many transformed rows of the same target,
    such as `translations((16, 16))`. Transformed copies of the active points (virtual informative vectors;
    LPJ05, section 6) compete for the active set.
random_state : int, RandomState, Generator or None, default=None
    For selectors that sample and for restarts.
coupling_ : Choice
    The coupling of the model (`.name`), with `.reason` and `.scores`.
decisions_ : list of Decision
    Every choice that was made in the fit, as numbers and in words.
task_correlation_ : ndarray of shape (M, M)
    Correlation of the tasks' functions under the learnt prior; the identity for "kernel".
active_ : ndarray of shape (d,)
    Basis or active points as row numbers of the training set, in order of inclusion. Rows that are added
    later are numbered on from its end.
active_gain_ : ndarray of shape (d,)
    Score of each point when it was included, in nats (`GraphSelector`: its degree).
active_virtual_ : ndarray of shape (d,)
    Number of the invariance that made the point from the row in `active_`; -1 for the row itself.
site_mean_, site_precision_ : ndarray of shape (d,)
    Gaussian approximations of the noise at the active points.
selection_objective_ : float or None
    Objective of the selector after `fit`; None for selectors without one. `GraphSelector`: the mean over
    other rows of the strongest link to a selected one.
"""

LATENT = """
n_components : int, default=2
    Dimensions of the latent space.
kernel : sklearn.gaussian_process.kernels.Kernel, default=None
    Covariance over the latent space from which every mapping of the joint objective starts; each learns its
    own parameters. With ``transfer="blend"`` labels have other kernels: `label_kernels_`. None:
    `C * RBF + C`. White noise is added to the mappings with Gaussian noise if it has none.
ard : bool, default=False
    One length scale per latent dimension in the default kernel; see `relevance_`.
back_constraint : {"mlp"} or None, default="mlp"
    "mlp": a perceptron with one hidden layer gives the positions. None: positions are optimised freely, and
    new rows are placed by a short search from the nearest training rows.
n_active : int, default=None
    Number of informative rows whose positions are the basis of every mapping. All rows contribute through it.
    Training costs O(n n_active^2). None: all rows up to 2000, else 200.
hidden_units : int, default=50
    Of the perceptron.
n_observed : int, default=None
    Leading principal components of the features that the latent space explains and the perceptron sees; None
    means 100. All of them are kept where there are fewer features.
label_weight : float, default=1.0
    Weight of the labels against the observations; 0 gives a latent space without labels.
weight_decay : float, default=20.0
    Penalty on the perceptron's weights. Urtasun, Quattoni & Darrell (2007) are reproduced with 5.
max_iter : int, default=300
    Maximum number of iterations of the optimiser.
tol : float, default=3e-4
    Learning stops when an iteration changes the objective by less than this many nats per observed number
    (rows times components of the features), or by less than this share of it if that is more.
n_init : int, default=1
    Starts with other hidden units; the best objective is kept.
transfer : {"blend", "latent"}, default="blend"
    "blend": the function of a task is the sum of a function of the latent positions and one of the features.
    The variance of each part is learnt from the tasks of `fit`, placed in spaces that are learnt without
    them. If this does not predict them better from few labels, labels depend on the features alone; see
    `transfer_report`. "latent": a function of the latent positions alone, as in Urtasun, Quattoni & Darrell
    (2007); `fit` takes about half the time.
random_state : int, RandomState, Generator or None, default=None
    Draws the hidden units.
embedding_ : ndarray of shape (n, n_components)
    Latent positions of the training rows.
basis_ : ndarray of shape (d,)
    Training rows whose positions are the basis of the mappings: all rows, or `n_active` of them.
kernel_ : Kernel
    Of the map to the features, with its learnt parameters.
label_kernels_ : list of Kernel
    Of the mapping to the labels, or to the standardised targets, of every task in the order of `tasks_`.
relevance_ : ndarray of shape (n_components,)
    Length scales that the training rows span in each dimension, in the mapping that uses it most. A dimension
    far below the others is not used.
objective_ : float
    What was minimised: minus the log posterior, up to a constant.
n_iter_ : int
    Iterations of the best start.
"""

TASK_COLUMN = """
X : DataFrame or array-like of shape (n, p)
    Inputs with the task column.
**params : dict
    Handed on, for example `return_std=True` or `sample_weight`.
"""

_PLACE = re.compile(r"^( *)\{([^{}\"]+)\}$", re.MULTILINE)
_Class = TypeVar("_Class", bound=type)


def documented(own: str = "") -> Callable[[_Class], _Class]:
    """A decorator of a class that puts descriptions into its docstring and into those of its methods.

    `own` are descriptions of its family of estimators.

    Examples
    --------
    >>> @documented()
    ... class Model:
    ...     def predict(self, X):
    ...         \"\"\"Mean of the targets.
    ...
    ...         Parameters
    ...         ----------
    ...         {X}
    ...         \"\"\"
    >>> print(Model.predict.__doc__)
    Mean of the targets.
    <BLANKLINE>
    Parameters
    ----------
    X : frame or array-like of shape (n, p)
        Inputs.
    """
    known = _entries(_OF_METHODS + _OF_ESTIMATORS + own)
    of_method = {"fit": _entries(_OF_FIT + own), "add_task": _entries(_OF_ADD_TASK + own)}

    def decorate(cls: _Class) -> _Class:
        for name, part in {"": cls, **vars(cls)}.items():
            part = getattr(part, "fn", part)  # of scikit-learn's available_if
            if (part is cls or isfunction(part)) and part.__doc__:
                part.__doc__ = _filled(part.__doc__, known | of_method.get(name, {}))
        return cls

    return decorate


def _entries(text: str) -> dict[str, str]:
    """Name of a parameter (what stands before " : ") -> its description."""
    parts = re.split(r"\n+(?=\S)", text.strip())
    return {part.split(" : ")[0]: part for part in parts}


def _filled(doc: str, known: dict[str, str]) -> str:
    def fill(place: re.Match[str]) -> str:
        indent, names = place.groups()
        wanted = [names] if names in known else names.split(", ")
        return indent_lines("\n".join(known[name] for name in wanted), indent)

    return _PLACE.sub(fill, cleandoc(doc))
