"""
Unlabelled rows move the boundary
=================================

Two interlocking crescents, four labels in each. The null category (Lawrence, Platt & Jordan 2005, section
4) leaves a band around the boundary from which no rows may come, so unlabelled rows push the boundary to
where rows are thin.
"""

# %%
# The rows
# --------
# Labels are -1 and +1; 0 means "no label".

import matplotlib.pyplot as plt
import numpy as np

from gleangp import SparseGPClassifier

rng = np.random.default_rng(2)
side = rng.choice([-1, 1], size=200)
angle, radius = rng.uniform(0, np.pi, 200), 5 + 0.7 * rng.standard_normal(200)
X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]) * side[:, None]
X += side[:, None] * [2.5, -1.0]
y = np.zeros(200, dtype=int)
for c in (-1, 1):
    y[rng.choice(np.flatnonzero(side == c), 4, replace=False)] = c

# %%
# With labelled rows alone, and with all
# --------------------------------------

labelled = y != 0
models = {
    "labelled rows alone": SparseGPClassifier(random_state=0).fit(X[labelled], y[labelled]),
    "with unlabelled rows": SparseGPClassifier(unlabeled=0, n_active=80, random_state=0).fit(X, y),
}

# %%
# The boundary is the solid line. On the right the dashed lines are the edges of the null category: there the
# latent function is half a width away from the boundary.

grid_x, grid_y = np.meshgrid(np.linspace(-9.5, 9.5, 90), np.linspace(-8, 8, 80))
grid = np.column_stack([grid_x.ravel(), grid_y.ravel()])
figure, axes = plt.subplots(1, 2, figsize=(10, 4.3), sharey=True, layout="constrained")
for ax, (title, model) in zip(axes, models.items(), strict=True):
    p = model.predict_proba(grid)[:, 1].reshape(grid_x.shape)
    ax.contourf(grid_x, grid_y, p, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.35)
    ax.contour(grid_x, grid_y, p, levels=[0.5], colors="black")
    if model.unlabeled is not None:
        # The margin is the latent mean over its deviation; the edges are where the mean is +-1/2.
        (state,) = model._latent(grid, None)
        latent = (state[1] + model.noise_.bias).reshape(grid_x.shape)
        ax.contour(
            grid_x, grid_y, latent, levels=[-0.5, 0.5], colors="black", linestyles="dashed", linewidths=0.8
        )
    ax.scatter(*X[~labelled].T, s=8, color="0.55", label="no label")
    for c, colour in ((-1, "tab:blue"), (1, "tab:red")):
        ax.scatter(*X[y == c].T, s=60, color=colour, edgecolor="black", label=f"label {c:+d}", zorder=3)
    wrong = np.mean(model.predict(X) != side)
    ax.set(title=f"{title}: {wrong:.1%} of all rows wrong", aspect="equal", xlabel="first input")
axes[0].set_ylabel("second input")
axes[1].legend(loc="lower right", fontsize=8)
plt.show()
