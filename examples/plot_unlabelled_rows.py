"""
What unlabelled rows do
=======================

Rows on a spiral: the target is the position along it, so two rows can be near in space and far along the
spiral. Eight rows are labelled. A Gaussian process on the plane mixes neighbouring arms; with the rows
that have no target (NaN), a neighbour graph shows :class:`gleangp.HierarchicalGPRegressor` where the
arms are.
"""

# %%
# Data
# ----
import matplotlib.pyplot as plt
import numpy as np

from gleangp import HierarchicalGPRegressor

rng = np.random.default_rng(1)
position = np.sort(rng.uniform(0, 1, size=400))
angle = 1.0 + 3.5 * np.pi * position
X = (angle * np.array([np.cos(angle), np.sin(angle)])).T / 6 + 0.03 * rng.normal(size=(400, 2))
labelled = np.linspace(10, 390, 8).astype(int)
y = np.full(400, np.nan)
y[labelled] = position[labelled]

# %%
# With and without the graph
# --------------------------
# ``n_neighbors=None`` leaves unlabelled rows out. The weight ``alpha_`` of the graph is learnt: data that
# do not follow it drive it to zero.
models = {
    "labels alone": HierarchicalGPRegressor(n_neighbors=None).fit(X, y),
    "with unlabelled rows": HierarchicalGPRegressor(n_neighbors=5).fit(X, y),
}
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharex=True, sharey=True)
rest = np.setdiff1d(np.arange(400), labelled)
axes[0].scatter(*X.T, c=position, s=12, vmin=0, vmax=1)
axes[0].set_title("truth; the eight labelled rows")
axes[0].plot(*X[labelled].T, "o", mfc="none", mec="red", ms=10)
for ax, (name, model) in zip(axes[1:], models.items(), strict=True):
    mean = model.predict(X)
    error = np.sqrt(np.mean((mean - position)[rest] ** 2))
    points = ax.scatter(*X.T, c=mean, s=12, vmin=0, vmax=1)
    ax.plot(*X[labelled].T, "o", mfc="none", mec="red", ms=10)
    ax.set_title(f"{name}: error {error:.3f}")
    print(f"{name:>21}: error {error:.3f}, alpha {model.alpha_[None]:.3g}")
figure.colorbar(points, ax=axes, label="position along the spiral", shrink=0.9)
plt.show()

# %%
# The same rows, a target that ignores the graph
# ----------------------------------------------
# If the target has nothing to do with the arms, the graph should not hurt: its weight falls.
flat = np.full(400, np.nan)
flat[labelled] = X[labelled, 0]
alone = HierarchicalGPRegressor(n_neighbors=None).fit(X, flat)
graph = HierarchicalGPRegressor(n_neighbors=5).fit(X, flat)
for name, model in (("labels alone", alone), ("with unlabelled rows", graph)):
    error = np.sqrt(np.mean((model.predict(X) - X[:, 0])[rest] ** 2))
    print(f"{name:>21}: error {error:.3f}, alpha {model.alpha_[None]:.2g}")
