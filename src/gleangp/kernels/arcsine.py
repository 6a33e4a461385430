"""The arc-sine kernel of Lawrence, Platt & Jordan 2005, "Extensions of the informative vector machine"."""

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from gleangp.kernels.evaluate import ZERO, Evaluation, is_free, of_number, rule_for, side_by_side


class ArcSine(Kernel):
    """Arc-sine ("MLP") kernel.

    k(x, z) = (2/pi) asin((w x'z + b) / sqrt((w x'x + b + 1) (w z'z + b + 1))), the covariance of a
    one-layer network with error-function units, weights of variance w and biases of variance b.
    Neither stationary nor unbounded: far from the data it levels off to a constant.

    Parameters
    ----------
    weight_variance : float, default=1.0
        Prior variance w of the input weights; large values let the function bend sharply.
    bias_variance : float, default=1.0
        Prior variance b of the units' biases; large values let it bend away from the origin.
    weight_variance_bounds, bias_variance_bounds : pair of floats >= 0 or "fixed", \
            default=(1e-5, 1e5)
        Bounds of the two; "fixed" leaves the parameter out of theta.

    See Also
    --------
    ScaledInputs : Gives it one relevance per input (the "MLP-ARD" kernel).

    References
    ----------
    Williams 1998, "Computation with infinite neural networks", Neural Computation 10(5), eq. 11. Its factor
    2/pi is left out in Lawrence, Platt & Jordan 2005, appendix B.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from gleangp.kernels import ArcSine
    >>> kernel = 2.0 * ArcSine(weight_variance=10.0, bias_variance=3.0)
    >>> kernel
    1.41**2 * ArcSine(weight_variance=10, bias_variance=3)
    >>> kernel.diag(np.array([[0.0], [1.0], [100.0]])).round(3)
    array([1.08 , 1.516, 1.994])
    >>> X = np.linspace(-2, 2, 9)[:, None]
    >>> model = GaussianProcessRegressor(kernel, alpha=1e-4, optimizer=None)
    >>> model.fit(X, np.tanh(3 * X[:, 0])).predict([[5.0]]).round(1)
    array([1.])
    """

    def __init__(
        self,
        weight_variance=1.0,
        bias_variance=1.0,
        weight_variance_bounds=(1e-5, 1e5),
        bias_variance_bounds=(1e-5, 1e5),
    ):
        self.weight_variance, self.weight_variance_bounds = weight_variance, weight_variance_bounds
        self.bias_variance, self.bias_variance_bounds = bias_variance, bias_variance_bounds

    @property
    def hyperparameter_weight_variance(self):
        """Specification of the weight variance."""
        return Hyperparameter("weight_variance", "numeric", self.weight_variance_bounds)

    @property
    def hyperparameter_bias_variance(self):
        """Specification of the bias variance."""
        return Hyperparameter("bias_variance", "numeric", self.bias_variance_bounds)

    def __call__(self, X, Y=None, eval_gradient=False):
        if Y is not None and eval_gradient:
            raise ValueError("Gradient can only be evaluated when Y is None.")
        K, inner, norm, _ = _arcsine(self, np.atleast_2d(X), None if Y is None else np.atleast_2d(Y))
        if not eval_gradient:
            return K
        # k depends on theta through N_ij, N_ii and N_jj, each of which is w (...) + b
        slope = (2.0 / np.pi) / np.sqrt(_gap(inner, norm, norm))
        half = 0.5 / (norm + 1.0)
        toward_bias = self.bias_variance * slope * (1.0 - inner * np.add.outer(half, half))
        toward_both = slope * inner * (1.0 - np.add.outer(half * norm, half * norm))
        free = [is_free(self.bias_variance_bounds), is_free(self.weight_variance_bounds)]  # alphabetical
        return K, np.stack([toward_bias, toward_both - toward_bias], axis=-1)[..., free]

    def diag(self, X):
        norm = _norms(self, np.atleast_2d(X))
        return (2.0 / np.pi) * np.arcsin(norm / (norm + 1.0))

    def is_stationary(self):
        """Return False: the kernel depends on the origin."""
        return False

    def __repr__(self):
        weight, bias = self.weight_variance, self.bias_variance
        return f"{type(self).__name__}(weight_variance={weight:.3g}, bias_variance={bias:.3g})"


def _norms(kernel, X):
    """N_ii = w x'x + b (..., n); a variance (B, 1, 1) is that of every matrix of a stack."""
    both = (np.asarray(v) for v in (kernel.weight_variance, kernel.bias_variance))
    weight, bias = (v[..., 0] if v.ndim else v for v in both)
    return np.einsum("...ik,...ik->...i", X, X) * weight + bias


def _arcsine(kernel, X, Z):
    """The kernel matrix, N_ij = w x'z + b (..., n, m), and N_ii and N_jj of either argument."""
    inner = X @ np.swapaxes(X if Z is None else Z, -1, -2)
    inner *= kernel.weight_variance
    inner += kernel.bias_variance
    first = _norms(kernel, X)
    second = first if Z is None else _norms(kernel, Z)
    sine = inner / np.sqrt(first + 1.0)[..., None]
    sine /= np.sqrt(second + 1.0)[..., None, :]
    np.clip(sine, -1.0, 1.0, out=sine)  # within by Cauchy and Schwarz; rounding may lift it by an ulp
    K = np.arcsin(sine, out=sine)
    K *= 2.0 / np.pi
    return K, inner, first, second


def _gap(inner, first, second):
    """(N_ii + 1)(N_jj + 1) - N_ij**2, what the gradient divides by the root of.

    Written as (N_ii N_jj - N_ij**2) + (N_ii + N_jj + 1), the first bracket is never negative,
    so that the gap stays positive for equal rows of any size, where 1 - sine**2 rounds to 0.
    """
    gap = first[..., None] * second[..., None, :]
    gap -= inner**2
    np.maximum(gap, 0.0, out=gap)
    gap += (first + 1.0)[..., None]
    gap += second[..., None, :]
    return gap


@rule_for(ArcSine)
def _(kernel, A, B):
    w, b = np.broadcast_arrays(kernel.weight_variance, kernel.bias_variance)
    value, inner, first, second = _arcsine(kernel, A, B)

    def vjp(G, inputs=True):
        # dL/d inner, and dL/d first and second norm (the square root's argument, less one)
        W = (2.0 / np.pi) * G / np.sqrt(_gap(inner, first, second))
        WN = W * inner
        d_first, d_second = -0.5 * WN.sum(axis=-1) / (first + 1.0), -0.5 * WN.sum(axis=-2) / (second + 1.0)

        def total(factor, *parts):  # inner and norms are all w (...) + b
            return sum(of_number(part, factor, ()) for part in parts)

        d_bias, d_both = total(b, W, d_first, d_second), total(b / b, WN, d_first * first, d_second * second)
        theta = side_by_side(  # alphabetical: bias first
            d_bias if is_free(kernel.bias_variance_bounds) else np.empty(0),
            d_both - d_bias if is_free(kernel.weight_variance_bounds) else np.empty(0),
        )
        d_first, d_second = 2.0 * d_first[..., None], 2.0 * d_second[..., None]
        if B is None:
            return theta, w * ((W + W.swapaxes(-1, -2)) @ A + (d_first + d_second) * A), ZERO
        return theta, w * (W @ B + d_first * A), w * (W.swapaxes(-1, -2) @ A + d_second * B)

    return Evaluation(value, vjp)
