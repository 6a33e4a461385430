"""What the sparse estimators do when they are not told: kernel, priors, number of active points."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel

from gleangp._typing import FloatArray
from gleangp.kernels import ScaledInputs
from gleangp.learning.priors import LogNormal, Prior

# One length scale per feature is learnt where there are rows enough to tell them apart.
_ROWS_PER_LENGTH_SCALE = 10
_MOST_LENGTH_SCALES = 100
_LEAST_ACTIVE = 200
_WILD = 20.0  # times the spread of the middle half of a feature
_ENTRIES = 20_000_000  # of the projection of one task: 160 MB


def default_kernel(X: FloatArray, *, offset: bool) -> Kernel:
    """`C * RBF`, with the length scales started at the spread of the features.

    `offset` adds a constant: the offset of a class or of each task.
    """
    n, p = X.shape
    spread = _spread(X)
    start = np.sqrt(p)
    if p <= _MOST_LENGTH_SCALES and n >= _ROWS_PER_LENGTH_SCALE * p:
        scales = spread * start
        shape: Kernel = RBF(scales if p > 1 else float(scales[0]), _around(scales, p))
    else:
        inner = RBF(start, (1e-2 * start, 1e3 * start))
        shape = ScaledInputs(inner, 1.0 / spread, scales_bounds="fixed")
    kernel = ConstantKernel(1.0, (1e-4, 1e4)) * shape
    return kernel + ConstantKernel(1.0, (1e-5, 1e4)) if offset else kernel


def _spread(X: FloatArray) -> FloatArray:
    """Standard deviation of every feature, unless a few wild values make it up; 1 where constant."""
    spread = np.std(X, axis=0)
    middle = np.subtract(*np.quantile(X, [0.75, 0.25], axis=0)) / 1.349  # of a normal feature: the same
    wild = (middle > 0.0) & (spread > _WILD * middle)
    spread[wild] = middle[wild]
    spread[spread <= 1e-12 * np.max(np.abs(X), axis=0, initial=0.0)] = 1.0
    return spread


def _around(scales, p):
    bounds = np.column_stack([1e-2 * scales, 1e3 * scales])
    return bounds if p > 1 else tuple(bounds[0])


def default_priors(kernel: Kernel) -> dict[str, Prior]:
    """Log-normal priors around the start: a factor of e costs half a nat, of e^2 two nats.

    They only speak where data are few: five rows would otherwise be explained without noise, and a
    hundred noisy labels leave length scales of features that tell little free to fit them.
    """
    priors: dict[str, Prior] = {}
    for h in kernel.hyperparameters:
        if not h.fixed:
            value = kernel.get_params()[h.name]
            priors[h.name] = LogNormal(np.asarray(value, dtype=float), 1.0)
    return priors


def noise_prior() -> dict[str, Prior]:
    """Noise of a tenth of the variance of the targets, give or take a factor of e^2."""
    return {"noise__variance": LogNormal(0.1, 2.0)}


def default_n_active(sizes: list[int], most: int) -> int:
    """All rows of tasks up to `most`; of larger ones as many, fewer where n x d numbers grow large."""
    return sum(min(n, max(_LEAST_ACTIVE, min(most, _ENTRIES // n))) for n in sizes if n)
