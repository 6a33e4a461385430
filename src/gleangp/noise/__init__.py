"""Noise models p(y | f): how a target comes from the latent function.

A noise model is a frozen dataclass. Its fields are numbers, or arrays with one entry per row. Fields named in
`transforms` can be learnt; `exposure` and `trials` are known for every row. `dataclasses.replace` gives the
model of other rows, such as those of a prediction.
"""

from gleangp.io.classes import register
from gleangp.noise.base import Noise, NoiseModel
from gleangp.noise.classes import Logit, Ordered, Probit, RobustProbit
from gleangp.noise.counts import Binomial, Gamma, NegativeBinomial, Poisson
from gleangp.noise.measurements import ContaminatedNormal, Gaussian
from gleangp.noise.null_category import NullCategory

__all__ = [
    "Binomial",
    "ContaminatedNormal",
    "Gamma",
    "Gaussian",
    "Logit",
    "NegativeBinomial",
    "Noise",
    "NoiseModel",
    "NullCategory",
    "Ordered",
    "Poisson",
    "Probit",
    "RobustProbit",
    "noise_from_name",
]

_BY_NAME = {
    "gaussian": Gaussian,
    "outliers": ContaminatedNormal,
    "student": ContaminatedNormal,  # another name, from the usual model of outliers
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "binomial": Binomial,
    "gamma": Gamma,
    "probit": Probit,
    "logit": Logit,
    "robust": RobustProbit,
}

register(*{*_BY_NAME.values(), NullCategory, Ordered} - {Gamma}, GammaNoise=Gamma)  # a prior is Gamma too


def noise_from_name(name: str) -> NoiseModel:
    """The noise model of a name, with its default parameters.

    Parameters
    ----------
    name : str
        "gaussian", "outliers", "poisson", "negative_binomial", "binomial" or "gamma"; for two classes
        "probit", "logit" or "robust".

    Returns
    -------
    NoiseModel
        The model. `dataclasses.replace` sets its parameters, `exposure` or `trials`.

    Examples
    --------
    >>> from gleangp.noise import noise_from_name
    >>> noise_from_name("poisson")
    Poisson(bias=0.0, exposure=1.0)
    """
    if name not in _BY_NAME:
        raise ValueError(
            f"There is no noise model {name!r}. Use one of {list(_BY_NAME)}, or an object of gleangp.noise."
        )
    return _BY_NAME[name]()
