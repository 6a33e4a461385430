"""
Use comparisons where measurements are expensive
================================================

It is often known which of two rows has the larger value, although neither value is
known. :class:`gleangp.Order` states that one row exceeds another, possibly by a margin.
:class:`gleangp.DifferenceOrder` states that one difference exceeds another.
"""

# %%
# Four labels and forty rows without
# ----------------------------------
import matplotlib.pyplot as plt
import numpy as np

from gleangp import DifferenceOrder, HierarchicalGPRegressor, Order

rng = np.random.default_rng(3)
X = np.sort(rng.uniform(0, 10, size=(44, 1)), axis=0)


def truth(x):
    """A function with a hump that four labels miss."""
    return np.sin(x) + 0.15 * x + 1.5 * np.exp(-2 * (x - 7.0) ** 2)


f = truth(X[:, 0])
labelled = np.array([2, 14, 22, 41])
y = np.full(44, np.nan)
y[labelled] = f[labelled] + 0.05 * rng.normal(size=4)

# %%
# Constraints
# -----------
# Thirty pairs in their true order, then thirty comparisons of differences. Arrays of
# row numbers stand for many constraints.
pairs = np.array([rng.choice(44, 2, replace=False) for _ in range(30)])
swap = f[pairs[:, 0]] < f[pairs[:, 1]]
pairs[swap] = pairs[swap][:, ::-1]
fours = np.array([rng.choice(44, 4, replace=False) for _ in range(30)])
swap = f[fours[:, 0]] - f[fours[:, 1]] < f[fours[:, 2]] - f[fours[:, 3]]
fours[swap] = fours[swap][:, [2, 3, 0, 1]]
wrong = pairs.copy()
wrong[:5] = wrong[:5, ::-1]

cases = {
    "labels alone": None,
    "30 pairs": [Order(*pairs.T)],
    "30 pairs and 30 differences": [Order(*pairs.T), DifferenceOrder(*fours.T)],
    "30 pairs, 5 of them wrong": [Order(*wrong.T)],
}
# %%
# Four fits
# ---------
# Constraints hold up to a noise, which is learnt. Five wrong pairs therefore do little
# harm.
grid = np.linspace(0, 10, 300)[:, None]
figure, axes = plt.subplots(
    2, 2, figsize=(10, 6.5), layout="constrained", sharex=True, sharey=True
)
for ax, (name, constraints) in zip(axes.flat, cases.items(), strict=True):
    model = HierarchicalGPRegressor(n_neighbors=None, theta_uncertainty=True)
    model.fit(X, y, constraints=constraints)
    mean, std = model.predict(grid, return_std=True)
    error = np.sqrt(np.mean((mean - truth(grid[:, 0])) ** 2))
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
    ax.plot(grid[:, 0], mean, label="prediction, two standard deviations")
    ax.plot(grid[:, 0], truth(grid[:, 0]), "k:", label="truth")
    ax.plot(X[labelled, 0], y[labelled], "ko", ms=6, label="labels")
    ax.plot(X[:, 0], np.full(44, -2.6), "|", color="gray", ms=8, label="rows")
    ax.set_title(f"{name}: error {error:.2f}")
    noise = model.constraint_noise_
    noise = "-" if noise is None else f"{noise:.2f}"
    print(f"{name:>28}: error {error:.3f}, constraint noise {noise}")
axes[0, 0].legend(fontsize="small", loc="upper left")
axes[0, 0].set_ylim(-2.8, 5.5)
plt.show()
