"""Random fits: all estimators, selectors, kinds of noise and posteriors, at scales from 1e-300 to 1e300.

    python -m tests.endurance.random_fits --count 5000 [--seed 0]

Every fit draws an estimator with its parameters, and a table: its size, tasks, units of inputs and targets,
and what is odd about it. A fit may be refused with an error that gleangp raises itself. What is predicted is
finite, no deviation is negative, and the saved model loads and predicts the same. The seed of a fit that is
neither is printed.
"""

from __future__ import annotations

import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, PairwiseKernel

import gleangp
from gleangp import (
    HierarchicalGPRegressor,
    Order,
    SharedLatentGPClassifier,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
    load,
    save,
)
from gleangp.exceptions import GleanError, ModelFileError
from tests.endurance.every_estimator import outputs
from tests.endurance.seeds import command, run_seeds, say, text_of

LONGEST = 60.0  # CPU seconds
_SOURCE = str(Path(gleangp.__file__).parent)
_SELECTORS = ["residual", "entropy", "information", "random", "graph"]
_KERNELS = [
    None,
    ConstantKernel() * RBF(),
    Matern(nu=1.5),
    DotProduct() + RBF(),
    PairwiseKernel(metric="rbf"),
]
_ODD = ["", "", "constant column", "repeated rows", "outlier", "far away", "constant target", "two values"]


class _Draw:
    """Values drawn at random."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one_of(self, values: list[Any]) -> Any:
        """One of the values."""
        return values[self.rng.integers(len(values))]

    def unit(self) -> float:
        """A power of ten: most are moderate, the others anything that floating point has."""
        return 10.0 ** (self.rng.uniform(-300, 300) if self.rng.random() < 0.2 else self.rng.uniform(-8, 8))


def draw_estimator(draw: _Draw) -> tuple[Any, str]:
    """An estimator, and the kind of its target."""
    kind = draw.one_of(["regressor"] * 3 + ["classifier"] * 2 + ["ordinal", "hierarchy", "latent"])
    common: dict[str, Any] = {"random_state": 0, "kernel": draw.one_of(_KERNELS)}
    if kind == "latent":
        common |= {"n_components": 1, "max_iter": 10, "hidden_units": 3, "kernel": None}
        common |= {"transfer": draw.one_of(["blend", "latent"]), "n_active": draw.one_of([None, 8])}
        common |= {"back_constraint": draw.one_of(["mlp", None])}
        if draw.rng.random() < 0.5:
            return SharedLatentGPRegressor(**common), "numbers"
        return SharedLatentGPClassifier(**common, label_noise=draw.one_of(["gaussian", "probit"])), "classes"
    common |= {"optimizer": draw.one_of(["l-bfgs-b", "l-bfgs-b", None]), "selector": draw.one_of(_SELECTORS)}
    common |= {"n_active": draw.one_of([None, None, 2, 0.5]), "n_rounds": 1}
    if kind == "hierarchy":
        more = {"mean": draw.one_of([None, "common"]), "theta_uncertainty": draw.one_of([True, False])}
        return HierarchicalGPRegressor(**common, **more), "numbers"
    common |= {"posterior": draw.one_of(["local", "active"])}
    common |= {"coupling": draw.one_of(["auto", "kernel", "function", "coregion"])}
    if common["posterior"] == "active" and common["coupling"] != "auto":
        common["coupling"] = "kernel"
    if kind == "regressor":
        noises = ["gaussian"] * 4 + ["outliers", "poisson", "negative_binomial", "gamma"]
        noise = draw.one_of(noises) if common["posterior"] == "local" else "gaussian"
        target = {"gaussian": "numbers", "outliers": "numbers", "gamma": "positive"}.get(noise, "counts")
        variance = draw.one_of([None, None, 1e-9, 0.1]) if noise == "gaussian" else None
        more = {"noise": noise, "noise_variance": variance, "normalize_y": draw.one_of([True, True, False])}
        return SparseGPRegressor(**common, **more), target
    more = {"sites": draw.one_of(["adf", "ep"])}
    if kind == "ordinal":
        return SparseGPOrdinal(**common, **more), "grades"
    noise = draw.one_of(["probit", "logit", "robust"]) if common["posterior"] == "local" else "probit"
    return SparseGPClassifier(**common, **more, noise=noise), draw.one_of(["classes", "grades"])


def draw_table(draw: _Draw, target: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, str]:
    """Inputs, targets, tasks or None, and what is odd."""
    rng, odd = draw.rng, draw.one_of(_ODD)
    n_tasks = int(rng.integers(1, 5))
    n, p = int(rng.integers(6 * n_tasks, 14 * n_tasks)), int(rng.integers(1, 4))
    X, codes = rng.normal(size=(n, p)), np.arange(n) % n_tasks
    y = np.sin(2.0 * X[:, 0]) + 0.4 * codes + 0.2 * rng.normal(size=n)
    if odd == "constant column":
        X[:, -1] = 1.0
    elif odd == "repeated rows":
        X[n // 2 :] = X[: n - n // 2]
    elif odd == "outlier":
        X[0], y[0] = 1e8, 1e8
    elif odd == "far away":
        X, y = X + 1e9, y + 1e9
    elif odd == "two values":
        X = np.sign(X)
    if target == "grades":
        y = np.searchsorted(np.quantile(y, [0.33, 0.66]), y)
    elif target == "classes":
        y = y > np.median(y)
    elif odd == "constant target":
        y[:] = y[0]
    if target in ("counts", "positive"):
        y = np.exp(np.clip(y, -5, 5))
        y = np.floor(y * draw.one_of([1.0, 100.0])) if target == "counts" else y * draw.unit()
    elif target == "numbers":
        y = y * draw.unit()
    X = X * (draw.unit() if rng.random() < 0.5 else np.array([draw.unit() for _ in range(p)]))
    return X, y, None if n_tasks == 1 and rng.random() < 0.5 else codes, odd


def one_fit(seed: int) -> tuple[str, str]:
    """How a fit ended: "finite", "refused", "not finite", "foreign", "slow" or "not saved"; what it was."""
    draw = _Draw(seed)
    model, target = draw_estimator(draw)
    X, y, tasks, odd = draw_table(draw, target)
    given = {"constraints": [Order(0, len(X) - 1)]} if isinstance(model, HierarchicalGPRegressor) else {}
    if not (given and tasks is None and draw.rng.random() < 0.5):
        given = {}
    start, what = time.process_time(), f"{model!r} on {X.shape}, {odd or 'plain'}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, tasks, **given)
            at = np.vstack([X, X[:3] + 0.5 * np.abs(X).max(0)])
            of = None if tasks is None else np.append(tasks, tasks[:3])
            said = outputs(model, at, of)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        ours = isinstance(error, GleanError) or place.startswith(_SOURCE)
        how = "refused" if ours and isinstance(error, ValueError) else "foreign"
        return how, f"{what}: {text_of(error)}"
    if time.process_time() - start > LONGEST:
        return "slow", what
    negative = not hasattr(model, "predict_proba") and (said[:, 1] < 0).any()
    if negative or not np.isfinite(said).all():
        return "not finite", what
    return ("finite" if _loads(model, at, of, said) else "not saved"), what


def _loads(model: Any, at: np.ndarray, of: Any, said: np.ndarray) -> bool:
    """Whether the model predicts the same after it was saved and loaded."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(model, Path(folder) / "model.glean")
        try:
            again = load(Path(folder) / "model.glean")
        except ModelFileError:
            return False
        return np.array_equal(outputs(again, at, of), said)


def random_fits(count: int, seed: int = 0, report: Any = None) -> Counter:
    """How so many fits ended; `report` is called with every one that should not have ended so."""
    return run_seeds(one_fit, count, seed, report)


if __name__ == "__main__":
    command(__doc__, random_fits, 5000, report=say)
