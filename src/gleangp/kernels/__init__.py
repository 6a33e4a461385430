"""Kernels: scikit-learn's objects as the language, and what inference needs added from outside.

`evaluate` gives the matrices of a kernel, one or a stack of them, with contracted derivatives, for the
kernels that have a rule and for all others; `rules` holds the rules of scikit-learn's;
`parameters` moves a kernel from theta to theta; `white` separates the variance that belongs to a row from the
variance of the function; `arcsine` and `scaled_inputs` are kernels scikit-learn lacks (Lawrence, Platt &
Jordan 2005, "Extensions of the informative vector machine", appendix B).
"""

from gleangp.kernels import rules  # noqa: F401  (importing it registers rules)
from gleangp.kernels.arcsine import ArcSine
from gleangp.kernels.evaluate import kernel_columns, kernel_input_vjp, kernel_vjp
from gleangp.kernels.scaled_inputs import ScaledInputs
from gleangp.kernels.white import has_white, signal_diag, white_diag

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
