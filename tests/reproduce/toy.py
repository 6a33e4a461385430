"""A small experiment, and a program that runs it: `python toy.py FOLDER LOG SECONDS`."""

import sys
import time
from pathlib import Path

from gleangp.reproduce import Column, Experiment, Method, Outcome, Plan, Printed, Quick, run_experiment
from gleangp.reproduce.figures import draw_curves, new_figure


def make(log=None, seconds=0.0, **more):
    """Two settings, three methods; every start of a computation is a line of the log."""

    def method(name, offset, role="other"):
        def run(problem, context):
            if log is not None:
                with open(log, "a") as file:
                    file.write(f"{context.setting} {context.run} {name}\n")
            time.sleep(seconds)
            value = offset + problem + 10 * float(context.setting)
            return Outcome({"error": value, "extra": float("nan")}, {"points": [1, 2]})

        return Method(name, run, role, f"offset {offset}")

    def draw(results):
        figure, (ax,) = new_figure()
        draw_curves(ax, results, ["a", "b"], "error", ["1", "2"], [1.0, 2.0])
        return {"curve": figure}

    given = {
        "name": "toy",
        "source": "nowhere",
        "shows": "a <toy> & more",
        "problem": lambda context: float(context.rng().normal()) * 1e-3,
        "methods": (method("a", 1.0, "paper"), method("b", 2.0, "default"), method("c", 3.0)),
        "columns": (Column("error"), Column("extra", 1)),
        "n_runs": 3,
        "settings": ("1", "2"),
        "setting_name": "size",
        "paper": {("1", "a", "error"): Printed(11.5, 0.6), ("2", "a", "error"): Printed(18.0, 0.5)},
        "quick": Quick(n_runs=1, settings=("2",)),
        "draw": draw,
    }
    return Experiment(**{**given, **more})


if __name__ == "__main__":
    folder, log, seconds = sys.argv[1:]
    run_experiment(make(log, float(seconds)), Plan(Path(folder), n_runs=5))
