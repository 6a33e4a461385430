"""What a report says, as plain values: held-out errors of every task, baselines, calibration, the kernel."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Kernel,
    Matern,
    Product,
    Sum,
    WhiteKernel,
)

from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor
from gleangp._typing import FloatArray, IntArray
from gleangp.kernels import ScaledInputs
from gleangp.labels import split_unlabeled

_LEVELS = np.linspace(0.1, 0.9, 9)
_HELD_OUT = 0.2
_MOST_OWN_MODELS = 20  # tasks for which a model of their own is fitted as a baseline
_MOST_POOLED_ROWS = 2000  # from which the model without tasks learns, drawn at random


@dataclass(frozen=True, eq=False)
class TaskFacts:
    """One line of the table of tasks."""

    name: str
    rows: int
    active: int
    error: float  # held out: root mean square, or share of wrong labels; nan if no row was held out
    error_alone: float  # of a model of this task's rows alone; nan where none was fitted
    error_average: float  # of the task's mean, or most frequent class


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything on the page."""

    estimator: str
    classify: bool
    target: str
    rows: int
    features: list[str]
    relevance: FloatArray  # (p,) of each feature, largest 1; empty if the kernel does not tell
    kernel: str
    kernel_words: list[str]
    noise_share: float | None  # of the variance within tasks
    log_evidence: float
    seen: bool  # whether the kernel behind the held-out errors was learnt with the held-out rows
    n_unlabeled: int
    n_active: int
    gain: FloatArray
    tasks: list[TaskFacts]
    n_held_out: int
    error: float
    error_average: float
    error_pooled: float
    promised: FloatArray  # calibration: promised and observed shares
    observed: FloatArray

    @property
    def error_alone(self) -> float:
        """Of models per task, over the tasks that have one."""
        return self._mean([t.error_alone for t in self.tasks], [t.error_alone for t in self.tasks])

    @property
    def error_where_alone(self) -> float:
        """Of this model on the same tasks."""
        return self._mean([t.error for t in self.tasks], [t.error_alone for t in self.tasks])

    @staticmethod
    def _mean(values: list[float], where: list[float]) -> float:
        kept = [v for v, w in zip(values, where, strict=True) if np.isfinite(w) and np.isfinite(v)]
        return float(np.mean(kept)) if kept else float("nan")


def gather(
    model: Any,
    X: FloatArray,
    y: np.ndarray,
    tasks: np.ndarray | None,
    *,
    feature_names: list[str] | None,
    target_name: str,
    seed: int = 0,
) -> Facts:
    """Measure: a twin of the model is fitted to four fifths of every task, and all rows without a target.

    Where the twin has the kernel of the model, that was learnt with the held-out rows, so these errors are
    slightly too good; what the twin predicts from it has not seen them.
    """
    classify = is_classifier(model)
    names = np.zeros(len(X), dtype=int) if tasks is None else np.asarray(tasks)
    unique, codes = np.unique(names, return_inverse=True)
    labeled = _labeled(model, y, classify)
    test = _held_out_rows(codes, y, labeled, classify, np.random.default_rng(seed))
    fitted_on = ~test  # with the rows that have no target
    train = labeled & ~test
    given = {} if tasks is None else {"tasks": names}
    twin, seen = _twin(model)
    _fit(twin, X[fitted_on], y[fitted_on], {k: v[fitted_on] for k, v in given.items()})
    some = np.random.default_rng(seed).permutation(np.flatnonzero(train))[:_MOST_POOLED_ROWS]
    pooled = _fit(_fresh(model), X[some], y[some], {})
    prediction = twin.predict(X[test], **{k: v[test] for k, v in given.items()})
    promised, observed = _calibration(
        twin, X[test], y[test], {k: v[test] for k, v in given.items()}, classify
    )
    active = _active_by_task(model, codes, len(unique))
    facts = []
    averages = np.empty(len(y), dtype=object)
    for code, name in enumerate(unique):
        rows, held = (codes == code) & train, (codes == code) & test
        average = _average(y[rows] if rows.any() else y[train], classify)
        averages[held] = average
        alone = float("nan")
        if tasks is not None and code < _MOST_OWN_MODELS and held.any() and len(np.unique(y[rows])) > 1:
            own = _fit(_fresh(model), X[rows], y[rows], {})
            alone = _error(y[held], own.predict(X[held]), classify)
        facts.append(
            TaskFacts(
                str(name) if tasks is not None else "all rows",
                int((codes == code).sum()),
                int(active[code]),
                _error(y[held], prediction[codes[test] == code], classify),
                alone,
                _error(y[held], np.full(int(held.sum()), average), classify),
            )
        )
    features = list(feature_names) if feature_names else [f"x{i}" for i in range(X.shape[1])]
    kernel = model.kernel_
    gains = getattr(model, "active_gain_", np.zeros(0))
    return Facts(
        type(model).__name__,
        classify,
        target_name,
        len(X),
        features,
        _relevance(kernel, X),
        "; ".join(map(str, getattr(kernel, "kernels", [kernel]))),
        _words_of(model, kernel, features),
        None if classify else _noise_share(model),
        float(model.log_evidence_ if hasattr(model, "log_evidence_") else -model.objective_),
        seen,
        int((~labeled).sum()),
        int(active.sum()),
        _mean_gain(gains) if isinstance(gains, list) else np.asarray(gains),
        facts,
        int(test.sum()),
        _error(y[test], prediction, classify),
        _error(y[test], averages[test].astype(y.dtype), classify),
        _error(y[test], pooled.predict(X[test]), classify),
        promised,
        observed,
    )


def _labeled(model: Any, y: np.ndarray, classify: bool) -> np.ndarray:
    """Which rows have a target."""
    if classify:
        return split_unlabeled(y, getattr(model, "unlabeled", None))
    return ~np.isnan(y)


def _held_out_rows(
    codes: IntArray, y: np.ndarray, labeled: np.ndarray, classify: bool, rng: np.random.Generator
) -> np.ndarray:
    """A fifth of every task's labeled rows; a row of each class, or two of numbers, stay to learn from."""
    test = np.zeros(len(codes), dtype=bool)
    for code in range(codes.max() + 1):
        rows = rng.permutation(np.flatnonzero((codes == code) & labeled))
        kept = np.unique(y[rows], return_index=True)[1] if classify else np.arange(min(2, len(rows)))
        free = np.delete(rows, kept)
        test[free[: max(1, round(_HELD_OUT * len(rows)))]] = True
    return test


def _twin(model: Any) -> tuple[Any, bool]:
    """The same model to be fitted to fewer rows, and whether it has the kernel of the first.

    It has it where tasks share the kernel and nothing else. Other models, and those of several classes, learn
    everything anew.
    """
    twin = clone(model).set_params(verbose=0)
    twin.set_callbacks()
    coupling = getattr(getattr(model, "coupling_", None), "name", None)
    kernel_alone = coupling == "kernel"
    if coupling is not None and twin.coupling == "auto":
        twin.set_params(coupling=coupling)  # as chosen
    if isinstance(model, SparseGPRegressor) and kernel_alone:
        variance = float(np.mean(model.noise_.variance))
        return twin.set_params(kernel=model.kernel_, noise_variance=variance, optimizer=None), True
    if isinstance(model, SparseGPClassifier) and kernel_alone and len(model.classes_) == 2:
        return twin.set_params(kernel=model.kernel_, optimizer=None), True
    return twin, False


def _fresh(model: Any) -> Any:
    """The model for its kind of target that learns its own kernel, as a baseline."""
    if isinstance(model, SparseGPOrdinal):
        return SparseGPOrdinal(random_state=0)
    return (SparseGPClassifier if is_classifier(model) else SparseGPRegressor)(random_state=0)


def _noise_share(model: Any) -> float | None:
    """Variance of the noise in units of that of the targets; None where it differs from task to task."""
    if hasattr(model, "noise_"):
        return float(np.mean(getattr(model.noise_, "variance", np.nan)))
    return getattr(model, "noise_variance_", None)


def _fit(model: Any, X: FloatArray, y: np.ndarray, given: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)  # n_active larger than four fifths of the rows
        return model.fit(X, y, **given)


def _average(y: np.ndarray, classify: bool) -> Any:
    if not classify:
        return float(np.mean(y))
    labels, counts = np.unique(y, return_counts=True)
    return labels[np.argmax(counts)]


def _error(y: np.ndarray, predicted: np.ndarray, classify: bool) -> float:
    if len(y) == 0:
        return float("nan")
    return float(np.mean(y != predicted) if classify else np.sqrt(np.mean((y - predicted) ** 2)))


def _calibration(
    twin: Any, X: FloatArray, y: np.ndarray, given: dict[str, Any], classify: bool
) -> tuple[FloatArray, FloatArray]:
    """Promised and observed shares: of central intervals, or of the predicted classes."""
    if classify:
        proba = twin.predict_proba(X, **given)
        sure, hit = proba.max(axis=1), twin.classes_[proba.argmax(axis=1)] == y
        bins = np.array_split(np.argsort(sure, kind="stable"), max(1, min(8, len(y) // 10)))
        return np.array([sure[b].mean() for b in bins]), np.array([hit[b].mean() for b in bins])
    noisy = {"include_noise": True} if "include_noise" in signature(twin.predict).parameters else {}
    mean, std = twin.predict(X, return_std=True, **noisy, **given)
    needed = np.abs(2.0 * ndtr((y - mean) / std) - 1.0)
    return _LEVELS, np.mean(needed[:, None] <= _LEVELS, axis=0)


def _active_by_task(model: Any, codes: IntArray, n_tasks: int) -> IntArray:
    rows = getattr(model, "active_", None)
    if rows is None:
        rows = model.basis_  # of a latent space
    rows = np.concatenate(rows) if isinstance(rows, list) else np.asarray(rows)
    return np.bincount(codes[np.unique(rows)], minlength=n_tasks)


def _mean_gain(gains: list[FloatArray]) -> FloatArray:
    """Of several classes: the mean gain of their first, second, ... points."""
    shortest = min(map(len, gains))
    return np.mean([g[:shortest] for g in gains], axis=0)


def _parts(kernel: Kernel) -> list[Kernel]:
    if isinstance(kernel, Sum | Product):
        return _parts(kernel.k1) + _parts(kernel.k2)
    if isinstance(kernel, ScaledInputs):
        return [kernel]
    return [p for k in kernel.kernels for p in _parts(k)] if hasattr(kernel, "kernels") else [kernel]


def _relevance(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Spread of each feature in units of its length scale, largest 1: how much it moves predictions."""
    total = np.zeros(X.shape[1])
    for part in _parts(kernel):
        scale = getattr(part, "length_scale", None)
        if _is_linear(part):  # its slopes, which are not in the kernel, say which features matter
            continue
        if isinstance(part, ScaledInputs):
            total += np.std(X, axis=0) * np.broadcast_to(part.scales, X.shape[1])
        elif scale is not None and np.size(scale) in (1, X.shape[1]):
            total += np.std(X, axis=0) / np.broadcast_to(scale, X.shape[1])
    return total / total.max() if total.max() > 0 else np.zeros(0)


def _is_linear(kernel: Kernel) -> bool:
    return type(kernel.kernel if isinstance(kernel, ScaledInputs) else kernel) is DotProduct


def _words_of(model: Any, kernel: Kernel, features: list[str]) -> list[str]:
    """Sentences about the kernel of a model, and which part of it tasks have in common."""
    if getattr(getattr(model, "coupling_", None), "name", "") != "function" or not isinstance(kernel, Sum):
        return in_words(kernel, features)
    common = [f"Common to all tasks: {s[0].lower()}{s[1:]}" for s in in_words(kernel.k1, features)]
    own = [f"Own of every task: {s[0].lower()}{s[1:]}" for s in in_words(kernel.k2, features)]
    return common + own


def in_words(kernel: Kernel, features: list[str]) -> list[str]:
    """Sentences about a kernel."""
    if hasattr(kernel, "kernels"):
        return [
            f"One kernel for each class; the first: {s}" for s in in_words(kernel.kernels[0], features)[:1]
        ]
    if isinstance(kernel, Sum):
        return in_words(kernel.k1, features) + in_words(kernel.k2, features)
    if isinstance(kernel, ConstantKernel):
        return [f"An offset of standard deviation {np.sqrt(kernel.constant_value):.3g}."]
    if isinstance(kernel, WhiteKernel):
        return [f"Noise of standard deviation {np.sqrt(kernel.noise_level):.3g}."]
    if isinstance(kernel, Product) and isinstance(kernel.k1, ConstantKernel):
        size = np.sqrt(kernel.k1.constant_value)
        return [f"{_shape_in_words(kernel.k2, features)} Its standard deviation is {size:.3g}."]
    return [_shape_in_words(kernel, features)]


def _shape_in_words(kernel: Kernel, features: list[str]) -> str:
    if _is_linear(kernel):
        return "A linear function of all inputs."
    inner = kernel.kernel if isinstance(kernel, ScaledInputs) else kernel
    smooth = {RBF: "A smooth function", Matern: "A rough function"}.get(type(inner))
    scale = getattr(inner, "length_scale", None)
    if scale is not None and isinstance(kernel, ScaledInputs):
        scale = scale / np.asarray(kernel.scales)
    if smooth is None or scale is None:
        return f"A function with the covariance {kernel}."
    if np.size(scale) == 1:
        return f"{smooth} of all inputs, which changes over distances of about {float(np.mean(scale)):.3g}."
    order = np.argsort(scale)[:3]
    near = ", ".join(f"{features[i]} ({scale[i]:.3g})" for i in order if i < len(features))
    return f"{smooth} that changes fastest along {near} (in brackets: over which distance)."
