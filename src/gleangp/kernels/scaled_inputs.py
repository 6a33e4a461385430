"""Any kernel of rescaled inputs."""

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from gleangp.kernels.evaluate import STEP, Evaluation, is_free, of_features, rule, rule_for, side_by_side


class ScaledInputs(Kernel):
    """Kernel of inputs multiplied by learnt scales: ``kernel((X - center) * scales)``.

    Makes any kernel anisotropic, and lets several kernels share one set of scales.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the rescaled inputs, for example a sum.
    scales : float or array-like of shape (p,), default=1.0
        One factor for all features, or one per feature. A feature with a small scale hardly
        matters; for an `RBF` of length scale 1 a scale is the inverse of the length scale.
    scales_bounds : pair of floats >= 0 or "fixed", default=(1e-5, 1e5)
        Bounds of the scales; "fixed" leaves them out of theta.
    center : float or array-like of shape (p,), default=0.0
        What is taken off the inputs first; it is never learnt. A `DotProduct` needs the centre of the data
        here, or lines through a far origin are all it can see; stationary kernels do not mind.

    Notes
    -----
    theta is that of the inner kernel followed by the logarithms of the scales. A free length scale
    inside and free scales outside are not identified together: fix one of them.

    ``kernel(X, eval_gradient=True)`` takes the derivatives towards scales from central differences
    (2 evaluations per scale, about 1e-9 relative). `kernel_vjp` takes them from the
    input gradient of the inner kernel, at the cost of about one evaluation for all of them.

    References
    ----------
    Lawrence, Platt & Jordan 2005, "Extensions of the informative vector machine", appendix B: x'z becomes
    x' diag(alpha) z in several kernels at once. Here scales = sqrt(alpha), in logarithms and within bounds;
    the paper squashes alpha into (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> from gleangp.kernels import ArcSine, ScaledInputs
    >>> kernel = ScaledInputs(ArcSine() + 0.1 * DotProduct(), scales=[1.0, 0.5])
    >>> kernel
    ScaledInputs(ArcSine(weight_variance=1, bias_variance=1)
        + 0.316**2 * DotProduct(sigma_0=1), scales=[1, 0.5])
    >>> kernel.theta.round(2)
    array([ 0.  ,  0.  , -2.3 ,  0.  ,  0.  , -0.69])
    >>> kernel(np.array([[1.0, 2.0]])).round(3)
    array([[0.84]])
    >>> kernel.diag(np.array([[1.0, 2.0]])).round(3), kernel.scale_inputs([[1.0, 2.0]])
    (array([0.84]), array([[1., 1.]]))
    >>> kernel.get_params()["scales"]
    [1.0, 0.5]
    """

    def __init__(self, kernel, scales=1.0, scales_bounds=(1e-5, 1e5), center=0.0):
        self.kernel, self.scales, self.scales_bounds, self.center = kernel, scales, scales_bounds, center

    def get_params(self, deep=True):
        inner = self.kernel.get_params() if deep else {}
        return {**vars(self), **{f"kernel__{name}": value for name, value in inner.items()}}

    @property
    def hyperparameter_scales(self):
        """Specification of the scales."""
        return Hyperparameter("scales", "numeric", self.scales_bounds, np.size(self.scales))

    @property
    def hyperparameters(self):
        """Specifications of all hyperparameters, in the order of theta."""
        inner = [h._replace(name=f"kernel__{h.name}") for h in self.kernel.hyperparameters]
        return [*inner, self.hyperparameter_scales]

    def __eq__(self, other):
        if type(self) is not type(other) or self.kernel != other.kernel:
            return False
        names = ("scales", "scales_bounds", "center")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def __call__(self, X, Y=None, eval_gradient=False):
        U = self.scale_inputs(X)
        if not eval_gradient:
            return self.kernel(U, None if Y is None else self.scale_inputs(Y))
        if Y is not None:
            raise ValueError("Gradient can only be evaluated when Y is None.")
        K, gradient = self.kernel(U, eval_gradient=True)
        slopes = [gradient]  # then dK/dlog scale, one matrix per scale, by central differences
        for step in STEP * np.eye(np.size(self.scales)) if is_free(self.scales_bounds) else ():
            up, down = self.kernel(U * np.exp(step)), self.kernel(U * np.exp(-step))
            slopes.append((up - down) / (2.0 * STEP))
        return K, np.dstack(slopes)

    def diag(self, X):
        return self.kernel.diag(self.scale_inputs(X))

    def is_stationary(self):
        """Return whether the inner kernel is stationary."""
        return self.kernel.is_stationary()

    def __repr__(self):
        text = f"{type(self).__name__}({self.kernel}, scales={_short(self.scales)}"
        return text + (f", center={_short(self.center)})" if np.any(self.center) else ")")

    def scale_inputs(self, X):
        """Return rows (..., p) as the inner kernel sees them."""
        X = np.atleast_2d(X)
        for name in ("scales", "center"):
            shape = np.shape(getattr(self, name))
            if len(shape) == 1 and shape != X.shape[-1:]:
                raise ValueError(
                    f"ScaledInputs has {name} of shape {shape}, but X has {X.shape[-1]} "
                    "features. Give one number, or one per feature."
                )
        if np.any(self.center):
            X = X - np.asarray(self.center, dtype=float)
        return X * np.asarray(self.scales, dtype=float)


def _short(numbers):
    text = ", ".join(f"{number:.3g}" for number in np.atleast_1d(numbers))
    return f"[{text}]" if np.ndim(numbers) else text


@rule_for(ScaledInputs)
def _(kernel, A, B):
    scales = np.asarray(kernel.scales)
    a, b = kernel.scale_inputs(A), None if B is None else kernel.scale_inputs(B)
    inner = rule(kernel.kernel, a, b)
    free = is_free(kernel.scales_bounds)

    def vjp(G, inputs=True):
        theta, da, db = inner.vjp(G, inputs=inputs or free)
        if free:
            by_scale = of_features(a * da, scales) + (0.0 if b is None else of_features(b * db, scales))
            theta = side_by_side(theta, by_scale)
        return theta, da * scales, db * scales

    return Evaluation(inner.value, vjp)
