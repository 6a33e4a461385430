"""Urtasun, Quattoni & Darrell 2007, Figure 2: latent spaces of two digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from gleangp import SharedLatentGPClassifier
from gleangp.plots._base import color_of
from gleangp.reproduce.experiment import Column, Context, Experiment, Method, Outcome, Quick
from gleangp.reproduce.experiments._estimators import Split
from gleangp.reproduce.experiments._uqd07 import PAPER, load_digits, regressor_error
from gleangp.reproduce.figures import new_figure
from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import shown


def problem(context: Context) -> Split:
    """100 rows each of 3's and 5's to learn from, 50 each to test."""
    X, y = load_digits()
    rng = context.rng()
    rows = np.stack([rng.choice(np.flatnonzero(y == digit), 150, replace=False) for digit in (3, 5)])
    old, new = rows[:, :100].ravel(), rows[:, 100:].ravel()
    return Split(X[old], (y[old] == 3).astype(int), X[new], (y[new] == 3).astype(int))


def _outcome(split: Split, old: np.ndarray, new: np.ndarray) -> Outcome:
    error = regressor_error(old, split.y, new, split.y_test)
    points = {"old": old[:, :2].tolist(), "new": new[:, :2].tolist(), "labels": split.y.tolist()}
    return Outcome({"error": error}, points)


def pca(split: Split, context: Context) -> Outcome:
    """Two principal components."""
    found = PCA(2, random_state=0).fit(split.X)
    return _outcome(split, found.transform(split.X), found.transform(split.X_test))


def latent_method(name: str, role: str, **parameters: Any) -> Method:
    """A latent space; the error is that of a Gaussian process on its positions."""

    def run(split: Split, context: Context) -> Outcome:
        model = SharedLatentGPClassifier(
            random_state=0, max_iter=context.options["max_iter"], **parameters
        ).fit(split.X, split.y)
        return _outcome(split, model.embedding_, model.transform(split.X_test))

    return Method(name, run, role, repr(SharedLatentGPClassifier(random_state=0, **parameters)))


NAMES = ("PCA", "discriminative", "discriminative, back-constraints", "default")
METHODS = (
    Method("PCA", pca, "paper", "two principal components"),
    latent_method("discriminative", "paper", back_constraint=None, label_noise="gaussian", **PAPER),
    latent_method("discriminative, back-constraints", "paper", label_noise="gaussian", **PAPER),
    latent_method("default", "default"),
)


def draw(results: Results) -> dict[str, Any]:
    """Training rows in the colours of their classes, test rows in black, as in the paper."""
    names = [n for n in NAMES if shown(results, n)]
    figure, axes = new_figure(len(names), width=3.4, height=3.4)
    for ax, name in zip(axes, names, strict=True):
        found = shown(results, name)
        old, labels = np.array(found["old"]), np.array(found["labels"])
        ax.plot(*old[labels == 1].T, ".", color=color_of(1), label="3")
        ax.plot(*old[labels == 0].T, ".", color=color_of(2), label="5")
        ax.plot(*np.array(found["new"]).T, "x", color="black", ms=4, mew=0.8, label="test")
        ax.set_title(name, fontsize=9)
    axes[0].legend(fontsize=8)
    return {"spaces": figure}


EXPERIMENT = Experiment(
    name="latent",
    source="UQD07 Figure 2",
    shows="Two-dimensional spaces of 3's and 5's: principal components against discriminative ones.",
    problem=problem,
    methods=METHODS,
    columns=(Column("error", -1, 3),),
    n_runs=10,
    options={"max_iter": 100},
    quick=Quick(n_runs=1, options={"max_iter": 20}),
    draw=draw,
    notes=(
        "The paper shows one picture and no number; it does not name its two classes. Errors are those of a "
        "Gaussian process on the two coordinates, over ten draws of 200 and 100 rows.",
    ),
)
