"""Noise models p(y | f): how a target comes from the latent function."""

from gleangp.noise.base import NoiseModel
from gleangp.noise.gaussian import Gaussian
from gleangp.noise.null_category import NullCategory
from gleangp.noise.ordered import Ordered
from gleangp.noise.probit import Probit

__all__ = ["Gaussian", "NoiseModel", "NullCategory", "Ordered", "Probit"]
