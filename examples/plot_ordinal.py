"""
Predict grades from poor to excellent
=====================================

A grade between "poor" and "excellent" is neither a number nor a class without order.
`SparseGPOrdinal` learns a latent function and the cut-points between the categories.
"""

# %%
# Three categories of unequal width
# ---------------------------------
# The middle category is as wide as its cut-points are apart.

import matplotlib.pyplot as plt
import numpy as np

from gleangp import SparseGPOrdinal

CATEGORIES = ["poor", "good", "excellent"]
rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(80, 1))
quality = 2.0 * np.sin(X[:, 0] * 0.8) + 0.25 * rng.standard_normal(80)
y = np.array(CATEGORIES)[np.digitize(quality, [-0.5, 1.2])]
model = SparseGPOrdinal(categories=CATEGORIES, n_active=25, random_state=0).fit(X, y)

# %%
# Function, cut-points and probabilities
# --------------------------------------
# Left: the latent function with two standard deviations, and the learnt cut-points.
# Right: the probability of each category, which sum to one.

grid = np.linspace(0, 10, 200)[:, None]
mean, var = model.predict_latent(grid)
colours = ["#D55E00", "#F0C94B", "#0072B2"]  # told apart without red and green
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.plot(grid, mean, color="black", label="latent function")
left.fill_between(grid[:, 0], mean - 2 * var**0.5, mean + 2 * var**0.5, color="0.85")
for cut in model.cut_points_:
    left.axhline(cut, color="0.3", linestyle="dashed")
left.plot([], [], color="0.3", linestyle="dashed", label="cut-points")
middle, _ = model.predict_latent(X)
for category, colour in zip(CATEGORIES, colours, strict=True):
    rows = y == category
    left.scatter(X[rows, 0], middle[rows], s=18, color=colour, label=category, zorder=3)
left.set(xlabel="input", ylabel="latent function", title="cut-points")
left.legend(fontsize=8, loc="lower left")
probabilities = model.predict_proba(grid)
right.stackplot(
    grid[:, 0], probabilities.T, labels=CATEGORIES, colors=colours, alpha=0.7
)
right.set(
    xlabel="input",
    ylabel="probability",
    ylim=(0, 1),
    xlim=(0, 10),
    title="probability of each category",
)
right.legend(fontsize=8, loc="lower left")
plt.show()
