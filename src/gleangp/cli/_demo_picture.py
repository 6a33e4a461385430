"""The picture of `gleangp demo`: a new task from five labels, old tasks, new tasks by number of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gleangp.cli._demo import FEW_ROWS, HEADLINE_ROWS, N_INPUTS, N_NEW_TASKS, WIDTH, DemoResult, fit_alone
from gleangp.io import replacing

SHARING, ALONE = "#0072B2", "#D55E00"  # Okabe and Ito's blue and vermilion: told apart by everyone


def save_picture(result: DemoResult, path: Path) -> None:
    """Draw and save; the format follows the suffix."""
    figure = Figure(figsize=(11.5, 3.7), layout="constrained")
    FigureCanvasAgg(figure)  # no display and no global state of pyplot
    new_task, tasks, sizes = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    _draw_new_task(new_task, result)
    _draw_tasks(tasks, result)
    _draw_sizes(sizes, result)
    for ax in (new_task, tasks, sizes):
        ax.spines[["top", "right"]].set_visible(False)
    kind = path.suffix[1:].lower() or "png"
    made_by = {"Software" if kind == "png" else "Creator": "gleangp"}
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=kind, metadata=made_by)


def _draw_new_task(ax: Any, result: DemoResult) -> None:
    task = result.example
    line = np.full((200, N_INPUTS), WIDTH / 2)
    line[:, 0] = np.linspace(0.0, WIDTH, 200)
    shared = result.model.predict(line, tasks=np.full(200, result.example_name), return_std=True)
    alone = fit_alone(task, HEADLINE_ROWS).predict(line, return_std=True)
    for (mean, std), colour, label in ((alone, ALONE, "alone"), (shared, SHARING, "add_task")):
        ax.fill_between(line[:, 0], mean - 2 * std, mean + 2 * std, color=colour, alpha=0.18, lw=0)
        ax.plot(line[:, 0], mean, color=colour, lw=2, label=label)
    order = np.argsort(task.X_test[:, 0])
    ax.plot(task.X_test[order, 0], task.f_test[order], color="0.5", lw=1, ls="--", label="truth")
    few, ink = slice(HEADLINE_ROWS), rcParams["text.color"]
    ax.plot(task.X[few, 0], task.y[few], "o", color=ink, ms=6, label=f"{HEADLINE_ROWS} labels")
    ax.set(title="a new task (the one of median gain)", xlabel="the input that matters", ylabel="target")
    ax.legend(frameon=False, fontsize=8, ncols=2)


def _draw_tasks(ax: Any, result: DemoResult) -> None:
    most = 1.08 * max(result.together.max(), result.alone.max())
    ax.plot([0, most], [0, most], color="0.6", lw=1)
    ax.plot(result.alone, result.together, "o", color=SHARING, alpha=0.8)
    ax.set(xlim=(0, most), ylim=(0, most), aspect="equal")
    ax.set(title="tasks learnt together", xlabel="RMSE alone", ylabel="RMSE sharing")
    ax.annotate(
        "below the line:\nsharing is better", (0.97, 0.04), xycoords="axes fraction", ha="right", fontsize=8
    )


def _draw_sizes(ax: Any, result: DemoResult) -> None:
    for errors, colour, label, marker in (
        (result.new_alone, ALONE, "alone", "s"),
        (result.new_together, SHARING, "add_task", "o"),
    ):
        mean = errors.mean(axis=0)
        half = 2 * errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
        ax.errorbar(FEW_ROWS, mean, half, color=colour, marker=marker, capsize=3, label=label)
    ax.set(ylim=(0, None), xticks=FEW_ROWS)
    ax.set(
        title=f"mean of {N_NEW_TASKS} new tasks", xlabel="labels of the new task", ylabel="RMSE (± 2 s.e.)"
    )
    ax.legend(frameon=False, fontsize=8)
