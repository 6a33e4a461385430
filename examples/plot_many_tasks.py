"""
Predict a new patient from five measurements
============================================

Twelve patients (tasks) with thirty measurements each are known. A new patient arrives
with five. Six inputs are recorded and only the first matters. Five rows cannot show
this, but the rows of the other patients can.
"""

# %%
# The known patients
# ------------------
# Their functions are drawn from one Gaussian process.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from gleangp import SparseGPRegressor

rng = np.random.default_rng(3)


def draw_task(n_rows):
    """Rows of one task, and its function along the input that matters."""
    X = rng.uniform(0, 6, (n_rows, 6))
    line = np.linspace(0, 6, 100)
    where = np.concatenate([X[:, 0], line])[:, None]
    f = rng.multivariate_normal(np.zeros(len(where)), RBF(1.5)(where), method="eigh")
    return X, f[:n_rows] + 0.15 * rng.standard_normal(n_rows), line, f[n_rows:]


# %%
# One model of all twelve. The learnt length scales are short for the input that matters
# and long for the others.

tasks = [draw_task(30) for _ in range(12)]
X = np.vstack([task[0] for task in tasks])
y = np.concatenate([task[1] for task in tasks])
model = SparseGPRegressor(coupling="kernel", random_state=0).fit(
    X, y, tasks=np.repeat(np.arange(12), 30)
)
print(model.kernel_)

# %%
# The new patient
# ---------------
# `add_task` uses these length scales and fits nothing again. For comparison, the same
# estimator is fitted to the five rows alone.

X_new, y_new, line, truth = draw_task(5)
model.add_task(X_new, y_new, task=99)
alone = SparseGPRegressor(random_state=0).fit(X_new, y_new)

grid = np.full((100, 6), 3.0)
grid[:, 0] = line
predictions = {
    "with the other tasks": model.predict(
        grid, tasks=np.full(100, 99), return_std=True
    ),
    "alone": alone.predict(grid, return_std=True),
}
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, (title, (mean, std)), color in zip(
    axes, predictions.items(), ("#0072B2", "#D55E00"), strict=True
):
    ax.fill_between(line, mean - 2 * std, mean + 2 * std, color=color, alpha=0.2, lw=0)
    ax.plot(line, mean, color=color, lw=2, label="mean ± 2 sd")
    ax.plot(line, truth, "k--", lw=1, label="truth")
    ax.plot(X_new[:, 0], y_new, "ko", label="five labels")
    ax.set(title=title, xlabel="the input that matters")
axes[0].legend(frameon=False)
plt.show()
