"""What was learnt, in words: what tasks share, shares of the variance, the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Kernel,
    Matern,
    Product,
    Sum,
    WhiteKernel,
)

from gleangp.kernels import ScaledInputs

_SHARED = {
    "function": "a common function; every task deviates from it by a function of its own",
    "kernel": "the kernel (how smooth, how large, how noisy); every task has a function of its own",
    "coregion": "a few hidden functions, which every task weighs in its own way",
    "HierarchicalGPRegressor": "a prior of the kernel; every task has a kernel of its own under it",
    "SharedLatentGPRegressor": "a space of few hidden inputs",
    "SharedLatentGPClassifier": "a space of few hidden inputs",
}


def what_is_shared(estimator: Any) -> list[str]:
    """What tasks share and why: the estimator's own words, or its coupling in ours."""
    found = [(d.chosen, d.reason) for d in getattr(estimator, "decisions_", ()) if d.what == "coupling"]
    coupling = getattr(estimator, "coupling_", [])
    if not found:
        choices = coupling if isinstance(coupling, list) else [coupling]
        found = [(choice.name, choice.reason) for choice in choices]
    if not found:
        return [_SHARED.get(type(estimator).__name__, "")]
    return list(dict.fromkeys(f"{_SHARED.get(name, name)} ({reason})" for name, reason in found))


def variance_shares(estimator: Any) -> dict[str, float]:
    """Shares of the variance, averaged over tasks; empty if the estimator has none."""
    shares = getattr(estimator, "variance_shares_", None)
    if not isinstance(shares, Mapping):
        return {}
    normal = getattr(estimator, "noise", "gaussian") == "gaussian"
    # Other noise has no variance of its own: the shares are those of the function.
    known = [name for name in shares if normal or name in ("common", "task")]
    return {str(name): float(np.mean(shares[name])) for name in known}


def shares_text(shares: dict[str, float]) -> str:
    """Shares as percentages."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.0%}" for name, value in shares.items())


def noise_text(ends: list[float], target: str | None) -> str:
    """The noise of the median task, and of most where they differ; older model files have two ends."""
    low, *middle, high = (f"{end:.3g}" for end in ends)
    size = f"{low} to {high}, by task"
    if middle:
        same = ends[-1] <= 1.05 * ends[0]
        size = middle[0] if same else f"{middle[0]} in the median task, {low} to {high} in most"
    return f"standard deviation {size}" + ("" if target is None else f" (units of {target!r})")


def _is_linear(kernel: Kernel) -> bool:
    return type(kernel.kernel if isinstance(kernel, ScaledInputs) else kernel) is DotProduct


def words_of(model: Any, kernel: Kernel, features: list[str]) -> list[str]:
    """Sentences about the kernel of a model, and which part of it tasks have in common."""
    terms = getattr(getattr(model, "_model", None), "terms", ())
    if getattr(getattr(model, "coupling_", None), "name", "") != "function" or not terms:
        return in_words(kernel, features)
    whose = ["Common to all tasks" if term.loadings.any() else "Own of every task" for term in terms]
    pairs = zip(whose, terms, strict=True)
    return [f"{who}: {s[0].lower()}{s[1:]}" for who, t in pairs for s in in_words(t.kernel, features)]


def in_words(kernel: Kernel, features: list[str]) -> list[str]:
    """Sentences about a kernel."""
    if hasattr(kernel, "kernels"):
        return [
            f"One kernel for each class; the first: {s}" for s in in_words(kernel.kernels[0], features)[:1]
        ]
    if isinstance(kernel, Sum):
        return in_words(kernel.k1, features) + in_words(kernel.k2, features)
    if isinstance(kernel, ConstantKernel):
        return [f"An offset of standard deviation {np.sqrt(kernel.constant_value):.3g}."]
    if isinstance(kernel, WhiteKernel):
        return [f"Noise of standard deviation {np.sqrt(kernel.noise_level):.3g}."]
    if isinstance(kernel, Product) and isinstance(kernel.k1, ConstantKernel):
        size = np.sqrt(kernel.k1.constant_value)
        return [f"{_shape_in_words(kernel.k2, features)} Its standard deviation is {size:.3g}."]
    return [_shape_in_words(kernel, features)]


def _shape_in_words(kernel: Kernel, features: list[str]) -> str:
    if _is_linear(kernel):
        return "A linear function of all inputs."
    inner = kernel.kernel if isinstance(kernel, ScaledInputs) else kernel
    smooth = {RBF: "A smooth function", Matern: "A rough function"}.get(type(inner))
    scale = getattr(inner, "length_scale", None)
    if scale is not None and isinstance(kernel, ScaledInputs):
        scale = scale / np.asarray(kernel.scales)
    if smooth is None or scale is None:
        return f"A function with the covariance {kernel}."
    if np.size(scale) == 1:
        return f"{smooth} of all inputs, which changes over distances of about {float(np.mean(scale)):.3g}."
    # The indicators of a category have its name and one length scale.
    places = {features[i]: i for i in np.argsort(scale)[::-1] if i < len(features)}
    near = ", ".join(f"{name} ({scale[i]:.3g})" for name, i in list(places.items())[:-4:-1])
    return f"{smooth} that changes fastest along {near} (in brackets: over which distance)."
