"""The free parameters of a kernel: where each is kept, and how all are moved at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from gleangp._typing import FloatArray


class MovingKernel:
    """A private copy of a kernel that is moved from theta to theta; use it before it is moved again.

    scikit-learn sets theta by reflection, at every level of a nested kernel again, which costs as much as a
    small covariance matrix. Here the free parameters are looked up once.
    """

    def __init__(self, kernel: Any):
        self.kernel = clone(kernel)
        self.layout: list[tuple[str, int]] = []  # name and number of elements, in the order of theta
        self._slots: list[tuple[Any, str, int | slice]] = []
        self.n_dims = 0
        for h in self.kernel.hyperparameters:
            if not h.fixed:
                *path, name = h.name.split("__")
                owner = self.kernel
                for step in path:
                    owner = getattr(owner, step)
                at, end = self.n_dims, self.n_dims + h.n_elements
                self._slots.append((owner, name, slice(at, end) if np.ndim(getattr(owner, name)) else at))
                self.layout.append((h.name, h.n_elements))
                self.n_dims = end

    def at(self, theta: FloatArray) -> Any:
        """The kernel with that theta (q,), or with one for each matrix of a stack (B, q).

        In the second case it is for `evaluate` alone: its parameters are arrays (B, 1, 1) or (B, 1, p).
        """
        values = np.exp(theta)
        for owner, name, where in self._slots:
            part = values[..., where]
            if theta.ndim == 2:
                setattr(owner, name, part.reshape(len(theta), 1, -1))
            else:
                setattr(owner, name, part if isinstance(where, slice) else float(part))
        return self.kernel


def length_scales(kernel: Any, n_features: int) -> FloatArray:
    """(p,) the shortest length scale of every input over the parts of a kernel; 1 where it has none."""
    values = kernel.get_params().items()
    found = [np.broadcast_to(v, n_features) for name, v in values if name.split("__")[-1] == "length_scale"]
    return np.min(found, axis=0) if found else np.ones(n_features)
