"""
Fit a table of many rows without seams
======================================

With more than 2000 rows the covariance is exact within neighbourhoods of a few hundred
rows, and basis points carry it from one neighbourhood to the next. Predictions do not
show where one neighbourhood ends and the next one starts.
"""

# %%
# 6000 rows with a gap between 4 and 5, where nothing was measured, and a function that
# gets rougher to the right.

import numpy as np
from matplotlib import pyplot as plt

from gleangp import SparseGPRegressor

rng = np.random.default_rng(0)
x = rng.uniform(0, 10, 6600)
x = x[(x < 4) | (x > 5)]
y = np.sin(0.4 * x**2) + 0.2 * rng.standard_normal(len(x))
model = SparseGPRegressor(n_active=30, random_state=0).fit(x[:, None], y)

# %%
# The mean and its deviation on a fine grid, with basis points as ticks. The deviation
# is small and even where there are rows, and grows in the gap. No step is seen.

basis = x[model.active_]
grid = np.linspace(0, 10, 2001)[:, None]
mean, std = model.predict(grid, return_std=True)
fig, (top, bottom) = plt.subplots(2, sharex=True, layout="constrained")
top.plot(x[::10], y[::10], ".", color="0.8", ms=3, label="every tenth row")
top.plot(grid, mean, label="mean")
top.legend(loc="lower left")
bottom.semilogy(grid, std)
bottom.plot(basis, np.full(len(basis), std.min()), "|", color="k")
bottom.set(xlabel="x", ylabel="deviation of the mean")

# %%
# The same in two dimensions, with 8000 rows and a corner without rows.

X = rng.uniform(-3, 3, (9000, 2))
X = X[(X[:, 0] < 1) | (X[:, 1] < 1)]
z = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(len(X))
model = SparseGPRegressor(n_active=50, random_state=0).fit(X, z)
a, b = np.meshgrid(np.linspace(-3, 3, 121), np.linspace(-3, 3, 121))
mean, std = model.predict(np.column_stack([a.ravel(), b.ravel()]), return_std=True)
fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
shown = {"mean": mean, "log10 of its deviation": np.log10(std)}
for ax, title in zip(axes, shown, strict=True):
    image = ax.pcolormesh(a, b, shown[title].reshape(a.shape))
    ax.set(title=title, xlabel="x1", aspect="equal")
    fig.colorbar(image, ax=ax)
axes[0].set_ylabel("x2")
plt.show()
