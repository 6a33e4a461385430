"""What a sparse regressor learns from: targets in standard units, and the noise of every row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._observations import Latent, ObservationsMixin, check_fields, check_rows
from gleangp.estimators._parameters import generator_from
from gleangp.estimators._problems import ActiveProblem, LocalProblem, some_inputs
from gleangp.estimators._sparse import SparseGPMixin
from gleangp.exceptions import LabelError
from gleangp.kernels import has_white
from gleangp.models.default_kernel import default_kernel, default_priors, noise_prior
from gleangp.models.defaults import LINKED_PRIORS, PRIORS, START_KERNEL, UNITS
from gleangp.models.likelihood import GaussianNoise, PropagatedNoise
from gleangp.models.local.data import Data
from gleangp.models.local.model import LocalModel
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.models.units import (
    natural_units,
    own_units,
    task_units,
    total_units,
)
from gleangp.noise import Gaussian, noise_from_name
from gleangp.numerics.parallel import threads_for


class RegressionMixin(SparseGPMixin, ObservationsMixin):
    """For a regressor with the parameters `normalize_y`, `noise` and `noise_variance`."""

    kernel_: Any
    normalize_y: bool
    noise: Any
    noise_: Any
    noise_variance: Any

    def _active_problem(self, rows: Data, at: IntArray, fields: dict[str, FloatArray]) -> ActiveProblem:
        """What the model of active points is learnt from: the rows `at`, with targets in their own units."""
        asked = [f"{name}=" for name in fields] + [f"noise={self.noise!r}"] * (self.noise != "gaussian")
        if asked:
            raise ValueError(
                f"{asked[0]} needs posterior='local' without invariances; this fit has "
                f"posterior={self.posterior!r}."
            )
        n_tasks, data = rows.n_tasks, rows.at(at)
        self._units = task_units(_parts(data)) if self.normalize_y else natural_units(n_tasks)
        kernel = self._given_kernel() or default_kernel(
            some_inputs(data), offset=n_tasks > 1, linear=n_tasks > 1
        )
        priors = self.priors
        if priors is None:
            priors = {**noise_prior(), **(default_priors(kernel) if self.kernel is None else {})}
        variance = self._known_variance(len(rows))
        if self.noise_variance is not None:
            start = float(self.noise_variance) if variance is None else variance
        else:
            start = START_KERNEL.no_noise if has_white(kernel) else UNITS.noise
        learn = ("variance",) if self.noise_variance is None and not has_white(kernel) else ()
        noise = Gaussian(start)
        parameters = self._check_priors(Parameters(kernel, noise, learn, priors))
        data = replace(data, y=self._units.to_standard(data.y, data.codes), noise=noise.at(at))
        return ActiveProblem(data, at, generator_from(self.random_state), parameters, len(rows))

    def _local_problem(self, rows: Data, at: IntArray, fields: dict[str, FloatArray]) -> LocalProblem:
        """What the model of blocks and a basis is learnt from."""
        data, model, noise = rows.at(at), self._noise_model(fields), rows.noise
        real = model is None or model.support == "real"
        likelihood: Any
        if model is None:
            variance, known = self._known_variance(len(rows)), None
            if self.noise_variance is not None:
                known = 1.0 if variance is not None else float(self.noise_variance)
            elif self.kernel is not None and has_white(self.kernel):
                known = START_KERNEL.no_noise
            noise = (np.ones(len(rows)) if variance is None else variance) / fields.get("sample_weight", 1.0)
            noise, likelihood = noise[at], GaussianNoise(data.sizes, known)
        else:
            check_rows(model, rows.y, at)
            noise = model.at(at)
            noise = replace(noise, bias=noise.typical_bias(data.y))
            learn = tuple(name for name in noise.transforms if name != "bias")
            of_noise = {name: LogNormal(*noise.priors[name]) for name in learn if name in noise.priors}
            # What belongs to the training rows is not kept.
            shared = replace(noise, **dict.fromkeys(fields, 1.0))
            likelihood = PropagatedNoise(shared, learn, of_noise, data.sizes)
        if not (self.normalize_y and real):
            self._units = natural_units(rows.n_tasks)
        else:  # outputs are in units of their own
            self._units = own_units(_parts(data)) if self._n_outputs else total_units(_parts(data))
        data = replace(data, y=self._units.to_standard(data.y, data.codes), noise=noise)
        rng, widths = generator_from(self.random_state), PRIORS if real else LINKED_PRIORS
        return LocalProblem(data, at, rng, likelihood, self._given_kernel(), widths)

    def _noise_model(self, fields: dict[str, FloatArray]) -> Any:
        """The noise model of all rows; None for Gaussian noise, which has a closed form."""
        if isinstance(self.noise, Gaussian):
            raise ValueError("noise is a Gaussian object. Use noise='gaussian' and noise_variance=.")
        if self.noise == "gaussian":
            check_fields(Gaussian(), **{**fields, "sample_weight": None})
            return None
        model: Any = noise_from_name(self.noise) if isinstance(self.noise, str) else self.noise
        if getattr(model, "support", "label") == "label":
            raise ValueError(
                f"noise is a {type(model).__name__} object, which is not for numbers. For labels use "
                "SparseGPClassifier or SparseGPOrdinal; your own model inherits from gleangp.noise.Noise."
            )
        if self.noise_variance is not None:
            raise ValueError(f"noise_variance= is given with noise={self.noise!r}. It is for 'gaussian'.")
        check_fields(model, **fields)
        return replace(model, **fields)

    def _row_fields(self, n_rows: int, *given: Any) -> dict[str, FloatArray]:
        """What was given for every row, by name."""
        fields = {}
        for name, values in zip(("sample_weight", "exposure", "trials"), given, strict=True):
            if values is None:
                continue
            array = self._of_rows(name, values, n_rows)
            if name != "sample_weight" or (array != 1.0).any():
                fields[name] = array
        return fields

    def _of_rows(self, name: str, given: Any, n_rows: int) -> FloatArray:
        """Positive numbers that were given for every row, or every cell of Y: one per encoded row."""
        values, q = np.asarray(given, dtype=np.float64), self._outputs_asked_for(None)
        if q and values.shape == (n_rows // q, q):
            values = values.ravel(order="F")
        elif q and values.shape == (n_rows // q,):
            values = np.tile(values, q)
        else_allowed = {"sample_weight": ", or zero for some of them", "noise_variance": ", or a single one"}
        allowed = np.isfinite(values) & ((values >= 0.0) if name == "sample_weight" else (values > 0.0))
        if values.shape != (n_rows,) or not allowed.all() or not values.any():
            raise LabelError(
                f"{name} has shape {values.shape} and least value {np.min(values, initial=np.inf):.3g}; one "
                f"positive number is expected for each of the {n_rows} rows{else_allowed.get(name, '')}."
            )
        return values

    def _known_variance(self, n_rows: int) -> FloatArray | None:
        """The noise of every row, if it was given."""
        by_row = np.ndim(self.noise_variance) > 0
        return self._of_rows("noise_variance", self.noise_variance, n_rows) if by_row else None

    def _latent(self, X: Any, tasks: Any, *, joint: bool = False, with_var: bool = True) -> Latent:
        X, codes = self._encode_inputs(X, tasks, joint=joint)
        with threads_for(np.bincount(codes)):
            if joint:
                mean, spread = self._model.predict_cov(X, codes)
                spread.flat[:: len(X) + 1] -= self._white(X, codes)
                return Latent(X, codes, mean, spread)
            mean, spread, *factor = self._model.predict(X, codes, with_var=with_var)
            spread = spread - self._white(X, codes) if with_var else spread
        return Latent(X, codes, mean, spread, *factor)

    def _white(self, X: FloatArray, codes: np.ndarray) -> FloatArray | float:
        """The part of the latent variance that is noise; of a kernel of the user it is left there."""
        own = self.kernel is None and self._has_normal_noise and has_white(self.kernel_)
        return self._model.white_var(X, codes) if own and isinstance(self._model, LocalModel) else 0.0

    @property
    def _fitted_noise(self) -> Any:
        return self.noise_

    def _noise_of_rows(self, f: Latent, exposure: Any, trials: Any) -> Any:
        noise, model = self._noise_of_new_rows(len(f.X), exposure, trials), self._model
        if isinstance(model, LocalModel):
            noise = model.noise_of_rows(f.X, f.codes, noise, f.factor)
        return Gaussian(noise.variance + self._white(f.X, f.codes)) if self._has_normal_noise else noise

    def _noise_of_new_rows(
        self, n_rows: int, exposure: Any, trials: Any, weight: FloatArray | None = None
    ) -> Any:
        """The noise model of rows; an exposure or trials that are not given are one."""
        check_fields(self.noise_, exposure=exposure, trials=trials)
        if not self._has_normal_noise:
            known = {name: 1.0 for name in ("exposure", "trials") if hasattr(self.noise_, name)}
            return replace(self.noise_, **{**known, **self._row_fields(n_rows, None, exposure, trials)})
        if np.ndim(self.noise_variance):
            raise ValueError(
                "noise_variance was given per training row, so the noise of new rows is not known. Fit "
                "again with the new rows; in predict, leave include_noise=False and add it yourself."
            )
        return self.noise_ if weight is None else Gaussian(self.noise_.variance / weight)


def _parts(data: Data) -> list[FloatArray]:
    """Targets of every task, sorted."""
    return [np.sort(data.y[rows]) for rows in blocks_of_rows(data.codes, data.n_tasks)]
