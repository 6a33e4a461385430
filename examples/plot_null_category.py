"""
Classify two clusters from four labels each
===========================================

Two interlocking crescents have four labels each. The null category (Lawrence, Platt &
Jordan 2005, section 4) is a band around the boundary in which no row may lie. With it,
unlabelled rows move the boundary to where rows are rare.
"""

# %%
# The rows
# --------
# Labels are -1 and +1; 0 means "no label".

import matplotlib.pyplot as plt
import numpy as np

from gleangp import SparseGPClassifier
from gleangp.plots import DecisionDisplay

rng = np.random.default_rng(2)
side = rng.choice([-1, 1], size=200)
angle, radius = rng.uniform(0, np.pi, 200), 5 + 0.7 * rng.standard_normal(200)
X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]) * side[:, None]
X += side[:, None] * [2.5, -1.0]
y = np.zeros(200, dtype=int)
for c in (-1, 1):
    y[rng.choice(np.flatnonzero(side == c), 4, replace=False)] = c

# %%
# Two models
# ----------
# One has the labelled rows alone, the other all rows.

labelled = y != 0
models = {
    "labelled rows alone": SparseGPClassifier(random_state=0).fit(
        X[labelled], y[labelled]
    ),
    "with unlabelled rows": SparseGPClassifier(
        unlabeled=0, n_active=80, random_state=0
    ).fit(X, y),
}

# %%
# The boundary is the solid line. The hatched band on the right is the null category.

figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
for ax, (title, model) in zip(axes, models.items(), strict=True):
    DecisionDisplay.from_estimator(model, X, y, ax=ax)
    wrong = np.mean(model.predict(X) != side)
    ax.set_title(f"{title}: {wrong:.1%} of all rows wrong", pad=38)  # above the legend
plt.show()
