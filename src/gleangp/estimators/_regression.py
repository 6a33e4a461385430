"""What a sparse regressor learns from: targets in standard units, and the noise of every row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.estimators._active import ActiveProblem
from gleangp.estimators._defaults import default_priors, noise_prior, task_priors
from gleangp.estimators._local import LocalProblem
from gleangp.estimators._outputs import OutputsMixin
from gleangp.estimators._random import generator_from
from gleangp.estimators._sparse import SparseGPMixin
from gleangp.estimators._targets import TargetUnits, natural_units, own_units, standard_units, total_units
from gleangp.estimators._training_rows import LocalRows, StandardTargets
from gleangp.exceptions import LabelError
from gleangp.kernels import has_white
from gleangp.models.defaults import LINKED_PRIORS, PRIORS, UNITS
from gleangp.models.likelihood import GaussianNoise, PropagatedNoise
from gleangp.models.local.model import LocalModel
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.noise import Gaussian, noise_from_name

# Noise that takes what is given for every row.
_FIELDS = {
    "exposure": "noise='poisson' and 'negative_binomial'",
    "trials": "noise='binomial'",
    "sample_weight": "noise='gaussian'",
}
# Where all noise is in the kernel's white part, the rest only keeps matrices factorable (the
# default of scikit-learn's exact regressor).
_NO_OTHER_NOISE = 1e-10


class RegressionMixin(SparseGPMixin, OutputsMixin):
    """For a regressor with the parameters `normalize_y`, `noise` and `noise_variance`."""

    kernel_: Any
    normalize_y: bool
    noise: Any
    noise_: Any
    noise_variance: Any
    _units: TargetUnits
    _n_outputs: int

    def _active_problem(self, rows: LocalRows) -> ActiveProblem:
        """What the model of active points is learnt from."""
        self._units = standard_units(rows.moments()) if self.normalize_y else natural_units(rows.n_tasks)
        several = rows.n_tasks > 1
        kernel = self._start_kernel(lambda: self._default_kernel(rows, offset=several, linear=several))
        priors = self.priors
        if priors is None:
            n_features = rows.inputs.shape[1]
            own = task_priors(kernel, n_features) if several else default_priors(kernel)
            priors = {**noise_prior(), **(own if self.kernel is None else {})}
        variance = self._known_variance(rows.n_rows)
        if self.noise_variance is not None:
            start = float(self.noise_variance) if variance is None else variance
        else:
            start = _NO_OTHER_NOISE if has_white(kernel) else UNITS.noise
        learn = ("variance",) if self.noise_variance is None and not has_white(kernel) else ()
        parameters = self._check_priors(Parameters(kernel, Gaussian(start), learn, priors))
        rng = generator_from(self.random_state)
        return ActiveProblem(parameters, rows, StandardTargets(self._units), rng, variance)

    def _local_problem(self, rows: LocalRows, fields: dict[str, FloatArray]) -> LocalProblem:
        """What the model of blocks and a basis is learnt from."""
        model = self._noise_model(fields)
        real = model is None or model.support == "real"
        kept = slice(None) if rows.keep is None else rows.keep
        if model is not None:
            check_rows(model, rows.y, np.ones(len(rows.y), bool) if rows.keep is None else rows.keep)
        scaled = self.normalize_y and real
        if scaled and self._n_outputs:  # each in its own units
            self._units = own_units([rows.y[r] for r in rows.block_rows])
        else:
            self._units = total_units(rows.moments()) if scaled else natural_units(rows.n_tasks)
        likelihood: Any
        if model is None:
            variance, known = self._known_variance(rows.n_rows), None
            if self.noise_variance is not None:
                known = 1.0 if variance is not None else float(self.noise_variance)
            elif self.kernel is not None and has_white(self.kernel):
                known = _NO_OTHER_NOISE
            noise: Any = np.ones(rows.n_rows) if variance is None else variance
            noise = noise / fields.get("sample_weight", 1.0)
            likelihood = GaussianNoise(np.array(rows.sizes), known)
        else:
            noise = replace(model, bias=model.at(kept).typical_bias(rows.y[kept]))
            learn = tuple(name for name in noise.transforms if name != "bias")
            of_noise = {name: LogNormal(*noise.priors[name]) for name in learn if name in noise.priors}
            # What belongs to the training rows is not kept.
            likelihood = PropagatedNoise(replace(noise, **dict.fromkeys(fields, 1.0)), learn, of_noise)
        y = self._units.to_standard(rows.y, rows.codes)
        rng = generator_from(self.random_state)
        widths = PRIORS if real else LINKED_PRIORS
        return LocalProblem(rows, y, likelihood, noise, rng, self._given_kernel(), widths)

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
            array = self._of_cells(np.asarray(values, dtype=np.float64), n_rows)
            may_be_zero = name == "sample_weight"
            allowed = np.isfinite(array) & ((array >= 0.0) if may_be_zero else (array > 0.0))
            if array.shape != (n_rows,) or not allowed.all() or not array.any():
                raise LabelError(
                    f"{name} has shape {array.shape} and least value {np.min(array, initial=np.inf):.3g}; "
                    f"one positive number is expected for each of the {n_rows} rows"
                    f"{', or zero for some of them' if may_be_zero else ''}."
                )
            if name != "sample_weight" or (array != 1.0).any():
                fields[name] = array
        return fields

    def _needs_local(self, fields: dict[str, FloatArray]) -> None:
        """Raise if something was asked for that the other posteriors do not have."""
        asked = [f"{name}=" for name in fields]
        if self.noise != "gaussian":
            asked.append(f"noise={self.noise!r}")
        if asked:
            raise ValueError(
                f"{asked[0]} needs posterior='local' without invariances; this fit has "
                f"posterior={self.posterior!r}."
            )

    def _known_variance(self, n_rows: int) -> FloatArray | None:
        if self.noise_variance is None or np.ndim(self.noise_variance) == 0:
            return None
        variance = self._of_cells(np.asarray(self.noise_variance, dtype=np.float64), n_rows)
        if variance.shape != (n_rows,) or not (variance > 0).all():
            raise LabelError(
                f"noise_variance has shape {variance.shape} and least value {variance.min():.3g}; "
                f"one positive number is expected for each of the {n_rows} rows, or a single one."
            )
        return variance

    def _noise_to_add(self, X: FloatArray, codes: np.ndarray, include_noise: bool) -> FloatArray | float:
        """To the latent variance of new rows; less than nothing where it has noise that was not asked for."""
        if include_noise:
            return self._noise_of_tasks(codes)
        if self.kernel is None and isinstance(self._model, LocalModel) and has_white(self.kernel_):
            return -self._model.white_var(X, codes)
        return 0.0

    def _noise_of_rows(self, n_rows: int, exposure: Any, trials: Any) -> Any:
        """The noise model of new rows; an exposure or trials that are not given are one."""
        check_fields(self.noise_, exposure=exposure, trials=trials)
        fields = self._row_fields(n_rows, None, exposure, trials)
        known = {name: 1.0 for name in ("exposure", "trials") if hasattr(self.noise_, name)}
        return replace(self.noise_, **{**known, **fields})

    def _noise_of_new_rows(
        self, n_rows: int, rows: Any, exposure: Any, trials: Any, weight: FloatArray | None = None
    ) -> Any:
        """The noise of some of the new rows."""
        noise = self._noise_of_rows(n_rows, exposure, trials)
        if not isinstance(noise, Gaussian):
            return noise.at(rows)
        variance = self._noise_at_new_rows()
        if weight is None or (weight[rows] == 1.0).all():
            return Gaussian(variance)
        return Gaussian(variance / weight[rows])

    def _noise_at_new_rows(self) -> float:
        if np.ndim(self.noise_variance):
            raise ValueError(
                "noise_variance was given per training row, so the noise of new rows is not known. Fit "
                "again with the new rows; in predict, leave include_noise=False and add it yourself."
            )
        return self.noise_.variance

    def _noise_of_tasks(self, codes: np.ndarray) -> FloatArray | float:
        """Variance of Gaussian noise of new rows, in standard units."""
        shared = self._noise_at_new_rows()
        return self._model.noise_variance(codes) if isinstance(self._model, LocalModel) else shared


def check_fields(noise: Any, **given: Any) -> None:
    """Raise if something is given for the rows that the noise model does not have."""
    wrong = [name for name, values in given.items() if values is not None and not hasattr(noise, name)]
    if wrong:
        name, model = wrong[0], type(noise).__name__
        raise ValueError(f"{name}= is given, but {model} noise has no {name}. It is for {_FIELDS[name]}.")


def check_rows(noise: Any, y: FloatArray, labeled: np.ndarray) -> None:
    """Raise `LabelError` if a target does not fit the noise, with its number among all rows."""
    try:
        noise.at(labeled).check_target(y[labeled])
    except LabelError:
        for row in np.flatnonzero(labeled):
            try:
                noise.at(np.array([row])).check_target(y[[row]])
            except LabelError as error:
                raise LabelError(str(error).replace("in row 0", f"in row {row}")) from None
        raise
