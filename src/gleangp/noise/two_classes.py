"""What noise models for two classes, -1 and +1, share: predictions of a new label."""

from typing import ClassVar

import numpy as np
from scipy.special import ndtri_exp

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Noise, refuse


class TwoClasses(Noise):
    """A noise model with `log_prob` and `log_partition` for y in {-1, +1}.

    Examples
    --------
    >>> from gleangp.noise import Logit
    >>> log_no, log_yes = Logit().class_log_prob(mean=1.0, var=3.0)
    >>> float(np.exp(log_yes).round(2)), float(Logit().margin(mean=1.0, var=3.0).round(2))
    (0.66, 0.41)
    """

    support: ClassVar[str] = "label"

    def class_log_prob(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """log of the probabilities of -1 and of +1 of a new row with f ~ N(mean, var)."""
        return self.log_density(-1.0, mean, var), self.log_density(1.0, mean, var)

    def margin(self, mean: Floats, var: Floats) -> FloatArray:
        """Normal quantile of the probability of +1; positive for +1."""
        minus, plus = self.class_log_prob(mean, var)
        return np.where(plus > minus, -1.0, 1.0) * ndtri_exp(np.minimum(minus, plus))

    def mean_given(self, f: Floats) -> FloatArray:
        """E[y | f]."""
        return np.exp(self.log_prob(1.0, f)) - np.exp(self.log_prob(-1.0, f))

    def var_given(self, f: Floats) -> FloatArray:
        """Variance of y given f."""
        return 4.0 * np.exp(self.log_prob(1.0, f) + self.log_prob(-1.0, f))

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        """P(Y <= y | f)."""
        return np.select([np.less(y, -1.0), np.less(y, 1.0)], [0.0, np.exp(self.log_prob(-1.0, f))], 1.0)

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        """Mean of the label of a new row with f ~ N(mean, var)."""
        minus, plus = self.class_log_prob(mean, var)
        return np.exp(plus) - np.exp(minus)

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        """Variance of the label of a new row with f ~ N(mean, var)."""
        minus, plus = self.class_log_prob(mean, var)
        return 4.0 * np.exp(minus + plus)

    def predict_cdf(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        """Probability that the label of a new row with f ~ N(mean, var) is at most y."""
        minus = np.exp(self.log_density(-1.0, mean, var))
        return np.where(np.less(y, -1.0), 0.0, np.where(np.less(y, 1.0), minus, 1.0))[()]

    def predict_quantile(self, mean: Floats, var: Floats, q: Floats) -> FloatArray:
        """Quantile q of the label of a new row with f ~ N(mean, var)."""
        return np.where(np.exp(self.log_density(-1.0, mean, var)) >= q, -1.0, 1.0)[()]

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        """One label for each latent value."""
        return np.where(rng.random(np.shape(f)) < np.exp(self.log_prob(1.0, f)), 1.0, -1.0)[()]

    def check_target(self, y: FloatArray) -> None:
        """Raise `LabelError` unless all labels are -1 or +1."""
        remedy = "Labels of two classes are -1 and +1: encode them so, or use SparseGPClassifier, which does."
        refuse(np.not_equal(np.abs(y), 1.0), y, "y", remedy)
