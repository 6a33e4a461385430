"""Back-constraints: a perceptron with one hidden layer maps observations to latent positions.

Urtasun, Quattoni & Darrell 2007, section 2.2: x = V' sigmoid(U' y + b) + c, so that a new row's
position needs no optimisation. Departures: eq. 7 prints the output weight outside of the sum over
hidden units, where it belongs inside; both layers have offsets, and both are learnt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from gleangp._state import check_arrays
from gleangp._typing import FloatArray
from gleangp.numerics.linalg import cholesky, solve_cholesky

# The hidden layer at the start: slopes of this size, offsets of one, which spreads the sigmoids over
# inputs whose leading component has unit deviation.
_SLOPE = 2.0
_RIDGE = 1e-4  # of the start's output layer, per row


@dataclass(frozen=True, slots=True, eq=False)
class Perceptron:
    """Weights of the two layers."""

    hidden: FloatArray  # (k, h) U
    hidden_offset: FloatArray  # (h,) b
    output: FloatArray  # (h, q) V
    output_offset: FloatArray  # (q,) c

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, hidden="k h", hidden_offset="h", output="h q", output_offset="q")

    def activations(self, inputs: FloatArray) -> FloatArray:
        """(n, h) outputs of the hidden units."""
        return expit(inputs @ self.hidden + self.hidden_offset)

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """(n, q) latent positions of inputs (n, k)."""
        return self.activations(inputs) @ self.output + self.output_offset

    def pack(self) -> FloatArray:
        """All weights in one vector."""
        parts = (self.hidden, self.hidden_offset, self.output, self.output_offset)
        return np.concatenate([part.ravel() for part in parts])

    def unpack(self, weights: FloatArray) -> Perceptron:
        """A perceptron of this shape with other weights."""
        shapes = (self.hidden.shape, self.hidden_offset.shape, self.output.shape, self.output_offset.shape)
        edges = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        parts = np.split(weights, edges)
        return Perceptron(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))

    def backward(self, inputs: FloatArray, activations: FloatArray, dL_dX: FloatArray) -> FloatArray:
        """dL/dweights, packed, from dL/dpositions (n, q)."""
        dL_dsum = (dL_dX @ self.output.T) * activations * (1.0 - activations)
        parts = (inputs.T @ dL_dsum, dL_dsum.sum(axis=0), activations.T @ dL_dX, dL_dX.sum(axis=0))
        return np.concatenate([part.ravel() for part in parts])


def start_perceptron(
    inputs: FloatArray, positions: FloatArray, n_hidden: int, rng: np.random.Generator
) -> Perceptron:
    """Random hidden units, and the output layer that brings rows nearest to `positions` (n, q)."""
    n, k = inputs.shape
    hidden = rng.normal(size=(k, n_hidden)) * (_SLOPE / np.sqrt(k))
    hidden_offset = rng.normal(size=n_hidden)
    A = np.column_stack([expit(inputs @ hidden + hidden_offset), np.ones(n)])
    normal = A.T @ A
    normal.flat[:: n_hidden + 2] += _RIDGE * n
    output = solve_cholesky(cholesky(normal)[0], A.T @ positions)
    return Perceptron(hidden, hidden_offset, output[:-1], output[-1])
