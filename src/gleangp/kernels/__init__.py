"""Kernels: scikit-learn's objects as the language, and what inference needs added from outside.

`evaluate` gives the matrices of a kernel, one or a stack of them, with contracted derivatives, and separates
the variance that belongs to a row from the variance of the function; `rules` holds the rules of
scikit-learn's kernels; `arcsine` and `scaled_inputs` are kernels that scikit-learn lacks.
"""

from gleangp.kernels import rules  # noqa: F401  (importing it registers rules)
from gleangp.kernels.arcsine import ArcSine
from gleangp.kernels.evaluate import (
    has_white,
    kernel_columns,
    kernel_input_vjp,
    kernel_vjp,
    signal_diag,
    white_diag,
)
from gleangp.kernels.scaled_inputs import ScaledInputs

__all__ = [
    "ArcSine",
    "ScaledInputs",
    "has_white",
    "kernel_columns",
    "kernel_input_vjp",
    "kernel_vjp",
    "signal_diag",
    "white_diag",
]
