"""What the kernel learnt: every parameter with its value, one for all tasks or one per task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Product, Sum
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray
from gleangp.plots._base import COLORS, Display, input_names, shortened

_WORDS = {"length_scale": "length scale", "noise_level": "variance of the noise", "scales": "scale"}
_PARTS = {"RBF": "smooth part", "Matern": "rough part", "DotProduct": "linear part", "WhiteKernel": "noise"}


@dataclass(eq=False, repr=False)
class KernelParametersDisplay(Display):
    """Learnt kernel parameters on a logarithmic axis, with their bounds where these are near.

    Parameters
    ----------
    names : list of str
        Names of the parameters.
    values : ndarray of shape (k, q)
        Parameters of k kernels: one, or one per task or class.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> from gleangp.plots import KernelParametersDisplay
    >>> X = np.random.default_rng(0).uniform(0, 6, (40, 2))
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> display = KernelParametersDisplay.from_estimator(model)
    >>> display = display.plot()  # again, on new axes
    >>> display.names
    ['variance of the linear part', 'variance of the smooth part', 'length scale of x0', 'length scale of x1']
    """

    names: list[str]
    values: FloatArray

    @classmethod
    def from_estimator(
        cls, model: Any, *, feature_names: Sequence[str] | None = None, ax: Any = None
    ) -> Self:
        """Draw the parameters of a fitted model.

        Parameters
        ----------
        model : estimator
            A fitted estimator with `kernel_`, or with `kernels_`, one for each task.
        feature_names : sequence of str, default=None
            Names of the inputs. None: those of the frame the model was fitted on.
        """
        check_is_fitted(model)
        kernels = _kernels(model)
        coupled = getattr(getattr(model, "coupling_", None), "name", "") == "function"
        columns = getattr(model, "columns_", None)
        if feature_names is None and columns is not None:
            feature_names = [f for column in columns for f in column.feature_names]
        features = input_names(model, np.empty((0, 0)), feature_names)
        names = parameter_names(kernels[0], features, coupled)
        return cls(names, np.exp([k.theta for k in kernels])).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw."""
        ax = self._start(ax)
        places = np.arange(len(self.names))
        jitter = np.linspace(-0.2, 0.2, len(self.values)) if len(self.values) > 1 else [0.0]
        for shift, row in zip(jitter, self.values, strict=True):
            ax.plot(row, places + shift, "o", color=COLORS[0], alpha=max(0.25, 1 / len(self.values)))
        if len(self.values) > 1:
            ax.plot(np.median(self.values, axis=0), places, "|", color="k", ms=16, mew=2, label="median")
            self._legend(ax)
        else:
            for place, value in zip(places, self.values[0], strict=True):
                ax.annotate(
                    f"{value:.3g}",
                    (value, place),
                    xytext=(7, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize="small",
                )
        ax.set_yticks(places, [shortened(name, 44) for name in self.names])
        ax.set_ylim(len(places) - 0.5, -0.5)
        ax.set_xscale("log")
        low, high = self.values.min(), self.values.max()
        ax.set_xlim(low / 3, high * 6)
        ax.grid(axis="x", alpha=0.3)
        ax.set_xlabel("value, in units of the kernel")
        return self


def _kernels(model: Any) -> list[Kernel]:
    if hasattr(model, "kernels_"):
        return list(model.kernels_.values())
    kernel = model.kernel_
    return list(getattr(kernel, "kernels", [kernel]))  # a CompoundKernel has one per class


def parameter_names(kernel: Kernel, features: Sequence[str], coupled: bool = False) -> list[str]:
    """Names of the free parameters in the order of theta; `coupled`: the first part is common to tasks."""
    if coupled and isinstance(kernel, Sum):
        parts = [kernel.k1, kernel.k2]
        if isinstance(parts[0], Sum) and isinstance(parts[0].k2, ConstantKernel):  # the offset of each task
            parts = [parts[0].k1, parts[0].k2, kernel.k2]
        common, *own = (parameter_names(k, features) for k in parts)
        of_each = [f"{n}, of each task" for part in own for n in part]
        return [f"{n}, common to tasks" for n in common] + of_each
    short, long = [], []
    for h in kernel.hyperparameters:
        if h.fixed:
            continue
        *path, name = h.name.split("__")
        word, part = _WORDS.get(name, name.replace("_", " ")), _part(kernel, path)
        for i in range(h.n_elements):
            feature = features[i] if len(features) == h.n_elements else f"x{i}"
            of = f" of {feature}" if h.n_elements > 1 else ""
            # A variance is always of a part; other parameters only where several parts have one.
            short.append(f"variance of the {part}" if name == "constant_value" else word + of)
            long.append(short[-1] if name == "constant_value" else f"{word}{of} ({part})")
    names = [s if short.count(s) == 1 else n for s, n in zip(short, long, strict=True)]
    return [n if names.count(n) == 1 else f"{n}, {1 + names[:i].count(n)}" for i, n in enumerate(names)]


def _part(kernel: Any, path: list[str]) -> str:
    """Which part of a sum a parameter is of; a constant is of the kernel it multiplies, or the offset."""
    parents = [kernel]
    for part in path:
        parents.append(getattr(parents[-1], part))
    owner = parents[-1]
    if isinstance(owner, ConstantKernel):
        if len(parents) == 1 or not isinstance(parents[-2], Product):
            return "offset"
        owner = parents[-2].k2 if owner is parents[-2].k1 else parents[-2].k1
    kind = type(getattr(owner, "kernel", owner)).__name__
    return _PARTS.get(kind, f"{kind} part")
