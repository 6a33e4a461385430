"""What inference needs of a noise model p(y | f): the contract, and what all models share.

Notation, as in Lawrence, Platt & Jordan 2005, section 2.2: f ~ N(mean, var) is the latent value of
a row before its target is seen, Z = E[p(y | f)], and

    g = d log Z / d mean,    nu = g**2 - 2 d log Z / d var.

The density of f solves the heat equation in (mean, var). From this

* nu = -d**2 log Z / d mean**2;
* where p(y | f) is itself a step-like function convolved with a Gaussian of variance v,
  d log Z / d v = d log Z / d var = (g**2 - nu) / 2;
* independent Gaussian noise on f (white noise of the kernel, variance outside a basis) is taken in
  exactly by adding its variance to `var`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit

from gleangp._typing import FloatArray
from gleangp.exceptions import LabelError
from gleangp.noise.quadrature import mixture_cdf, mixture_quantile, normal_mean, tilted

Floats = float | FloatArray  # one value, or one per row
Three = tuple[FloatArray, FloatArray, FloatArray]  # log_z, g and nu; or a function and two derivatives


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """p(y | f), elementwise over arrays that broadcast: a frozen dataclass of parameters.

    A subclass defines `log_partition`, and `log_partition_grad` for parameters other than `bias` and a
    `variance` that adds to `var`. `Noise` has them by quadrature.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp.noise import Gaussian
    >>> noise, y = Gaussian(0.5, bias=np.ones(2)), np.array([0.3, 2.0])
    >>> mean, var = np.zeros(2), np.ones(2)
    >>> noise.log_prob(y, f=0.0).round(3).tolist(), noise.at([0]).bias.tolist()
    ([-1.062, -1.572], [1.0])
    >>> log_z, g, nu = noise.log_partition(y, mean, var)
    >>> slopes = noise.log_partition_grad(y, mean, var)
    >>> list(slopes), np.allclose(nu, noise.precision(y, mean, var))
    (['variance', 'bias'], True)
    """

    log_concave: ClassVar[bool] = True  # p(y | f) in f: then nu is never negative
    precision_depends_on_mean: ClassVar[bool] = True  # False for Gaussian noise: gains can then only fall
    # Parameter name -> "identity", "log" or "logit": the scale on which it is unbounded.
    transforms: ClassVar[Mapping[str, str]] = {"bias": "identity"}
    # Values of an observation: "real", "positive", "count", or "label" (classes, categories).
    support: ClassVar[str] = "label"
    # Parameter name -> median and standard deviation of the logarithm of a weak log-normal prior.
    priors: ClassVar[Mapping[str, tuple[float, float]]] = {}
    # Parameter of which every task may have its own value v_t**power, and that power; None: there is none.
    # v_t is the variance of the noise of a task, or what grows with it. Its logarithm is normal over tasks.
    of_tasks: ClassVar[Any] = None
    # Whether the tasks of a fit share v_t all the same: then only a task that is added may have a larger one.
    tasks_alike: ClassVar[bool] = False
    of_all_rows: ClassVar[tuple[str, ...]] = ()  # fields that are arrays and do not run over rows

    def __eq__(self, other: object) -> bool:
        names = [field.name for field in fields(self)]
        return type(self) is type(other) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in names
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameter name -> value. Which of them to learn is the caller's choice."""
        return {name: getattr(self, name) for name in self.transforms}

    @property
    def variance_of_task(self) -> Any:
        """v_t of `of_tasks`."""
        name, power = self.of_tasks
        return getattr(self, name) ** (1.0 / power)

    def with_variance(self, variance: Any) -> Self:
        """The model with these v_t of `of_tasks`, such as one for each row."""
        name, power = self.of_tasks
        return replace(self, **{name: variance**power})

    def grad_of_shared(
        self, by_name: dict[str, FloatArray], shared: Self
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        """From derivatives in these parameters per row, those in the ones of `shared`, of which this is
        `with_variance`, and in log v_t.
        """
        name, power = self.of_tasks
        by_log = by_name[name] * getattr(self, name)
        return {**by_name, name: by_log / getattr(shared, name)}, power * by_log

    @property
    def row_fields(self) -> dict[str, Any]:
        """Fields that may have one entry per row, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.of_all_rows}

    def at(self, rows: Any) -> Self:
        """The model of those rows: fields with one entry per row are indexed, the others kept."""
        indexed: dict[str, Any] = {k: v[rows] for k, v in self.row_fields.items() if np.ndim(v) > 0}
        return replace(self, **indexed) if indexed else self

    def log_prob(self, y: Floats, f: Floats) -> FloatArray:
        """log p(y | f)."""
        return self.log_partition(y, f, 0.0)[0]

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        """log_z = log E[p(y | f)] for f ~ N(mean, var), with g and nu, negative or not."""
        raise NotImplementedError

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        """Parameter name -> d log_z / d parameter (n,); (n, k) for a parameter with k entries (`Ordered`)."""
        _, g, nu = self.log_partition(y, mean, var)
        return {"variance": 0.5 * (g**2 - nu), "bias": g}

    def precision(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        """nu of `log_partition` alone: what selection scores with."""
        return self.log_partition(y, mean, var)[2]


class Noise(NoiseModel):
    """A noise model from `log p(y | f)` and its derivatives; what has a closed form is overridden.

    A subclass is a frozen dataclass with a field `bias`. For inference it defines `derivatives`,
    `log_constant` where log p has a part without f, and `log_prob_grad` if it has other parameters.
    For predictions of observations it defines `mean_given`, `var_given`, `cdf` and `sample`.

    Examples
    --------
    Two rows, the second counted for ten days; f is the log of the rate. New observations, if f has the
    distribution N(mean, var), and given f:

    >>> import numpy as np
    >>> from gleangp.noise import Poisson
    >>> noise = Poisson(exposure=np.array([1.0, 10.0]))
    >>> y, mean, var, f = np.array([2.0, 9.0]), 0.0, 0.5, np.log([1.0, 2.0])
    >>> noise.check_target(y)
    >>> noise.predict_mean(mean, var).round(2), noise.predict_var(mean, var).round(1)
    (array([ 1.28, 12.84]), array([  2.4, 119.8]))
    >>> noise.var_of_mean(mean, var).round(1)  # of that, what more data would reduce
    array([  1.1, 107. ])
    >>> noise.predict_quantile(mean, var, 0.9), noise.predict_cdf(y, mean, var).round(2)
    (array([ 3., 26.]), array([0.84, 0.48]))
    >>> noise.log_density(y, mean, var).round(2)
    array([-1.8 , -2.89])
    >>> noise.mean_given(f).round(9).tolist(), noise.var_given(f).round(9).tolist()
    ([1.0, 20.0], [1.0, 20.0])
    >>> noise.cdf(y, f).round(3).tolist(), noise.sample(f, np.random.default_rng(0)).shape
    ([0.92, 0.005], (2,))

    What inference uses:

    >>> value, slope, curvature = noise.derivatives(y, f)
    >>> noise.log_prob_grad(y, f)
    {}
    >>> np.allclose(noise.log_prob(y, f), value + noise.log_constant(y))
    True
    """

    support = "real"

    @property
    def regular(self) -> Any:
        """The model of rows that are no outliers: what intervals and deviations of new rows are made of."""
        return self

    def derivatives(self, y: Floats, f: Floats) -> Three:
        """log p(y | f) less `log_constant(y)`, its first derivative in f and minus its second."""
        raise NotImplementedError

    def log_constant(self, y: Floats) -> Floats:
        """The part of log p(y | f) in which f does not occur."""
        return 0.0

    def log_prob_grad(self, y: Floats, f: Floats) -> dict[str, FloatArray]:
        """Name -> d log p(y | f) / d parameter, for the parameters other than `bias`."""
        return {}

    def log_prob(self, y: Floats, f: Floats) -> FloatArray:
        return self.derivatives(y, f)[0] + self.log_constant(y)

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        return tilted(self, y, mean, var)

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        return tilted(self, y, mean, var, gradients=True)

    def log_density(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        """Log density, or log probability, of an observation y of a new row with f ~ N(mean, var)."""
        return self.log_partition(y, mean, var)[0]

    def mean_given(self, f: Floats) -> FloatArray:
        """E[y | f]."""
        raise NotImplementedError

    def var_given(self, f: Floats) -> FloatArray:
        """Variance of y given f."""
        raise NotImplementedError

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        """P(Y <= y | f), which falls as f grows. For counts: a continuous function of y > -1."""
        raise NotImplementedError

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        """One observation for each latent value."""
        raise NotImplementedError

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        """Mean of an observation of a new row with f ~ N(mean, var)."""
        return normal_mean(self, lambda noise, f: noise.mean_given(f), mean, var)

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        """Variance of an observation of a new row with f ~ N(mean, var)."""
        return normal_mean(self, lambda noise, f: noise.var_given(f), mean, var) + self.var_of_mean(mean, var)

    def var_of_mean(self, mean: Floats, var: Floats) -> FloatArray:
        """Variance of E[y | f] for f ~ N(mean, var): the part that more data would reduce."""
        square = normal_mean(self, lambda noise, f: noise.mean_given(f) ** 2, mean, var)
        return np.maximum(square - self.predict_mean(mean, var) ** 2, 0.0)

    def predict_cdf(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        """Probability that an observation of a new row with f ~ N(mean, var) is at most y."""
        return mixture_cdf(self, y, mean, var)

    def predict_quantile(self, mean: Floats, var: Floats, q: Floats) -> FloatArray:
        """Quantile q of an observation of a new row with f ~ N(mean, var)."""
        return mixture_quantile(self, mean, var, q)

    def typical_bias(self, y: FloatArray) -> float:
        """The bias under which the mean of all rows is that of the targets y, where f is zero."""
        return 0.0

    def check_target(self, y: FloatArray) -> None:
        """Raise `LabelError` where y, or a field with one entry per row, is not what the model needs."""
        refuse(~np.isfinite(y), y, "y", "A finite number is needed: leave the row out, or fill it in.")


class Mixture(NoiseModel):
    """p(y | f) is a weighted sum of two densities, whose Z are known: not log-concave."""

    log_concave = False

    def _parts(self, y: Floats, mean: Floats, var: Floats) -> tuple[Sequence[Floats], Sequence[Three]]:
        """Logarithms of the two weights, and log_z, g and nu of the densities."""
        raise NotImplementedError

    def _mixed(self, y: Floats, mean: Floats, var: Floats) -> tuple[Three, list[FloatArray], Sequence[Three]]:
        """log_z, g and nu; the shares of the two densities in Z; and what they have themselves."""
        log_weights, parts = self._parts(y, mean, var)
        (_, g_p, nu_p), (_, g_q, nu_q) = parts
        with np.errstate(invalid="ignore"):  # where both weights are zero
            logs = [weight + part[0] for weight, part in zip(log_weights, parts, strict=True)]
            log_z = np.logaddexp(*logs)
            # Their sum is one even where the logarithms have no digits to spare.
            p, q = shares = [expit(logs[0] - logs[1]), expit(logs[1] - logs[0])]
        # -d**2 log Z / d mean**2: the mean of the parts less the variance of their slopes.
        nu = p * nu_p + q * nu_q - p * q * (g_p - g_q) ** 2
        return (log_z, p * g_p + q * g_q, nu), shares, parts

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        return self._mixed(y, mean, var)[0]


def log_shares(of_second: Floats) -> tuple[FloatArray, FloatArray]:
    """Logarithms of two weights that sum to one."""
    with np.errstate(divide="ignore"):  # log 0 = -inf is right where there is no second part
        return np.log1p(-np.asarray(of_second)), np.log(of_second)


def refuse(bad: Any, values: Any, what: str, remedy: str) -> None:
    """Raise `LabelError` with the first value that is bad, and its row."""
    rows = np.flatnonzero(bad)
    if len(rows):
        value = np.broadcast_to(values, np.shape(bad))[rows[0]]
        raise LabelError(f"{what} is {value:g} in row {rows[0]}. {remedy}")
