"""What inference asks of a noise model p(y | f): the contract, and what all models share.

A noise model is a frozen dataclass. A field is a float, or an array with one entry per row.
Inference only ever meets the members of `NoiseModel`; a new noise model is a new file and nothing
else.

Notation, as in Lawrence, Platt & Jordan 2005, section 2.2: f ~ N(mean, var) is the latent value of
a row before its target is seen, Z = E[p(y | f)], and

    g = d log Z / d mean,    nu = g**2 - 2 d log Z / d var.

All the models here are step-like functions convolved with a Gaussian, p(y | f) = E[s_y(f + e)] with
e ~ N(0, v). Hence p solves the heat equation, d p / d v = 1/2 d**2 p / d f**2, from which

* d log Z / d v = d log Z / d var = (g**2 - nu) / 2;
* independent Gaussian noise on f (white noise of the kernel, variance outside a basis) is taken in
  exactly by adding its variance to `var`.

A model may also have `precision_bound(y, mean_low, mean_high, var_low, var_high)`: a bound of
nu var / var_high while mean and var stay in the box. Selection speculates only where it does.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from gleangp._typing import FloatArray

Floats = float | FloatArray  # one value, or one per row
Model = TypeVar("Model", bound=Any)
Rows = Any  # whatever indexes the first axis of an array: integers, a mask, a slice


class NoiseModel(Protocol):
    """p(y | f), elementwise over arrays that broadcast."""

    log_concave: ClassVar[bool]
    """Whether p(y | f) is log-concave in f, so that nu is never negative."""

    precision_depends_on_mean: ClassVar[bool]
    """False for Gaussian noise: nu then depends on the variance alone, and gains can only fall."""

    transforms: ClassVar[Mapping[str, str]]
    """Parameter name -> "identity", "log" or "logit": the scale on which it is unbounded."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameter name -> value. Which of them to learn is the caller's choice."""

    def log_prob(self, y: Floats, f: Floats) -> FloatArray:
        """log p(y | f): the definition of the model."""

    def log_partition(
        self, y: Floats, mean: Floats, var: Floats
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log_z = log E[p(y | f)] for f ~ N(mean, var), with g and nu.

        nu is the true value. Where the model is not log-concave it may be negative; what to do
        then is the policy of the caller.
        """

    def precision(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        """nu alone: what selection scores with."""

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        """Parameter name -> d log_z / d parameter for every row, in natural units.

        A parameter that is a vector (not one entry per row) gets one column per entry.
        """

    def at(self, rows: Rows) -> Self:
        """The model of those rows: per-row fields are indexed, the others kept."""


def field_values(noise: Any) -> dict[str, Any]:
    """The fields of a noise model by name; they are its parameters."""
    return {field.name: getattr(noise, field.name) for field in fields(noise)}


def same_model(noise: Any, other: object) -> bool:
    """Whether two noise models are of one class and have equal fields."""
    if type(noise) is not type(other):
        return False
    theirs = field_values(other)
    return all(np.array_equal(value, theirs[name]) for name, value in field_values(noise).items())


def restrict(noise: Model, rows: Rows, shared: tuple[str, ...] = ()) -> Model:
    """`noise` at those rows. Fields named in `shared` are arrays that do not run over rows."""
    indexed = {
        name: value[rows]
        for name, value in field_values(noise).items()
        if name not in shared and np.ndim(value) > 0
    }
    return replace(noise, **indexed) if indexed else noise
