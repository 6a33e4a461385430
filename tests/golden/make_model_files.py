"""Writes the model files kept here. Run it for a new format version or estimator, never over old files."""

import json
from pathlib import Path

import numpy as np

import gleangp

HERE = Path(__file__).parent


def keep(name, model, X, tasks):
    """Save the model with what it predicts, unless that name is taken."""
    path = HERE / f"{name}.glean"
    if path.exists():
        return
    gleangp.save(model, path)
    expected = {"gleangp": gleangp.__version__, "X": X.tolist(), "tasks": tasks}
    if hasattr(model, "predict_proba"):
        expected["proba"] = model.predict_proba(X, tasks=tasks).tolist()
    else:
        mean, std = model.predict(X, tasks=tasks, return_std=True)
        expected.update(mean=mean.tolist(), std=std.tolist())
    path.with_suffix(".json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(40)
    tasks = ["north"] * 20 + ["south"] * 20
    new = rng.uniform(-2, 2, (6, 2))
    new_tasks = ["north", "south"] * 3
    keep(
        "sparse_regressor_v1",
        gleangp.SparseGPRegressor(n_active=10, random_state=0).fit(X, y, tasks=tasks),
        new,
        new_tasks,
    )
    keep(
        "sparse_classifier_v1",
        gleangp.SparseGPClassifier(n_active=10, random_state=0).fit(
            X, np.digitize(y, [-0.4, 0.4]), tasks=tasks
        ),
        new,
        new_tasks,
    )
