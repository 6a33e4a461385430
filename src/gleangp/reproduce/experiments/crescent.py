"""Lawrence, Platt & Jordan 2005, Figure 5: the null category on two crescents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from gleangp import SparseGPClassifier
from gleangp.datasets import load_crescent
from gleangp.plots._base import color_of
from gleangp.reproduce.experiment import Column, Context, Experiment, Method, Outcome, Quick
from gleangp.reproduce.figures import new_figure
from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import shown

FILE, MANY, FEW = "the authors' file", "labelled with probability 0.1", "4 labels a class"
GRID = 60


@dataclass(frozen=True)
class Crescents:
    """Points, labels (0: none) and classes; of the authors' file classes are not known."""

    X: np.ndarray
    y: np.ndarray
    classes: np.ndarray | None


def problem(context: Context) -> Crescents:
    """The authors' 400 points, or 400 new ones of the same kind."""
    if context.setting == FILE:
        X, y = load_crescent(return_X_y=True)
        return Crescents(X, y, None)
    rng = context.rng()
    side = rng.choice([-1, 1], size=400)
    angle, radius = rng.uniform(0, np.pi, 400), 5 + 0.7 * rng.standard_normal(400)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]) * side[:, None]
    X += side[:, None] * [2.5, -1.0]
    labelled = rng.random(400) < 0.1
    if context.setting == FEW:
        labelled[:] = False
        for c in (-1, 1):
            labelled[rng.choice(np.flatnonzero(side == c), 4, replace=False)] = True
    return Crescents(X, np.where(labelled, side, 0), side)


def sparse_method(name: str, role: str, make: Callable[[], Any], *, labelled_only: bool) -> Method:
    """A sparse classifier of all points, or of the labelled ones."""

    def run(data: Crescents, context: Context) -> Outcome:
        rows = data.y != 0 if labelled_only else np.ones(len(data.y), dtype=bool)
        model = make().fit(data.X[rows], data.y[rows])
        values = _values(data, model.predict(data.X))
        if data.classes is not None or context.run > 0:
            return Outcome(values)
        axes = [np.linspace(*_range(data.X[:, j]), GRID) for j in (0, 1)]
        grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        latent = [float(f) for f in model.decision_function(grid)]
        active = np.flatnonzero(rows)[model.active_]
        return Outcome(values, {"decision": latent, "active": active.tolist()})

    kind = "labelled rows only: " if labelled_only else ""
    return Method(name, run, role, kind + " ".join(repr(make()).split()))


def plain_method(name: str, make: Callable[[], Any]) -> Method:
    """A semi-supervised classifier of scikit-learn, on standardised points."""

    def run(data: Crescents, context: Context) -> Outcome:
        Z = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
        codes = np.where(data.y != 0, (data.y > 0).astype(int), -1)
        return Outcome(_values(data, 2 * make().fit(Z, codes).predict(Z) - 1))

    return Method(name, run, "other", " ".join(repr(make()).split()))


def _range(x: np.ndarray) -> tuple[float, float]:
    return float(x.min()) - 1.0, float(x.max()) + 1.0


def _values(data: Crescents, found: np.ndarray) -> dict[str, float]:
    if data.classes is not None:
        return {"error %": 100.0 * float(np.mean(found != data.classes))}
    has = data.y != 0
    return {"error % of labelled points": 100.0 * float(np.mean(found[has] != data.y[has]))}


METHODS = (
    sparse_method(
        "default", "default", lambda: SparseGPClassifier(unlabeled=0, random_state=0), labelled_only=False
    ),
    sparse_method(
        "null category, d = 100", "paper",
        lambda: SparseGPClassifier(unlabeled=0, posterior="active", n_active=100, random_state=0),
        labelled_only=False,
    ),
    sparse_method(
        "IVM, labelled points", "paper", lambda: SparseGPClassifier(posterior="active", random_state=0),
        labelled_only=True,
    ),
    plain_method("LabelSpreading", lambda: LabelSpreading(kernel="knn", n_neighbors=7, max_iter=200)),
    plain_method(
        "self-training SVM",
        lambda: SelfTrainingClassifier(SVC(probability=True, C=10.0, random_state=0)),
    ),
)  # fmt: skip


def draw(results: Results) -> dict[str, Any]:
    """Decision boundaries on the authors' points, with those points that are kept."""
    wanted = ("IVM, labelled points", "null category, d = 100", "default")
    names = [n for n in wanted if shown(results, n, FILE)]
    if not names:
        return {}
    X, y = load_crescent(return_X_y=True)
    figure, axes = new_figure(len(names), width=4.0, height=4.0, sharey=True)
    spans = [np.linspace(*_range(X[:, j]), GRID) for j in (0, 1)]
    for ax, name in zip(axes, names, strict=True):
        found = shown(results, name, FILE)
        active = np.array(found["active"], dtype=int)
        ax.plot(*X[y == 0].T, ".", ms=2, color=color_of(6))
        ax.plot(*X[active].T, ".", ms=7, color=color_of(5))
        ax.plot(*X[y == 1].T, "o", mfc="none", mec=color_of(1), ms=7)
        ax.plot(*X[y == -1].T, "x", color=color_of(0), ms=7, mew=2)
        latent = np.array(found["decision"]).reshape(GRID, GRID)
        ax.contour(*spans, latent, levels=[0.0], colors=[color_of(2)], linewidths=2)
        ax.set_title(f"{name} ({len(active)} active)", fontsize=9)
    return {"boundaries": figure}


EXPERIMENT = Experiment(
    name="crescent",
    source="LPJ05 Figure 5",
    shows="Unlabelled points move the decision boundary to where points are thin.",
    problem=problem,
    methods=METHODS,
    columns=(Column("error %", -1, 2), Column("error % of labelled points", -1, 1)),
    n_runs=10,
    settings=(FILE, MANY, FEW),
    setting_name="points",
    once=(FILE,),
    quick=Quick(n_runs=1, settings=(FILE, MANY)),
    draw=draw,
    notes=(
        "The paper shows boundaries and prints no number. True classes of the authors' unlabelled points "
        "are not known, so errors are those of new crescents drawn alike; on the authors' file nothing is "
        "random.",
        "With labelled points only, all of them are kept, as in the paper.",
    ),
)
