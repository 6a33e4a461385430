"""What the kernel learnt: every parameter with its value, one for all tasks or one per task."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Product
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray
from gleangp.plots._base import COLORS, Display, shortened


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
    >>> KernelParametersDisplay.from_estimator(model).names
    ['constant_value', 'length_scale[0]', 'length_scale[1]']
    """

    def __init__(self, names: list[str], values: FloatArray) -> None:
        self.names = names
        self.values = values

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None) -> Self:
        """Draw the parameters of a fitted model.

        Parameters
        ----------
        model : estimator
            A fitted estimator with `kernel_`, or with `kernels_`, one for each task.
        ax : matplotlib axes, default=None
            Where to draw. None: a new figure.

        Returns
        -------
        KernelParametersDisplay
        """
        check_is_fitted(model)
        kernels = _kernels(model)
        columns = getattr(model, "columns_", None)
        if columns is None:
            task = getattr(model, "task", None)
            features = [f for f in getattr(model, "feature_names_in_", []) if f != task]
        else:
            features = [f for column in columns for f in column.feature_names]
        return cls(parameter_names(kernels[0], features), np.exp([k.theta for k in kernels])).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to draw. None: a new figure.

        Returns
        -------
        KernelParametersDisplay
        """
        ax = self._start(ax)
        places = np.arange(len(self.names))
        jitter = np.linspace(-0.2, 0.2, len(self.values)) if len(self.values) > 1 else [0.0]
        for shift, row in zip(jitter, self.values, strict=True):
            ax.plot(row, places + shift, "o", color=COLORS[0], alpha=max(0.25, 1 / len(self.values)))
        if len(self.values) > 1:
            ax.plot(np.median(self.values, axis=0), places, "|", color="k", ms=16, mew=2, label="median")
            ax.legend(frameon=False, fontsize="small")
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
        ax.set_yticks(places, [shortened(name, 28) for name in self.names])
        ax.set_ylim(len(places) - 0.5, -0.5)
        ax.set_xscale("log")
        low, high = self.values.min(), self.values.max()
        ax.set_xlim(low / 3, high * 6)
        ax.grid(axis="x", alpha=0.3)
        ax.set_xlabel("value (in units of standardised targets, and of the inputs)")
        return self


def _kernels(model: Any) -> list[Kernel]:
    if hasattr(model, "kernels_"):
        return list(model.kernels_.values())
    kernel = model.kernel_
    return list(getattr(kernel, "kernels", [kernel]))  # a CompoundKernel has one per class


def parameter_names(kernel: Kernel, features: list[str]) -> list[str]:
    """Names of the free parameters in the order of theta, short where that is unambiguous."""
    names: list[str] = []
    owned: list[str] = []
    full: list[str] = []
    for h in kernel.hyperparameters:
        if h.fixed:
            continue
        short = h.name.split("__")[-1]
        for i in range(h.n_elements):
            tail = "" if h.n_elements == 1 else f"[{features[i] if len(features) == h.n_elements else i}]"
            names.append(short + tail)
            owned.append(f"{short}{tail} of {_owner(kernel, h.name.split('__')[:-1])}")
            full.append(h.name + tail)
    choices = zip(names, owned, full, strict=True)
    return [n if names.count(n) == 1 else o if owned.count(o) == 1 else f for n, o, f in choices]


def _owner(kernel: Any, path: list[str]) -> str:
    """What a parameter is of: its kernel, or the kernel that a constant multiplies, or the offset."""
    parents = [kernel]
    for part in path:
        parents.append(getattr(parents[-1], part))
    if not isinstance(parents[-1], ConstantKernel):
        return type(parents[-1]).__name__
    if len(parents) == 1 or not isinstance(parents[-2], Product):
        return "offset"
    other = parents[-2].k2 if parents[-1] is parents[-2].k1 else parents[-2].k1
    return type(getattr(other, "kernel", other)).__name__
