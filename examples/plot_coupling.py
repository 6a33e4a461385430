"""
Predict a site with three labels from similar sites
===================================================

Some sites (tasks) have many labels, others three. If tasks share only a kernel, they
share how smooth their functions are. With ``coupling="function"`` every task is a
common function plus one of its own, so a task with three labels follows the others
where it has none. With ``coupling="coregion"`` tasks are mixtures of shared functions,
and the learnt mixture shows which tasks belong together.
"""

# %%
# Eight tasks are the same wave with small deviations. Seven have 15 labels, the last
# one three.

import matplotlib.pyplot as plt
import numpy as np

from gleangp import CoregionCoupling, SparseGPRegressor

rng = np.random.default_rng(3)
counts = [15] * 7 + [3]
tasks = np.repeat(np.arange(8), counts)
X = rng.uniform(-3, 3, (len(tasks), 1))
X[-3:, 0] = [-2.6, -2.0, -1.2]
phase, offset = rng.uniform(0, 6, 8), 0.4 * rng.normal(size=8)


def truth(x, task):
    """The common wave, a small own one, and an offset."""
    return 2 * np.sin(1.5 * x) + 0.3 * np.cos(2 * x + phase[task]) + offset[task]


y = truth(X[:, 0], tasks) + 0.15 * rng.normal(size=len(tasks))

# %%
# The task with three labels, under both couplings; and a new task without labels. The
# band is two standard deviations of the function.

grid = np.linspace(-3, 3, 200)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
for axis, coupling, task in zip(
    axes, ["kernel", "function", "function"], [7, 7, 99], strict=True
):
    model = SparseGPRegressor(coupling=coupling, random_state=0).fit(X, y, tasks=tasks)
    if task == 99:
        model.add_task(None, None, 99)
    mean, std = model.predict(grid, tasks=np.full(200, task), return_std=True)
    axis.fill_between(
        grid[:, 0], mean - 2 * std, mean + 2 * std, color="C0", alpha=0.2, lw=0
    )
    axis.plot(grid, mean, color="C0", label="prediction")
    if task == 7:
        axis.plot(grid, truth(grid[:, 0], 7), "k--", lw=1, label="truth")
        axis.plot(X[tasks == 7], y[tasks == 7], "o", color="C3", label="its labels")
        axis.set_title(f'three labels, coupling="{coupling}"')
    else:
        axis.plot(
            X[tasks < 7],
            y[tasks < 7],
            ".",
            color="0.6",
            ms=4,
            label="labels of the others",
        )
        axis.set_title('no labels, coupling="function"')
    axis.set_xlabel("x")
    axis.legend(loc="lower left", fontsize=8)

# %%
# Now two groups of tasks follow two unrelated functions, and the last task is the
# mirror image of the first group. A coregionalisation of rank two finds these groups.

centre = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2])
waves = [lambda x: np.sin(1.5 * x), lambda x: np.cos(3 * x), lambda x: -np.sin(1.5 * x)]
tasks = np.repeat(np.arange(9), 12)
X = rng.uniform(-3, 3, (len(tasks), 1))
y = np.array([waves[centre[t]](x) for t, x in zip(tasks, X[:, 0], strict=True)])
y += 0.1 * rng.normal(size=len(y))

model = SparseGPRegressor(coupling=CoregionCoupling(rank=2), random_state=0).fit(
    X, y, tasks=tasks
)
figure, axis = plt.subplots(figsize=(4.6, 3.8), layout="constrained")
image = axis.imshow(model.task_correlation_, vmin=-1, vmax=1, cmap="RdBu_r")
axis.set_xlabel("task")
axis.set_ylabel("task")
axis.set_xticks(range(9))
axis.set_yticks(range(9))
axis.set_title("learnt correlation of the tasks")
figure.colorbar(image, ax=axis)

# %%
# Which one to use? ``coupling="auto"`` compares their evidence on a part of the rows.
# ``coupling_`` has the choice and its reason.

model = SparseGPRegressor(coupling="auto", random_state=0).fit(X, y, tasks=tasks)
print(model.coupling_.name, "-", model.coupling_.reason)
plt.show()

# sphinx_gallery_thumbnail_number = 2
