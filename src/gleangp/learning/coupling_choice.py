"""Which coupling do tasks need? The evidence of each on a small part of the rows decides.

The part is made of whole tasks, up to a number of rows of each, because what tasks have in common shows
only between tasks, and what they have of their own only within. Candidates are learnt on it with a loose
tolerance; only the winner is then learnt on all rows, from where it got to.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gleangp._typing import IntArray
from gleangp.inference.block import Block
from gleangp.learning.coupled_tasks import climb, learnt_on
from gleangp.learning.couplings import Choice, CoupledParameters
from gleangp.learning.parameters import Parameters
from gleangp.learning.settings import Settings

_PART_ROWS = 500
_PART_ROWS_OF_TASK = 25
_SEVERAL = 3  # rows that tell something of a task's own function
# Loadings are learnt task by task: of more tasks they cost too much, of fewer rows too little is known.
_MOST_TASKS_OF_COREGION = 30
_LEAST_ROWS_OF_COREGION = 10
# Couplings within 2 nats of the best (odds of 7 to 1) count as equal, and the first of these is taken: a
# common function that is not there costs little (SARCOS, 20 labels: 0.02 of explained variance), one that is
# missed costs much (Landmine, 20 labels: 0.09 of the area under the curve), and loadings cost time.
_EQUAL = 2.0
_PREFERRED = ("function", "kernel", "coregion")
_LOOSE = {"max_iter": 30, "precision": 3e-4, "n_rounds": 1, "n_restarts": 0}


def choose_coupling(
    candidates, base: Parameters, blocks: list[Block], settings: Settings, rng: np.random.Generator
) -> tuple[Choice, CoupledParameters]:
    """The only candidate, or the one with the most evidence; and the parameters to start its fit from.

    Evidences count less half a log of the number of its task's rows for every number that was learnt for
    a task alone (Schwarz 1978). The few parameters that all tasks share cost nothing: charging
    for them left related tasks apart (Landmine, 20 labels per task).
    """
    if len(candidates) == 1:
        only = candidates[0]
        return Choice(only.name, {}, "as asked"), only.parameters(base, len(blocks))
    seed = int(rng.integers(2**63))
    part, tasks = part_of_whole_tasks(blocks, np.random.default_rng(seed))
    scores, learnt = {}, {}
    for candidate in candidates:
        if candidate.name == "coregion" and not _can_learn_loadings(blocks):
            continue
        start = candidate.parameters(base, len(blocks))
        name = candidate.name
        on_part, scores[name] = _try_out(start.at_tasks(tasks), part, settings, seed, name)
        learnt[name] = learnt_on(start, on_part, tasks)
    name = _decide(scores)
    return Choice(name, scores, _in_words(name, scores, part)), learnt[name]


def part_of_whole_tasks(blocks: list[Block], rng: np.random.Generator) -> tuple[list[Block], IntArray]:
    """Up to 500 rows, at most 25 of a task, and the tasks they are of; tasks with several rows come first."""
    filled = rng.permutation([t for t, b in enumerate(blocks) if len(b)])
    few = [len(blocks[t]) < _SEVERAL for t in filled]
    part, tasks, left = [], [], _PART_ROWS
    for t in filled[np.argsort(few, kind="stable")]:
        take = min(len(blocks[t]), _PART_ROWS_OF_TASK)
        if take > left and len(tasks) > 1:
            break
        part.append(blocks[t].at(np.sort(rng.choice(len(blocks[t]), size=take, replace=False))))
        tasks.append(t)
        left -= take
    return part, np.array(tasks)


def _can_learn_loadings(blocks: list[Block]) -> bool:
    sizes = [len(b) for b in blocks if len(b)]
    return len(sizes) <= _MOST_TASKS_OF_COREGION and np.median(sizes) >= _LEAST_ROWS_OF_COREGION


def _try_out(start: CoupledParameters, part, settings, seed, name) -> tuple[CoupledParameters, float]:
    """Parameters learnt on the part, and their penalised evidence there."""
    loose = replace(settings, n_active=settings.n_basis, **_LOOSE)
    fit = climb(start, part, loose, seed, np.random.default_rng(seed), f"coupling {name}")
    learnt = fit.parameters
    evidence = fit.objective - learnt.log_prior(learnt.start())[0]
    cost = 0.5 * float(learnt.learnt_alone() @ np.log1p([len(b) for b in part]))
    return learnt, float(evidence - cost)


def _decide(scores: dict[str, float]) -> str:
    best = max(scores.values())
    return next(name for name in _PREFERRED if scores.get(name, -np.inf) >= best - _EQUAL)


def _in_words(name: str, scores: dict[str, float], part: list[Block]) -> str:
    ahead = scores[name] - max(v for n, v in scores.items() if n != name)
    how = f"most evidence, by {ahead:.1f} nats," if ahead >= 0 else f"within {_EQUAL:.0f} nats of the best"
    words = ", ".join(f"{n} {v:.1f}" for n, v in scores.items())
    return f"{how} on {sum(len(b) for b in part)} rows of {len(part)} tasks ({words})"
