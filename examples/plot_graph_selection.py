"""
Keep the same kind of points in two related tasks
=================================================

Two tasks have rows on the same curve, each with most rows in another part of it.
`GraphSelector` keeps, in each task, the points that are most strongly linked to their
neighbours. `TaskRelevance` makes related tasks keep points in the same places (Zhu &
Sun 2013).
"""

# %%
# The tasks
# ---------
# Both functions change along the curve in the same way, so the tasks are related. The
# first task has most of its rows at the left end, the second at the right end.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from scipy.sparse import triu

from gleangp import GraphSelector, SparseGPRegressor, TaskRelevance
from gleangp.graph import exponential_graph

rng = np.random.default_rng(3)
N_ROWS, N_KEEP = 110, 14


def rows_of_task(crowded_end):
    """Rows along an arch, denser at one end, and a target that changes along it."""
    along = rng.beta(1.0, 1.6, N_ROWS)
    along = along if crowded_end == 0 else 1.0 - along
    angle = np.pi * (1.0 - along)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * (
        1.0 + 0.07 * rng.normal(size=(N_ROWS, 1))
    )
    return X, np.sin(4.0 * along) + 0.1 * rng.normal(size=N_ROWS)


parts = [rows_of_task(0), rows_of_task(1)]
X = np.vstack([x for x, _ in parts])
y = np.concatenate([t for _, t in parts])
tasks = np.repeat(["first task", "second task"], N_ROWS)

# %%
# Keeping fourteen points of each
# -------------------------------
# With `weight=0` each task chooses on its own. With a positive weight, points near
# those that the other task has kept get a higher score, by how similar the tasks are.

graph = GraphSelector(n_neighbors=6, scale=3.0)
weights = {"each task on its own": 0.0, "with the regulariser": 1.0}
models = {
    title: SparseGPRegressor(
        selector=TaskRelevance(graph, weight=weight),
        n_active=2 * N_KEEP,
        posterior="active",
    ).fit(X, y, tasks)
    for title, weight in weights.items()
}


def gap(model):
    """Mean distance of a kept point to the nearest one that the other task kept."""
    first, second = (
        X[model.active_[tasks[model.active_] == name]] for name in model.tasks_
    )
    apart = np.linalg.norm(first[:, None] - second, axis=2)
    return 0.5 * (apart.min(axis=0).mean() + apart.min(axis=1).mean())


# %%
# What is kept where
# ------------------
# Grey lines are the edges of the graph, darker for closer rows. Filled discs are the
# points that a task keeps, rings those that the other task keeps.

COLOURS = {"first task": "#0b6e99", "second task": "#c2571a"}
figure, axes = plt.subplots(
    2, 2, figsize=(10, 5.6), sharex=True, sharey=True, layout="constrained"
)
for line, (title, model) in zip(axes, models.items(), strict=True):
    for ax, name in zip(line, model.tasks_, strict=True):
        rows = X[tasks == name]
        edges = triu(exponential_graph(rows, graph.n_neighbors, graph.scale)).tocoo()
        segments = np.stack([rows[edges.row], rows[edges.col]], axis=1)
        ax.add_collection(
            LineCollection(
                segments,
                colors=[(0.45, 0.45, 0.45, w) for w in edges.data],
                linewidths=0.8,
            )
        )
        ax.scatter(*rows.T, s=5, color="0.35", zorder=2)
        for other in model.tasks_:
            kept = X[model.active_[tasks[model.active_] == other]]
            style = (
                {"color": COLOURS[other]}
                if other == name
                else {"fc": "none", "ec": COLOURS[other], "lw": 1.4}
            )
            ax.scatter(
                *kept.T,
                s=55 if other == name else 130,
                zorder=3,
                label=f"kept in the {other}",
                **style,
            )
        ax.set_title(f"{name}, {title}", fontsize=10)
        ax.set_aspect("equal")
    line[0].set_ylabel(f"mean gap {gap(model):.2f}")
axes[0, 0].legend(loc="lower center", fontsize=8, frameon=False)
plt.show()

# %%
# On their own, tasks keep points where they have many rows. With the regulariser the
# gap between the choices is smaller, and so is the coverage: rows far from the common
# part are less well linked to a kept one. Larger weights make both effects stronger.

for title, model in models.items():
    linked = model.selection_objective_
    print(f"{title}: gap {gap(model):.2f}, connectivity (eq. 10) {linked:.2f}")
