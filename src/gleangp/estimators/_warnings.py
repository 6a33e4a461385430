"""Warnings about a fit that all estimators have."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning


def level_of_caller() -> int:
    """The `stacklevel` at which a warning names the line of the user: the first outside of the libraries."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in ("gleangp", "sklearn"):
        level, frame = level + 1, frame.f_back
    return level


def warn_about_fit(name: str, model: Any, stopped: str, remedy: str) -> None:
    """Warn if the model did not converge, or if a matrix was singular.

    `stopped` says when the estimator stopped and what to do, `remedy` what to do about a singular matrix.
    """
    if not model.converged:
        warnings.warn(f"{name} stopped {stopped}", ConvergenceWarning, stacklevel=level_of_caller())
    if model.jitter > 0.0:
        warnings.warn(
            f"{name}: a covariance matrix was singular in floating point; {model.jitter:.3g} was added to "
            f"its diagonal. {remedy}",
            RuntimeWarning,
            stacklevel=level_of_caller(),
        )
