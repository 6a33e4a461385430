"""Inputs as the kernels see them: in units of the training rows, through a learnt monotone warping.

A numeric column x is mapped to u in (0, 1) by its range and warped by Kumaraswamy's distribution function,

    v(u) = 1 - (1 - u^a)^b,

the identity at a = b = 1, then standardised over the training rows. Outside the training range v goes on as a
straight line, as steep as it is on average over the range: rows outside are neither nearer nor farther than
without the warping. At its ends v can be ten times as steep or level, by chance if the column means little. A
column with two values is an indicator: it becomes 0 / 1 less its mean, and is not warped.

A few wild values would leave nothing of the range to all others. Where they make up the deviation of a
column, values are cut off at some distance from the middle nine tenths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gleangp._state import LARGEST, check_arrays, check_codes
from gleangp._typing import FloatArray, IntArray
from gleangp.models.defaults import UNITS
from gleangp.numerics.linalg import deviation

_MARGIN = 0.02  # of the range, kept free at both ends, where the slope of v can be zero or infinite
_MOST_REFERENCE = 2000  # rows from which the units of a warped column are computed


class Warped(NamedTuple):
    """Warped rows, and the gradient of the warping parameters from dL/dvalue."""

    value: FloatArray  # (n, p)
    vjp: object  # dL/dvalue (n, p) -> (2 c,)


@dataclass(frozen=True, eq=False)
class InputMap:
    """Units and warping of the columns; the parameters of the warping are given to `__call__`."""

    center: FloatArray  # (p,)
    scale: FloatArray  # (p,)
    warped: IntArray  # (c,) columns that are warped
    low: FloatArray  # (c,)
    width: FloatArray  # (c,)
    reference: FloatArray  # (r, c) training rows from which the units of warped columns are computed
    floor: FloatArray  # (p,) smaller values count as this; -inf without wild values
    ceiling: FloatArray  # (p,) larger values count as this

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        sizes = check_arrays(
            self,
            center="p",
            scale="p >0",
            warped="c",
            low="c",
            width="c >0",
            reference="r c" if len(self.warped) else "r s",
            floor="p any",
            ceiling="p any",
        )
        check_codes("InputMap.warped", self.warped, sizes["p"])
        if not (self.floor <= self.ceiling).all() or (len(self.warped) and not len(self.reference)):
            raise ValueError("InputMap has limits that are none, or no rows to take its units from.")

    @property
    def n_parameters(self) -> int:
        """log a and log b of every warped column."""
        return 2 * len(self.warped)

    def __call__(self, X: FloatArray, parameters: FloatArray) -> FloatArray:
        """The rows X (n, p) as the kernels see them; outside the training range too."""
        X = np.clip(X, self.floor, self.ceiling)
        W = (X - self.center) / self.scale
        if len(self.warped):
            v = self._v(X[:, self.warped], parameters)
            mean, spread = self._units(parameters)
            W[:, self.warped] = (v - mean) / spread
        return np.clip(W, -LARGEST, LARGEST)

    def linearize(self, X: FloatArray) -> Callable[[FloatArray], Warped]:
        """From the parameters to the training rows X (n, p), with the gradient of the parameters.

        What does not depend on the parameters is computed once: a search asks for many of them.
        """
        X = np.clip(X, self.floor, self.ceiling)
        unwarped = (X - self.center) / self.scale
        if not len(self.warped):
            return lambda parameters: Warped(unwarped, lambda dW: np.zeros(0))
        log_rows, log_reference = (np.log(self._u(x)) for x in (X[:, self.warped], self.reference))

        def at(parameters: FloatArray) -> Warped:
            v, dv_da, dv_db = _kumaraswamy(log_rows, parameters)
            r, dr_da, dr_db = _kumaraswamy(log_reference, parameters)
            mean, spread = r.mean(0), _spread(r)
            w, W = (v - mean) / spread, unwarped.copy()
            W[:, self.warped] = w

            def vjp(dW):
                dv = dW[:, self.warped] / spread
                # The units move too: d mean and d spread go to the reference rows.
                dr = -(dv.sum(0) + (dv * w).sum(0) * (r - mean) / spread) / len(r)
                of_a = (dv * dv_da).sum(0) + (dr * dr_da).sum(0)
                of_b = (dv * dv_db).sum(0) + (dr * dr_db).sum(0)
                return np.concatenate([of_a, of_b])

            return Warped(W, vjp)

        return at

    def inverse(self, W: FloatArray, parameters: FloatArray) -> FloatArray:
        """Training rows (n, p) in their own units, from what the kernels see of them."""
        X = W * self.scale + self.center
        if len(self.warped):
            mean, deviation = self._units(parameters)
            a, b = np.exp(parameters.reshape(2, -1))
            v = W[:, self.warped] * deviation + mean
            u = (1.0 - np.clip(1.0 - v, 0.0, 1.0) ** (1.0 / b)) ** (1.0 / a)
            X[:, self.warped] = self.low + self.width * (u * (1.0 + 2.0 * _MARGIN) - _MARGIN)
        return X

    def _units(self, parameters):
        r = _kumaraswamy(np.log(self._u(self.reference)), parameters)[0]
        return r.mean(0), _spread(r)

    def _u(self, X):
        return (np.clip((X - self.low) / self.width, 0.0, 1.0) + _MARGIN) / (1.0 + 2.0 * _MARGIN)

    def _v(self, X, parameters):
        """v, continued as a straight line beyond the training range."""
        u = self._u(X)
        ends = _kumaraswamy(np.log(self._u(np.vstack([self.low, self.low + self.width]))), parameters)[0]
        beyond = (X - self.low) / self.width
        beyond = beyond - np.clip(beyond, 0.0, 1.0)
        return _kumaraswamy(np.log(u), parameters)[0] + (ends[1] - ends[0]) * beyond


def map_inputs(X: FloatArray) -> InputMap:
    """The map for training rows X (n, p)."""
    floor, ceiling = _limits(X)
    X = np.clip(X, floor, ceiling)
    low, high = X.min(0), X.max(0)
    two_values = np.all((X == low) | (X == high), axis=0)
    scale = np.where(two_values, high - low, deviation(X))
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(low), np.abs(high)), scale, 1.0)
    warped = np.flatnonzero(~two_values)
    step = max(1, -(-len(X) // _MOST_REFERENCE))
    width = np.maximum(high - low, 1e-300)[warped]
    reference = X[::step][:, warped]
    return InputMap(X.mean(0), scale, warped, low[warped], width, reference, floor, ceiling)


def identity_map(n_features: int) -> InputMap:
    """Inputs as they are."""
    none, ones = np.zeros(0), np.ones(n_features)
    no_columns = np.zeros(0, dtype=np.intp)
    limits = -np.inf * ones, np.inf * ones
    return InputMap(0.0 * ones, ones, no_columns, none, none, np.zeros((0, 0)), *limits)


def _limits(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where values of each column are cut off."""
    low, high = np.quantile(X, [0.05, 0.95], axis=0)
    middle = (high - low) / 3.29  # of a normal column: its deviation
    wild = (middle > 0.0) & (deviation(X) > UNITS.wild * middle)
    reach = np.where(wild, UNITS.wild * middle, np.inf)
    return low - reach, high + reach


def _kumaraswamy(log_u, parameters):
    """v and its derivatives in log a and log b, each (n, c)."""
    a, b = np.exp(parameters.reshape(2, -1))
    a_log_u = a * log_u
    power = np.exp(a_log_u)
    log_rest = b * np.log1p(-power)
    rest = np.exp(log_rest)
    d_log_a = b * rest * power * a_log_u / (1.0 - power)  # u stays off 0 and 1
    return 1.0 - rest, d_log_a, -log_rest * rest


def _spread(r):
    return np.maximum(r.std(0), 1e-9)
