"""What noise models for two classes, -1 and +1, share: probabilities of a new label."""

import numpy as np
from scipy.special import ndtri_exp

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, NoiseModel


class TwoClasses(NoiseModel):
    """A noise model for y in {-1, +1}.

    Examples
    --------
    >>> from gleangp.noise import Logit
    >>> log_no, log_yes = Logit().class_log_prob(mean=1.0, var=3.0)
    >>> float(np.exp(log_yes).round(2)), float(Logit().margin(mean=1.0, var=3.0).round(2))
    (0.66, 0.41)
    """

    def class_log_prob(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """log of the probabilities of -1 and of +1 of a new row with f ~ N(mean, var)."""
        return self.log_partition(-1.0, mean, var)[0], self.log_partition(1.0, mean, var)[0]

    def margin(self, mean: Floats, var: Floats) -> FloatArray:
        """Normal quantile of the probability of +1; positive for +1."""
        minus, plus = self.class_log_prob(mean, var)
        return np.where(plus > minus, -1.0, 1.0) * ndtri_exp(np.minimum(minus, plus))
