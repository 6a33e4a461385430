"""The errors and warnings gleangp raises on its own account.

Every error is a `GleanError`. Errors about input are also `ValueError`, so code that handles scikit-learn's
errors handles these too. Predicting before `fit` raises scikit-learn's own `NotFittedError`. The warnings are
`UserWarning`.
"""

import sys
import warnings

from numpy.linalg import LinAlgError

__all__ = """
ClusterError ConstraintError DatasetError GleanError GraphError InputError InputWarning InvarianceError
KernelError LabelError ModelFileError NewTaskWarning NotPositiveDefiniteError TaskError
""".split()


class GleanError(Exception):
    """Any error that gleangp raises on its own account."""


class TaskError(GleanError, ValueError):
    """Tasks are missing, unknown, or given in two ways at once."""


class InputError(GleanError, ValueError):
    """A column of a table cannot be used as an input."""


class LabelError(GleanError, ValueError):
    """The targets cannot be learnt from."""


class KernelError(GleanError, ValueError):
    """The kernel cannot be used as asked."""


class NotPositiveDefiniteError(KernelError, LinAlgError):
    """A matrix that should be positive definite has no Cholesky factor."""


class ConstraintError(GleanError, ValueError):
    """Order constraints name rows that are not there, or that cannot be compared."""


class GraphError(GleanError, ValueError):
    """The rows, or the settings, do not give a graph to choose points from."""


class InvarianceError(GleanError, ValueError):
    """The invariances do not fit the inputs."""


class ClusterError(GleanError, RuntimeError):
    """The Dask cluster is not there, or its workers cannot do what they must."""


class DatasetError(GleanError, OSError, ValueError):
    """A data set is not there, could not be downloaded, or is not what it should be."""


class ModelFileError(GleanError, ValueError):
    """The file is not a model that this version of gleangp can read."""


class NewTaskWarning(UserWarning):
    """Rows of tasks that the model has not seen are predicted from what its tasks share."""


class InputWarning(UserWarning):
    """A table has categories or gaps that `fit` did not see, or numbers among the categories of a column."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user: the first one outside of the libraries."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in ("gleangp", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
