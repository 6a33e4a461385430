"""Kernels of the reference files as kernel objects, and gradients back in their parameters.

A reference kernel is a list of components, each a dict with a `type` and natural parameters; the
kernel is their sum, and its parameters are those of the components one after the other (reference
README, "Kernels"). theta of the objects is another parametrisation: logarithms, in scikit-learn's
order, length scales instead of inverse widths. `ReferenceKernel` holds the object together with
d theta / d natural, which takes a gradient from one to the other by the chain rule.

Usage::

    reference = kernel_from_reference(case["inputs"]["kernel"])
    L = objective(reference.kernel)
    reference.natural_gradient(dL_dtheta)                      # order of reference.names
    reference.transformed_gradient(dL_dtheta, tied_groups)     # the space the toolbox optimises in
    reference.at(other_natural_parameters)                     # the same structure elsewhere
"""

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from scipy.linalg import block_diag
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, WhiteKernel

from gleangp.kernels import ArcSine, ScaledInputs

# Parameters of each type in the order of the reference files.
_PARAMETERS = {
    "rbf": ("inverse_width", "variance"),
    "lin": ("variance",),
    "mlp": ("weight_variance", "bias_variance", "variance"),
    "white": ("variance",),
    "bias": ("variance",),
    "poly": ("weight_variance", "bias_variance", "variance"),
    "rbfard": ("inverse_width", "variance", "input_scales"),
    "linard": ("variance", "input_scales"),
    "mlpard": ("weight_variance", "bias_variance", "variance", "input_scales"),
}


@dataclass(frozen=True, eq=False)
class ReferenceKernel:
    """A kernel object and the reference's parametrisation of it."""

    components: list  # as in the file
    kernel: Kernel
    names: list  # "type.parameter", one for each natural parameter
    natural: np.ndarray  # (r,)
    dtheta_dnatural: np.ndarray  # (q, r)

    @property
    def dnatural_dtransformed(self):
        """Input scales are sigmoid(a), slope x (1 - x); all others exp(a), slope x."""
        squashed = np.array(["input_scales" in name for name in self.names])
        return np.where(squashed, self.natural * (1.0 - self.natural), self.natural)

    def natural_gradient(self, dL_dtheta):
        """dL/dtheta (q,) as dL/d natural parameter (r,)."""
        return dL_dtheta @ self.dtheta_dnatural

    def transformed_gradient(self, dL_dtheta, tied_groups=()):
        """dL/dtheta (q,) in the transformed space; a tied group is one entry, at its first place.

        Members of a group share a transformed parameter, so their derivatives add.
        """
        gradient = self.natural_gradient(dL_dtheta) * self.dnatural_dtransformed
        for first, *others in tied_groups:
            gradient[first] += gradient[others].sum()
        tied = [member for _, *others in tied_groups for member in others]
        return np.delete(gradient, tied)

    def at(self, natural):
        """The same kernel with other natural parameters, in the order of `names`."""
        values = iter(np.asarray(natural, dtype=float).tolist())
        components = []
        for component in self.components:
            moved = dict(component)
            for name in _PARAMETERS[component["type"]]:
                if np.ndim(component[name]):
                    moved[name] = [next(values) for _ in component[name]]
                else:
                    moved[name] = next(values)
            components.append(moved)
        if next(values, None) is not None:
            raise ValueError(f"{len(natural)} parameters for a kernel with {len(self.names)}")
        return kernel_from_reference(components)


def kernel_from_reference(components):
    """Make a `ReferenceKernel` of the list found under "kernel" in a reference file."""
    kernels, jacobians = zip(*(_component(part) for part in components), strict=True)
    names, natural = [], []
    for part in components:
        for name in _PARAMETERS[part["type"]]:
            values = np.atleast_1d(part[name])
            natural.extend(values)
            label = f"{part['type']}.{name}"
            single = np.ndim(part[name]) == 0
            names.extend([label] if single else [f"{label}[{i}]" for i in range(len(values))])
    kernel = reduce(add, kernels)
    return ReferenceKernel(components, kernel, names, np.array(natural), block_diag(*jacobians))


def _component(part):
    """One component as a kernel, with d theta / d natural (rows in the order of theta)."""
    kind, variance = part["type"], part["variance"]
    if kind == "white":
        return WhiteKernel(variance), [[1.0 / variance]]
    amplitude = ConstantKernel(variance)
    if kind == "bias":
        return amplitude, [[1.0 / variance]]
    if kind in ("rbf", "rbfard"):
        return _radial(amplitude, part)
    linear = DotProduct(0.0, "fixed")
    if kind == "poly":
        w, b = part["weight_variance"], part["bias_variance"]
        inside = ConstantKernel(w) * linear + ConstantKernel(b)
        # theta: log v, log w, log b; natural: w, b, v
        jacobian = [[0.0, 0.0, 1.0 / variance], [1.0 / w, 0.0, 0.0], [0.0, 1.0 / b, 0.0]]
        return amplitude * inside ** part.get("degree", 2), jacobian
    if kind in ("lin", "linard"):
        inner, jacobian = linear, np.array([[1.0 / variance]])
    else:
        w, b = part["weight_variance"], part["bias_variance"]
        inner = ArcSine(weight_variance=w, bias_variance=b)
        # theta: log v, log b, log w; natural: w, b, v
        jacobian = np.array([[0.0, 0.0, 1.0 / variance], [0.0, 1.0 / b, 0.0], [1.0 / w, 0.0, 0.0]])
    if "input_scales" not in part:
        return amplitude * inner, jacobian
    # x' diag(alpha) z: inputs times sqrt(alpha), whose logarithms have slope 1 / (2 alpha)
    alpha = np.array(part["input_scales"])
    jacobian = block_diag(jacobian, np.diag(0.5 / alpha))
    return amplitude * ScaledInputs(inner, np.sqrt(alpha)), jacobian


def _radial(amplitude, part):
    """v exp(-gamma/2 sum alpha (x - z)**2): length scales are (gamma alpha)**-1/2."""
    width, variance = part["inverse_width"], part["variance"]
    if "input_scales" not in part:
        # theta: log v, log l; natural: gamma, v
        jacobian = [[0.0, 1.0 / variance], [-0.5 / width, 0.0]]
        return amplitude * RBF(width**-0.5), jacobian
    alpha = np.array(part["input_scales"])
    jacobian = np.zeros((1 + len(alpha), 2 + len(alpha)))
    jacobian[0, 1] = 1.0 / variance
    jacobian[1:, 0] = -0.5 / width
    jacobian[1:, 2:] = np.diag(-0.5 / alpha)
    return amplitude * RBF((width * alpha) ** -0.5), jacobian
