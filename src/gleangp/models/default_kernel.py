"""The kernel, priors and number of points of `models.active` and the null category, if none are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel
from sklearn.neighbors import NearestNeighbors

from gleangp._typing import FloatArray
from gleangp.kernels import ScaledInputs
from gleangp.models.defaults import START_KERNEL, UNITS
from gleangp.models.priors import Gamma, LogNormal

# Rows from which the spread of the features is computed: more make no difference to where a search starts.
_MOST_SAMPLED = 50_000


def default_kernel(X: FloatArray, *, offset: bool, linear: bool = False) -> Kernel:
    """`C * RBF`, with the length scales started at the spread of the features.

    `offset` adds a constant: the offset of a class or of each task. `linear` adds a linear function: slopes
    around the centre of the data, per spread of a feature; ridge regression is this alone.
    """
    n, p = X.shape
    X = X[:: max(1, -(-n // _MOST_SAMPLED))]
    spread, start = _spread(X), np.sqrt(p)
    if p <= START_KERNEL.most_length_scales and n >= START_KERNEL.rows_per_length_scale * p:
        scales = spread * start
        bounds = np.column_stack([1e-2 * scales, 1e3 * scales])
        shape: Kernel = RBF(scales, bounds) if p > 1 else RBF(float(scales[0]), tuple(bounds[0]))
    else:
        shape = _one_length_scale(spread, start)
    kernel = ConstantKernel(1.0, (1e-4, 1e4)) * shape
    if offset:
        kernel = kernel + ConstantKernel(1.0, (1e-5, 1e4))
    if linear:
        line, center = DotProduct(0.0, "fixed"), np.mean(X, axis=0)
        line = ScaledInputs(line, 1.0 / (spread * start), "fixed", center=center)
        kernel = kernel + ConstantKernel(0.2, (1e-6, 1e4)) * line
    return kernel


def _spread(X: FloatArray) -> FloatArray:
    """Standard deviation of every feature, unless a few wild values make it up; 1 where constant.

    Few are less than one in twenty: pixels that are white in four of five images are not wild, and in units
    of what is left of them without the fifth they would drown all others.

    Features in one unit keep it, and indicators, which have two values, have half their difference: in units
    of its own deviation a category would count for more the rarer it is (Gelman 2008). Rows are then as far
    apart on average as otherwise.
    """
    deviation = np.std(X, axis=0)
    middle = np.subtract(*np.quantile(X, [0.95, 0.05], axis=0)) / 3.29  # of a normal feature: the same
    wild = (middle > 0.0) & (deviation > UNITS.wild * middle)
    deviation[wild] = middle[wild]
    varies = deviation > 1e-12 * np.max(np.abs(X), axis=0, initial=0.0)
    unit = np.ones(len(deviation))
    if not varies.any():
        return unit
    if not _in_one_unit(X[:, varies]):
        unit[varies] = units_of_features(X[:, varies], deviation[varies])
    return unit * np.sqrt(np.mean((deviation[varies] / unit[varies]) ** 2))


def units_of_features(X: FloatArray, deviation: FloatArray) -> FloatArray:
    """The deviations; of indicators, which have two values, half the difference; 1 where constant."""
    least, greatest = np.min(X, axis=0), np.max(X, axis=0)
    indicator = np.all((X == least) | (X == greatest), axis=0)
    unit = np.where(indicator, 0.5 * (greatest - least), deviation)
    return np.where(unit > 0.0, unit, 1.0)


def _in_one_unit(X: FloatArray) -> bool:
    """Whether most features come near both the least and the greatest value of all, as pixels and marks do.

    What such features say is in proportion to how much they vary; each in its own spread, those that hardly
    do would count as much as the others.
    """
    least, greatest = np.min(X, axis=0), np.max(X, axis=0)
    low, high = least.min(), greatest.max()
    near = UNITS.near * (high - low)
    return X.shape[1] > 1 and bool(np.mean((least <= low + near) & (greatest >= high - near)) > 0.5)


def _one_length_scale(spread: FloatArray, start: float) -> Kernel:
    return ScaledInputs(RBF(start, (1e-2 * start, 1e3 * start)), 1.0 / spread, scales_bounds="fixed")


def null_category_kernel(X: FloatArray) -> Kernel:
    """`C * RBF` on standardised features, with the length scale at which neighbours are alike.

    Labels spread from row to row, so learning must start with a length scale that joins neighbours, but not
    the two classes: the median distance of (at most 2000) rows to their fifteenth neighbour.
    """
    spread, start = _spread(X), 1.0
    if len(X) > 1:
        W, k = X / spread, min(START_KERNEL.neighbour, len(X) - 1)
        distance = NearestNeighbors(n_neighbors=k + 1).fit(W).kneighbors(W[:: -(-len(W) // 2000)])[0][:, -1]
        start = float(np.median(distance)) or float(np.max(distance)) or 1.0  # 1 where rows are all alike
    return ConstantKernel(1.0, (1e-4, 1e4)) * _one_length_scale(spread, start)


def variance_priors(kernel: Kernel) -> dict[str, Any]:
    """The exponential prior on process variances of Lawrence, Platt & Jordan 2005, section 4.3.

    Without it a growing variance shrinks the null category to nothing.
    """
    names = [h.name for h in kernel.hyperparameters if not h.fixed]
    return {n: Gamma(1.0, 1.0) for n in names if n.endswith(("constant_value", "noise_level"))}


def default_priors(
    kernel: Kernel, *, variance_spread: float = 1.0, length_spread: float = 1.0
) -> dict[str, Any]:
    """Log-normal priors around the start: a factor of e costs half a nat, of e^2 two nats.

    They only matter where data are few: five rows would otherwise be explained without noise, and a
    hundred noisy labels leave length scales of features that tell little free to fit them.
    """
    priors: dict[str, Any] = {}
    for h in kernel.hyperparameters:
        if not h.fixed:
            value = np.asarray(kernel.get_params()[h.name], dtype=float)
            is_variance = h.name.endswith("constant_value")
            priors[h.name] = LogNormal(value, variance_spread if is_variance else length_spread)
    return priors


def task_priors(kernel: Kernel, n_features: int) -> dict[str, Any]:
    """The same for a kernel with a linear part, beside which one length scale for all features stays put.

    What is left of a few labels after the linear part looks like noise, and a short length scale explains it.
    Distances between rows vary by a share of 1 / sqrt(2 p): the more features, the narrower the range in
    which rows are neither all alike nor all apart.
    """
    one = _n_length_scales(kernel) == 1
    return default_priors(kernel, length_spread=max(0.25, 1.0 / np.sqrt(n_features)) if one else 1.0)


def class_priors(kernel: Kernel) -> dict[str, Any]:
    """The same for classes, where labels do not settle the variance as standardised targets do.

    Classes that are well apart want a large one, and with one length scale for all features there is
    little it could overfit. With a length scale per feature both are learnt from the same labels, and the
    variance stays near 1.
    """
    return default_priors(kernel, variance_spread=2.0 if _n_length_scales(kernel) == 1 else 1.0)


def _n_length_scales(kernel: Kernel) -> int:
    return sum(h.n_elements for h in kernel.hyperparameters if h.name.endswith("length_scale"))


def noise_prior() -> dict[str, Any]:
    """Noise of a tenth of the variance of the targets, give or take a factor of e^2."""
    return {"noise__variance": LogNormal(0.1, 2.0)}


def default_n_active(sizes: list[int], most: int) -> int:
    """All rows of tasks up to `most`; of larger ones as many, fewer where n x d numbers grow large."""
    least, entries = START_KERNEL.least_points, START_KERNEL.most_entries
    return sum(min(n, max(least, min(most, entries // n))) for n in sizes if n)


def linear_plus_rbf(n_features: int, offset: bool) -> Kernel:
    """The kernel of Zhang & Yeung 2009, section 2.1, with the inner product per feature.

    `offset` adds a constant: tasks differ from the centre they share, and even the mean of a task's own
    labels is not known exactly.
    """
    root = np.sqrt(n_features)
    linear = ScaledInputs(DotProduct(0.0, "fixed"), 1.0 / root, "fixed")
    rbf = RBF(root, (1e-2 * root, 1e3 * root))
    kernel = ConstantKernel(0.4, (1e-4, 1e4)) * linear + ConstantKernel(0.5, (1e-4, 1e4)) * rbf
    return kernel + ConstantKernel(0.1, (1e-4, 1e4)) if offset else kernel
