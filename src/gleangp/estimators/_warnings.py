"""Warnings about a fit that all estimators have."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning


def warn_about_fit(name: str, model: Any, stopped: str, remedy: str) -> None:
    """Warn if the model did not converge, or if a matrix was singular.

    `stopped` says when the estimator stopped and what to do, `remedy` what to do about a singular matrix.
    """
    if not model.converged:
        warnings.warn(f"{name} stopped {stopped}", ConvergenceWarning, stacklevel=5)
    if model.jitter > 0.0:
        warnings.warn(
            f"{name}: a covariance matrix was singular in floating point; {model.jitter:.3g} was added to "
            f"its diagonal. {remedy}",
            RuntimeWarning,
            stacklevel=5,
        )
