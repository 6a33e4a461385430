"""
Predict along a spiral from sixteen labels
==========================================

Rows lie on a spiral, and the target varies along it. Two rows can be near in space and
far apart along the spiral. Sixteen of four hundred rows are labelled. A Gaussian
process on the plane mixes neighbouring arms. With the rows that have no target (NaN),
:class:`gleangp.HierarchicalGPRegressor` uses a graph of neighbours that follows the
arms.
"""

# %%
# Data
# ----
import matplotlib.pyplot as plt
import numpy as np

from gleangp import HierarchicalGPRegressor

rng = np.random.default_rng(0)
position = np.sort(rng.uniform(0, 1, size=400))
angle = 1.0 + 5.5 * np.pi * np.sqrt(position)
X = (angle * np.array([np.cos(angle), np.sin(angle)])).T / 6 + 0.02 * rng.normal(
    size=(400, 2)
)
truth = np.sin(2 * np.pi * position)
labelled = np.linspace(5, 395, 16).astype(int)
y = np.full(400, np.nan)
y[labelled] = truth[labelled]
rest = np.setdiff1d(np.arange(400), labelled)

# %%
# With and without the graph
# --------------------------
# ``n_neighbors=None`` leaves unlabelled rows out. The weight ``alpha_`` of the graph is
# learnt by the evidence of the labels; ``n_landmarks`` bounds the cost.
models = {
    "labels alone": HierarchicalGPRegressor(n_neighbors=None).fit(X, y),
    "with unlabelled rows": HierarchicalGPRegressor(
        n_landmarks=150, random_state=0
    ).fit(X, y),
}
figure, axes = plt.subplots(
    1, 3, figsize=(12, 4), layout="constrained", sharex=True, sharey=True
)
shown = {"s": 14, "vmin": -1, "vmax": 1, "cmap": "coolwarm"}
axes[0].scatter(*X.T, c=truth, **shown)
axes[0].set_title("truth; sixteen rows are labelled")
for ax, (name, model) in zip(axes[1:], models.items(), strict=True):
    mean = model.predict(X)
    error = np.sqrt(np.mean((mean - truth)[rest] ** 2))
    points = ax.scatter(*X.T, c=mean, **shown)
    ax.set_title(f"{name}: error {error:.2f}")
    print(f"{name:>21}: error {error:.3f}, alpha {model.alpha_[None]:.3g}")
for ax in axes:
    ax.plot(*X[labelled].T, "o", mfc="none", mec="black", ms=9, mew=1.5)
    ax.set_aspect("equal")
figure.colorbar(points, ax=axes, label="target", shrink=0.9)
plt.show()

# %%
# How many labels are needed?
# ---------------------------
# With twelve labels the evidence does not separate the spiral from a smooth function of
# the plane. The weight of the graph stays near its prior, and nothing is gained.
for n_labels in (12, 16, 24):
    labelled = np.linspace(5, 395, n_labels).astype(int)
    rest = np.setdiff1d(np.arange(400), labelled)
    y = np.full(400, np.nan)
    y[labelled] = truth[labelled]
    for name, n_neighbors in (("labels alone", None), ("with unlabelled rows", 5)):
        model = HierarchicalGPRegressor(
            n_neighbors=n_neighbors, n_landmarks=150, random_state=0
        ).fit(X, y)
        error = np.sqrt(np.mean((model.predict(X) - truth)[rest] ** 2))
        alpha = model.alpha_[None]
        print(f"{n_labels} labels, {name}: error {error:.3f}, alpha {alpha:.3g}")
