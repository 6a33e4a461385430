"""The free parameters of a kernel: where each is kept, and how all are moved at once."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.base import clone

from gleangp._typing import FloatArray


class KernelParameters:
    """The free parameters of a kernel, looked up once.

    scikit-learn reads and sets theta and its bounds by reflection, at every level of a nested kernel again,
    which costs as much as a small covariance matrix.
    """

    def __init__(self, kernel: Any):
        self.kernel = kernel
        self.layout: list[tuple[str, int]] = []  # name and number of elements, in the order of theta
        self._slots: list[tuple[Any, str, int | slice]] = []
        self._bounds = [np.ones((0, 2))]
        at = 0
        for h in kernel.hyperparameters:
            if not h.fixed:
                *path, name = h.name.split("__")
                owner = kernel
                for step in path:
                    owner = getattr(owner, step)
                vector = np.ndim(getattr(owner, name)) > 0
                self._slots.append((owner, name, slice(at, at + h.n_elements) if vector else at))
                self._bounds.append(h.bounds)
                self.layout.append((h.name, h.n_elements))
                at += h.n_elements
        self.n_dims = at

    @property
    def theta(self) -> FloatArray:
        """Their logarithms (q,)."""
        values = [np.atleast_1d(getattr(owner, name)) for owner, name, _ in self._slots]
        return np.log(np.concatenate([np.zeros(0), *values]))

    @property
    def bounds(self) -> FloatArray:
        """Bounds (q, 2) of the logarithms."""
        with np.errstate(divide="ignore"):  # a bound of zero is no bound
            return np.log(np.vstack(self._bounds))


class MovingKernel(KernelParameters):
    """A private copy of a kernel that is moved from theta to theta; use it before it is moved again."""

    def __init__(self, kernel: Any):
        super().__init__(clone(kernel))

    def at(self, theta: FloatArray) -> Any:
        """The kernel with that theta (q,), or with one for each matrix of a stack (B, q).

        In the second case it is for `evaluate` alone: its parameters are arrays (B, 1, 1) or (B, 1, p).
        """
        values = np.exp(theta)
        if theta.ndim == 2:
            for owner, name, where in self._slots:
                columns = where if isinstance(where, slice) else slice(where, where + 1)
                setattr(owner, name, values[:, None, columns])
            return self.kernel
        for owner, name, where in self._slots:
            setattr(owner, name, values[where] if isinstance(where, slice) else float(values[where]))
        return self.kernel

    def copy_at(self, theta: FloatArray) -> Any:
        """A kernel with that theta (q,), to keep."""
        return deepcopy(self.at(theta))


def length_scales(kernel: Any, n_features: int) -> FloatArray:
    """(p,) the shortest length scale of every input over the parts of a kernel; 1 where it has none."""
    found = [
        np.broadcast_to(value, n_features)
        for name, value in kernel.get_params().items()
        if name.split("__")[-1] == "length_scale"
    ]
    return np.min(found, axis=0) if found else np.ones(n_features)
