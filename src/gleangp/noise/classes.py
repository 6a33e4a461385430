"""Labels: two classes, also with wrong labels, and ordered categories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr, log_softmax, logsumexp, ndtri_exp, softmax

from gleangp._typing import FloatArray, IntArray
from gleangp.noise.base import Floats, Mixture, Noise, NoiseModel, Three, log_shares
from gleangp.numerics.special import log_diff_ndtr_derivatives, log_expit_derivatives, log_ndtr_derivatives

# A variance beside which the noise of `Logit` (logistic, of variance pi^2 / 3) has the effect of normal noise
# to 1e-9, and an integrand with a step that is too narrow for nodes.
_WIDE = 1e6
# Powers of probabilities over which `weights_of_powers` averages: middles of equal parts of 0 to 1.
N_POWERS = 20
_POWERS = (np.arange(N_POWERS) + 0.5) / N_POWERS


class TwoClasses(NoiseModel):
    """A noise model for y in {-1, +1}.

    Examples
    --------
    >>> from gleangp.noise import Logit
    >>> log_no, log_yes = Logit().class_log_prob(mean=1.0, var=3.0)
    >>> float(np.exp(log_yes).round(2)), float(Logit().margin(mean=1.0, var=3.0).round(2))
    (0.66, 0.41)
    """

    def log_sides(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """log of what f ~ N(mean, var) says for -1 and for +1; the two need not sum to one."""
        return self.log_partition(-1.0, mean, var)[0], self.log_partition(1.0, mean, var)[0]

    def class_log_prob(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """log of the probabilities of -1 and of +1 of a new row with f ~ N(mean, var)."""
        minus, plus = self.log_sides(mean, var)
        total = np.logaddexp(minus, plus)
        return minus - total, plus - total

    def margin(self, mean: Floats, var: Floats) -> FloatArray:
        """Normal quantile of the probability of +1; positive for +1."""
        return _quantile(*self.class_log_prob(mean, var))


def log_mean(log_probabilities: Sequence[Any]) -> FloatArray:
    """Logarithm of the mean of probabilities, along the first axis."""
    return logsumexp(log_probabilities, axis=0) - np.log(len(log_probabilities))


def mean_margin(margins: Sequence[FloatArray]) -> FloatArray:
    """Normal quantile of the mean of the probabilities of which these are the normal quantiles."""
    if len(margins) == 1:
        return margins[0]
    return _quantile(*(log_mean(log_ndtr(side * np.asarray(margins))) for side in (-1.0, 1.0)))


def _quantile(log_minus: FloatArray, log_plus: FloatArray) -> FloatArray:
    """Normal quantile of the second of two probabilities that sum to one."""
    return np.where(log_plus > log_minus, -1.0, 1.0) * ndtri_exp(np.minimum(log_minus, log_plus))


def class_log_probabilities(found: Sequence[Any], independence: float = 1.0) -> FloatArray:
    """(n, c) from the logarithms of (1 - p, p), each (n,), of every binary problem.

    The probability of a class is proportional to p / (1 - p)^independence. With 1 the detectors are
    independent, and exactly one of them is positive: the others' 1 - p is evidence too. With 0 every p is the
    probability of its class already, as where all detectors see the same overlap of the classes.
    """
    if len(found) == 1:
        return np.column_stack(found[0])
    return log_softmax(np.column_stack([log_p - independence * log_q for log_q, log_p in found]), axis=1)


def weights_of_powers(log_p: FloatArray, y: IntArray) -> FloatArray:
    """Posterior weights (k,) of powers b of log probabilities (n, c), given the classes (n,) that occurred.

    Row i has its class with the probability p_iy^b / sum_c p_ic^b. The prior of b is uniform from 0 to 1.
    """
    rows = np.arange(len(y))
    return softmax([np.sum(log_softmax(b * log_p, axis=1)[rows, y]) for b in _POWERS])


def averaged_over_powers(log_p: FloatArray, weights: FloatArray) -> FloatArray:
    """Probabilities (n, c), averaged over the powers with these weights; the most probable class stays."""
    return np.sum([w * softmax(b * log_p, axis=1) for b, w in zip(_POWERS, weights, strict=True)], axis=0)


@dataclass(frozen=True, eq=False)
class Probit(TwoClasses):
    """p(y | f) = Phi(y slope (f + bias)) for y in {-1, +1} (Lawrence, Platt & Jordan 2005, section 2.4).

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.
    slope : float or ndarray of shape (n,)
        lambda of the paper; 1 / slope is the deviation of the Gaussian by which a step was convolved. It
        trades off against the scale of the kernel and its white noise: learn at most one of them.

    Examples
    --------
    >>> log_z, g, nu = Probit().log_partition(y=1.0, mean=0.0, var=3.0)
    >>> float(np.exp(log_z)), float(g.round(4)), float(nu.round(4))
    (0.5, 0.3989, 0.1592)
    >>> log_no, log_yes = Probit().class_log_prob(mean=1.0, var=3.0)
    >>> float(np.exp(log_yes).round(4)), float(Probit().margin(mean=1.0, var=3.0))
    (0.6915, 0.5)
    """

    bias: Floats = 0.0
    slope: Floats = 1.0

    transforms = {"bias": "identity", "slope": "log"}

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        total = self._total(var)
        c = y / np.sqrt(total)  # Lawrence, Platt & Jordan 2005, eq. 13
        log_z, h, curvature = log_ndtr_derivatives((mean + self.bias) * c)
        return log_z, h * c, curvature / total  # Lawrence, Platt & Jordan 2005, eqs. 14-15

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        slopes = super().log_partition_grad(y, mean, var)
        return {"bias": slopes["bias"], "slope": slopes["variance"] * -2.0 * self.slope**-3.0}

    def margin(self, mean: Floats, var: Floats) -> FloatArray:
        """Distance from the boundary in predictive deviations; positive for +1."""
        return (mean + self.bias) / np.sqrt(self._total(var))

    def _total(self, var: Floats) -> Floats:
        return var + 1.0 / (self.slope * self.slope)


@dataclass(frozen=True, eq=False)
class Logit(TwoClasses, Noise):
    """p(y | f) = 1 / (1 + exp(-y (f + bias))) for y in {-1, +1}.

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function: the log odds of +1 where f is zero.

    Examples
    --------
    >>> log_z, g, nu = Logit().log_partition(y=1.0, mean=0.0, var=3.0)
    >>> float(log_z.round(4)), float(g.round(4)), float(nu.round(4))
    (-0.6931, 0.3287, 0.108)
    """

    bias: Floats = 0.0

    support = "label"

    def derivatives(self, y: Floats, f: Floats) -> Three:
        log_p, slope, curvature = log_expit_derivatives(y * (f + self.bias))
        return log_p, y * slope, curvature

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        wide = np.asarray(var) > _WIDE
        narrow = super().log_partition(y, mean, np.where(wide, 1.0, var))
        if not np.any(wide):
            return narrow
        normal = Probit(self.bias, np.sqrt(3.0) / np.pi).log_partition(y, mean, var)
        log_z, g, nu = (np.where(wide, a, b)[()] for a, b in zip(normal, narrow, strict=True))
        return log_z, g, nu

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        return {"bias": self.log_partition(y, mean, var)[1]}


@dataclass(frozen=True, eq=False)
class RobustProbit(TwoClasses, Mixture):
    """p(y | f) = flip + (1 - 2 flip) Phi(y (f + bias)) for y in {-1, +1}.

    Parameters
    ----------
    flip : float or ndarray of shape (n,)
        Probability that a label was changed to that of the other class, below one half.
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.

    Notes
    -----
    Not log-concave: a label far on the wrong side of the boundary has nu < 0, and further out no influence.

    Examples
    --------
    >>> log_z, g, nu = RobustProbit(flip=0.1).log_partition(y=1.0, mean=-4.0, var=0.5)
    >>> float(np.exp(log_z).round(4)), float(g.round(4)), float(nu.round(4))
    (0.1004, 0.0125, -0.0332)
    """

    flip: Floats = 0.05
    bias: Floats = 0.0

    transforms = {"flip": "logit", "bias": "identity"}
    priors = {"flip": (0.01, 1.5)}

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        (log_z, g, _), _, (true, flipped) = self._mixed(y, mean, var)
        return {"flip": np.exp(flipped[0] - log_z) - np.exp(true[0] - log_z), "bias": g}

    def _parts(self, y: Floats, mean: Floats, var: Floats) -> tuple[Sequence[Floats], Sequence[Three]]:
        probit = Probit(self.bias)
        return log_shares(self.flip), [probit.log_partition(of, mean, var) for of in (y, np.negative(y))]


@dataclass(frozen=True, eq=False)
class Ordered(NoiseModel):
    """p(y | f) = Phi((f + bias - b_y) c) - Phi((f + bias - b_{y+1}) c) for y in 0, ..., C - 1.

    The latent function plus Gaussian noise lies between two of C - 1 ordered edges: b_0 = -inf, b_1 = 0, then
    the running sum of `widths`, and b_C = inf. Here c = 1 / sqrt(variance). Lawrence, Platt & Jordan 2005,
    sections 3.4 and 4.1, have three categories.

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.
    widths : array-like of shape (C - 2,)
        Widths of the inner categories; the outer two have no end.
    variance : float or ndarray of shape (n,)
        Of the Gaussian by which the steps were convolved. It trades off against the scale of the kernel.

    Examples
    --------
    >>> noise = Ordered(bias=0.5, widths=[1.0])
    >>> np.exp(noise.log_prob(np.array([0, 1, 2]), 0.0)).round(4)
    array([0.3085, 0.3829, 0.3085])
    """

    bias: Floats = 0.0
    widths: FloatArray = (1.0,)  # type: ignore[assignment]
    variance: Floats = 1.0

    transforms = {"bias": "identity", "widths": "log", "variance": "log"}
    of_all_rows = ("widths",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", np.array(self.widths, dtype=np.float64))

    @property
    def n_categories(self) -> int:
        """C."""
        return len(self.widths) + 2

    @property
    def edges(self) -> FloatArray:
        """b_0 = -inf, b_1 = 0, ..., b_C = inf: category y lies between edges y and y + 1."""
        return np.concatenate([[-np.inf, 0.0], np.cumsum(self.widths), [np.inf]])

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        (log_z, _, _, slope, curvature), total = self._interval(y, mean, var)
        return log_z, slope / np.sqrt(total), curvature / total

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        (_, _, at_upper_edge, slope, _), total = self._interval(y, mean, var)
        c = 1.0 / np.sqrt(total)
        # Width j shifts both edges of the categories above j + 1, and the upper one of j + 1.
        above = np.subtract(y, 1)[..., np.newaxis] - np.arange(len(self.widths))
        d_shift, d_upper = (-slope * c)[..., np.newaxis], (at_upper_edge * c)[..., np.newaxis]
        widths = np.where(above > 0, d_shift, np.where(above == 0, d_upper, 0.0))
        return {**super().log_partition_grad(y, mean, var), "widths": widths}

    def _interval(self, y: Floats, mean: Floats, var: Floats) -> tuple[tuple[FloatArray, ...], Floats]:
        """`log_diff_ndtr_derivatives` between the two edges of y, and the variance with that of the noise."""
        total, category = var + self.variance, np.asarray(y).astype(np.intp)
        edges, centred, c = self.edges, mean + self.bias, 1.0 / np.sqrt(total)
        lower, upper = (centred - edges[category]) * c, (centred - edges[category + 1]) * c
        return log_diff_ndtr_derivatives(lower, upper), total
