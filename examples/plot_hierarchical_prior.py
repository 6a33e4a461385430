"""
Model sixty machines whose signals differ in smoothness
=======================================================

Sixty tasks, say machines, have six labels each. Their functions vary at different
speeds: every task has its own length scale, drawn from one distribution.
:class:`gleangp.HierarchicalGPRegressor` learns that distribution and the length scale
of every task. Six labels alone do not determine a length scale, and one kernel for all
tasks is wrong for most of them.
"""

# %%
# Tasks with length scales of their own
# -------------------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import HierarchicalGPRegressor

rng = np.random.default_rng(0)
n_tasks, n, n_test = 60, 6, 60
log_length = 0.3 + 0.5 * rng.normal(size=n_tasks)
X = rng.uniform(0, 8, size=(n_tasks, n + n_test, 1))
f = np.stack(
    [
        rng.multivariate_normal(
            np.zeros(n + n_test), RBF(np.exp(s))(x) + 1e-9 * np.eye(n + n_test)
        )
        for x, s in zip(X, log_length, strict=True)
    ]
)
y = f + 0.1 * rng.normal(size=f.shape)
train_X, test_X = X[:, :n].reshape(-1, 1), X[:, n:].reshape(-1, 1)
train_tasks, test_tasks = (
    np.repeat(np.arange(n_tasks), n),
    np.repeat(np.arange(n_tasks), n_test),
)

# %%
# Three models of the same data
# -----------------------------
# ``prior_cov`` is learnt, or fixed. Zero is one kernel for all tasks. With a large
# number tasks share the noise only.
readings = {"learnt prior": None, "one kernel": 0.0, "each alone": 25.0}
models = {}
for name, prior_cov in readings.items():
    kernel = ConstantKernel() * RBF()
    model = HierarchicalGPRegressor(kernel, prior_cov=prior_cov, normalize_X=False)
    models[name] = model.fit(train_X, y[:, :n].ravel(), tasks=train_tasks)
    error = model.predict(test_X, tasks=test_tasks) - f[:, n:].ravel()
    print(f"{name:>12}: root mean squared error {np.sqrt(np.mean(error**2)):.3f}")

# %%
# What was learnt
# ---------------
# Left: estimates of each task's length scale against the truth, with one standard
# deviation of the posterior. Alone, many are far off; under the prior they are near the
# truth. Right: the learnt prior and the distribution from which the tasks were drawn.
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for name, color in (("each alone", "tab:gray"), ("learnt prior", "tab:blue")):
    model = models[name]
    theta = np.array([model.kernels_[t].theta[1] for t in range(n_tasks)])
    spread = np.array([np.sqrt(model.theta_cov_[t][1, 1]) for t in range(n_tasks)])
    axes[0].errorbar(
        log_length, theta, spread, fmt="o", ms=4, lw=0.8, color=color, label=name
    )
axes[0].axline((0, 0), slope=1, color="black", lw=0.8, ls=":")
axes[0].axhline(
    models["one kernel"].prior_mean_[1], color="tab:orange", lw=1, label="one kernel"
)
axes[0].set(xlabel="true log length scale", ylabel="estimate", ylim=(-2.5, 4.5))
axes[0].legend(loc="upper left")

grid = np.linspace(-2, 2.5, 200)
learnt = models["learnt prior"]
for mean, var, color, label in (
    (0.3, 0.25, "black", "true"),
    (learnt.prior_mean_[1], learnt.prior_cov_[1, 1], "tab:blue", "learnt"),
):
    density = np.exp(-0.5 * (grid - mean) ** 2 / var) / np.sqrt(2 * np.pi * var)
    axes[1].plot(grid, density, color=color, label=label)
axes[1].plot(log_length, np.zeros(n_tasks), "|", ms=12, color="black")
axes[1].set(xlabel="log length scale", ylabel="density over tasks", ylim=(-0.03, None))
axes[1].legend()
figure.suptitle("Sixty tasks, six labels each")
plt.show()

# %%
# A new task
# ----------
# Five rows are enough to place a new task under the prior, in milliseconds and without
# refitting.
new_X = np.array([[0.5], [2.0], [3.5], [5.5], [7.0]])
learnt.add_task(new_X, np.sin(new_X[:, 0]), task=60)
grid = np.linspace(0, 8, 200)[:, None]
mean, std = learnt.predict(grid, tasks=np.full(200, 60), return_std=True)
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.fill_between(
    grid[:, 0],
    mean - 2 * std,
    mean + 2 * std,
    alpha=0.25,
    label="two standard deviations",
)
ax.plot(grid[:, 0], mean, label="prediction")
ax.plot(grid[:, 0], np.sin(grid[:, 0]), "k:", label="truth")
ax.plot(new_X[:, 0], np.sin(new_X[:, 0]), "ko", ms=5, label="the five labels")
ax.set(xlabel="x", ylabel="y", title="A task added from five rows")
ax.legend(fontsize="small", ncols=2)
plt.show()

# sphinx_gallery_thumbnail_number = 2
