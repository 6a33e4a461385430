"""Writes the model files kept here. Run it for a new format version or estimator, never over old files.

`older_sklearn_v1` was written with the versions of constraints/oldest.txt, the others with scikit-learn 1.9.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import sklearn
from sklearn.gaussian_process.kernels import DotProduct, Matern, RationalQuadratic

import gleangp

HERE = Path(__file__).parent


def keep(name, model, X, tasks):
    """Save the model with what it predicts, unless that name is taken."""
    path = HERE / f"{name}.glean"
    if path.exists():
        return
    gleangp.save(model, path)
    expected = {"gleangp": gleangp.__version__, "scikit-learn": sklearn.__version__}
    expected |= {"X": X.tolist(), "tasks": tasks}
    if hasattr(model, "predict_proba"):
        expected["proba"] = model.predict_proba(X, tasks=tasks).tolist()
    else:
        mean, std = model.predict(X, tasks=tasks, return_std=True)
        expected.update(mean=mean.tolist(), std=std.tolist())
    path.with_suffix(".json").write_text(json.dumps(expected, indent=1) + "\n")


def keep_table(name):
    """A model that `gleangp fit` wrote, and its predictions for the table it learnt from."""
    path = HERE / f"{name}.glean"
    if path.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "t.csv", Path(folder) / "o.csv"
        table.write_text(
            "school,hours,kind,score\n"
            + "".join(
                f"s{k % 3},{k / 4},{'day' if k % 2 else 'night'},{np.sin(k / 4) + k % 3:.3f}\n"
                for k in range(24)
            )
        )
        command = [sys.executable, "-m", "gleangp"]
        fit = ["fit", table, "-y", "score", "-t", "school", "--folds", "0", "-o", path]
        subprocess.run([*command, *fit], check=True)
        subprocess.run([*command, "predict", path, table, "-o", out], check=True)
        expected = {"gleangp": gleangp.__version__, "table": table.read_text(), "predicted": out.read_text()}
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
    grades = np.array(["low", "middle", "high"])[np.digitize(y, [-0.4, 0.4])]
    some = np.where(np.arange(40) % 4 == 0, np.nan, y)
    signs = np.where(np.isnan(some), 0, np.where(y > 0, 1, -1))
    for name, model, target in (
        ("coupled_regressor_v1", gleangp.SparseGPRegressor(n_active=10, coupling="function"), y),
        ("null_category_v1", gleangp.SparseGPClassifier(n_active=10, unlabeled=0), signs),
        ("ordinal_v1", gleangp.SparseGPOrdinal(n_active=10, categories=["low", "middle", "high"]), grades),
        ("hierarchical_v1", gleangp.HierarchicalGPRegressor(n_rounds=3), some),
        ("latent_regressor_v1", gleangp.SharedLatentGPRegressor(1, hidden_units=5, max_iter=20), y),
    ):
        keep(name, model.set_params(random_state=0).fit(X, target, tasks=tasks), new, new_tasks)
    kernels = Matern([1.0, 2.0], nu=1.5) * RationalQuadratic() + 0.1 * DotProduct()
    several = gleangp.SparseGPRegressor(kernels, n_active=8, posterior="active", random_state=0)
    keep("older_sklearn_v1", several.fit(X, y, tasks=tasks), new, new_tasks)
    keep_table("table_v1")
    few = gleangp.SparseGPRegressor(n_active=10, posterior="active", random_state=0)  # the first with a hash
    keep("active_regressor_v2", few.fit(X, y, tasks=tasks), new, new_tasks)
    for name, model, target in (  # the default model of version 0.2
        ("default_regressor_v2", gleangp.SparseGPRegressor(), y),
        ("default_classifier_v2", gleangp.SparseGPClassifier(), np.digitize(y, [-0.4, 0.4])),
        ("counts_v2", gleangp.SparseGPRegressor(noise="negative_binomial"), np.round(np.exp(y + 1))),
    ):
        keep(name, model.set_params(random_state=0).fit(X, target, tasks=tasks), new, new_tasks)
