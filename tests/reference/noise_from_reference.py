"""Noise models and targets of the reference files, in the library's own terms."""

from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.noise import Gaussian, NoiseModel, NullCategory, Ordered, Probit


def noise_from_reference(noise: dict[str, Any]) -> NoiseModel:
    """The noise model that a dict of the reference files describes."""
    match noise:
        case {"type": "gaussian", "bias": bias, "sigma2": sigma2}:
            return Gaussian(variance=sigma2, bias=_one(bias))
        case {"type": "probit", "bias": bias, "sigma2": sigma2}:
            return Probit(bias=_one(bias), slope=sigma2**-0.5)
        case {"type": "ncnm", "bias": bias, "sigma2": sigma2}:
            return NullCategory(
                bias=_one(bias),
                gamma_minus=noise["gamma_minus"],
                gamma_plus=noise["gamma_plus"],
                width=noise["width"],
                variance=sigma2,
            )
        case {"type": "ordered", "bias": bias, "widths": widths, "variance": variance}:
            return Ordered(bias=_one(bias), widths=widths, variance=variance)
    raise ValueError(f"no noise model of the library fits the reference's {noise}")


def targets_from_reference(y: list[float | None]) -> FloatArray:
    """Targets as an array; an unlabelled row (null) is 0, as in `NullCategory`."""
    return np.array([0.0 if value is None else value for value in y])


def _one(bias: float | list[float]) -> float:
    """The bias of a single output, which some files store as a list of one."""
    (value,) = np.atleast_1d(bias)
    return float(value)
