"""Which coupling do tasks need? The evidence of each on a small part of the rows decides.

The part is made of whole tasks, up to a number of rows of each, because what tasks have in common shows
only between tasks, and what they have of their own only within. Candidates are learnt on it with a loose
tolerance; only the winner is then learnt on all rows, from where it got to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.coupled import CoupledPrior, settle, stack_rows
from gleangp.inference.relatedness import Relatedness, relatedness
from gleangp.learning.coupled_tasks import climb, learnt_on, with_noise
from gleangp.learning.couplings import Choice, CoupledParameters
from gleangp.learning.parameters import Parameters
from gleangp.learning.settings import Settings
from gleangp.learning.shared_kernel import learn_on_few

_PART_ROWS = 500
_PART_ROWS_OF_TASK = 25  # of few tasks with measured targets more, up to 500 of all
_SEVERAL = 3  # rows that tell something of a task's own function
_MANY_ROWS = 250  # of a task, with which it knows itself
# Loadings are learnt task by task: of more tasks they cost too much, of fewer rows too little is known, and
# with many rows they give little (SARCOS, 500 labels: the same error, in seven times the time).
_MOST_TASKS_OF_COREGION = 30
_LEAST_ROWS_OF_COREGION = 10
# Couplings within 2 nats of the best (odds of 7 to 1) count as equal, and the first of these is taken: a
# common function that is not there costs little (SARCOS, 20 labels: 0.02 of explained variance), one that is
# missed costs much (Landmine, 20 labels: 0.09 of the area under the curve), and loadings cost time.
# With labels, of which evidences know less, that is so up to 4 nats: independent tasks that were ahead by 3.4
# had 0.64 of that area, and tasks with a common function 0.72.
_EQUAL, _EQUAL_LABELS = 2.0, 4.0
_PREFERRED = ("function", "kernel", "coregion")
# Tasks that stay apart without a trial: explained well by their own functions (nats per row; where labels are
# too few for that, as in School and Landmine, the test is blind), and nothing between them (in deviations).
# Seen on independent tasks: up to 2.4 and 2.4; on tasks with a correlation of 0.3: from 3.0 and 1.3 upwards.
_EXPLAINED, _NOTHING_COMMON, _NO_PAIRS = 0.1, 2.5, 3.0
_SOME_PAIRS = 2.0  # below, loadings of single tasks have never had the most evidence
# Classes of one classifier have one coupling: candidates are tried on three of them at least, and not on more
# once they are so far behind that the others would have to contradict.
_LEAST_PROBLEMS, _FAR_BEHIND = 3, 10.0
_LOOSE = {"max_iter": 30, "precision": 3e-4, "n_rounds": 1, "n_restarts": 0}
_LOOSE_LABELS = 1e-4  # precision with labels, which say less of a row than measurements do


Problem = tuple[Parameters, list[Block], np.random.Generator]


@dataclass(frozen=True, eq=False)
class Chosen:
    """A coupling, and where its fit starts."""

    choice: Choice
    start: CoupledParameters
    units: FloatArray | None = None  # of the search that led there, where the kernel alone is shared


def choose_coupling(
    candidates, base: Parameters, blocks: list[Block], settings: Settings, rng: np.random.Generator
) -> Chosen:
    """The only candidate, or the one with the most evidence; and the parameters to start its fit from.

    Evidences count less half a log of the number of its task's rows for every number that was learnt for
    a task alone (Schwarz 1978). The few parameters that all tasks share cost nothing: charging
    for them left related tasks apart (Landmine, 20 labels per task).

    Independent tasks are tried first. If their own functions explain them well, and a score test
    (`inference.relatedness`) finds nothing between them, the others are not tried.
    """
    if len(candidates) == 1:
        only = candidates[0]
        return Chosen(Choice(only.name, {}, "as asked"), only.parameters(base, len(blocks)))
    trials = _try_all(candidates, base, blocks, settings, rng)
    if trials.decided:
        return trials.chosen("kernel", trials.scores, trials.decided)
    equal = _count_as_equal(blocks)
    name = _decide(trials.scores, equal)
    return trials.chosen(name, trials.scores, _in_words(name, trials.scores, trials.where, equal))


@dataclass(frozen=True, eq=False)
class _Trials:
    """What was tried on a part of the rows of one problem."""

    scores: dict[str, float]
    learnt: dict[str, CoupledParameters]
    units: FloatArray | None
    where: str  # in words
    decided: str = ""  # why nothing but the kernel was tried

    def chosen(self, name: str, scores: dict[str, float], reason: str) -> Chosen:
        """That coupling, for that reason."""
        return Chosen(Choice(name, scores, reason), self.learnt[name], self.units)


def _try_all(candidates, base: Parameters, blocks: list[Block], settings: Settings, rng) -> _Trials:
    """Learn the candidates, of which independent tasks come first, on the same part of the rows."""
    seed = int(rng.integers(2**63))
    part, tasks = part_of_whole_tasks(blocks, np.random.default_rng(seed))
    where = f"on {sum(len(b) for b in part)} rows of {len(part)} tasks"
    scores, learnt, units, related = {}, {}, None, None
    for candidate in candidates:
        name = candidate.name
        if name == "coregion" and not _worth_learning_loadings(blocks, related):
            continue
        start = candidate.parameters(base, len(blocks))
        if name == "kernel":
            on_part, scores[name], units = _try_apart(start.at_tasks(tasks), part, settings, seed)
            related, explained = _look_between(on_part, part)
        else:
            on_part, scores[name] = _try_out(start.at_tasks(tasks), part, settings, seed, name)
        learnt[name] = learnt_on(start, on_part, tasks)
        if name == "kernel" and explained > _EXPLAINED and _nothing_between(related):
            return _Trials(scores, learnt, units, where, _no_trial(related, explained, where))
    return _Trials(scores, learnt, units, where)


def _nothing_between(related: Relatedness) -> bool:
    return related.common < _NOTHING_COMMON and related.pairs < _NO_PAIRS


def choose_together(candidates, problems: list[Problem], settings: Settings) -> list[Chosen]:
    """One coupling for several problems on the same rows: the classes of a classifier.

    Evidences of the first problems are added up, of three at least; candidates that are then far behind are
    not tried any further, and with one left it is chosen. Problems in which nothing was tried start from the
    mean of the (logarithmic) kernel parameters of those in which it was: classes differ in their labels, but
    hardly in how fast what tells them apart changes with the inputs.
    """
    if len(candidates) == 1:
        return [choose_coupling(candidates, base, blocks, settings, rng) for base, blocks, rng in problems]
    left, tried, total = list(candidates), [], {}
    for base, blocks, rng in problems:
        tried.append(_try_all(left, base, blocks, settings, rng))
        common = [c.name for c in left if all(c.name in trial.scores for trial in tried)]
        total = {name: sum(trial.scores[name] for trial in tried) for name in common}
        behind = _FAR_BEHIND if len(tried) >= _LEAST_PROBLEMS else np.inf
        left = [c for c in left if total.get(c.name, -np.inf) >= max(total.values()) - behind]
        if len(left) == 1:
            break
    name = _decide(total, _EQUAL_LABELS) if len(total) > 1 else left[0].name
    where = f"of {len(tried)} of {len(problems)} classes, {tried[0].where}"
    words = _in_words(name, total, where, _EQUAL_LABELS)
    chosen = [trial.chosen(name, total, words) for trial in tried]
    theta = np.mean([c.start.base.kernel.theta for c in chosen], axis=0)
    candidate = next(c for c in candidates if c.name == name)
    for base, blocks, _ in problems[len(tried) :]:
        start = candidate.parameters(base, len(blocks))
        start = replace(start, base=replace(start.base, kernel=start.base.kernel.clone_with_theta(theta)))
        chosen.append(Chosen(chosen[0].choice, start))
    return chosen


def part_of_whole_tasks(blocks: list[Block], rng: np.random.Generator) -> tuple[list[Block], IntArray]:
    """Up to 500 rows, and the tasks they are of; tasks with several rows come first.

    At most 25 rows of a task, of few tasks as many as 500 allow: the torques of SARCOS are in two groups of
    three, which 25 rows of each do not show (a coregion is 2 nats ahead to 14 behind), and 71 do (30 ahead).
    With labels, which take many sweeps, it stays at 25.
    """
    filled = rng.permutation([t for t, b in enumerate(blocks) if len(b)])
    most = _PART_ROWS_OF_TASK
    if len(filled) and not blocks[0].noise.precision_depends_on_mean:
        most = max(most, _PART_ROWS // len(filled))
    few = [len(blocks[t]) < _SEVERAL for t in filled]
    part, tasks, left = [], [], _PART_ROWS
    for t in filled[np.argsort(few, kind="stable")]:
        take = min(len(blocks[t]), most)
        if take > left and len(tasks) > 1:
            break
        part.append(blocks[t].at(np.sort(rng.choice(len(blocks[t]), size=take, replace=False))))
        tasks.append(t)
        left -= take
    return part, np.array(tasks)


def _worth_learning_loadings(blocks: list[Block], related: Relatedness | None) -> bool:
    sizes = [len(b) for b in blocks if len(b)]
    if len(sizes) > _MOST_TASKS_OF_COREGION:
        return False
    if not _LEAST_ROWS_OF_COREGION <= np.median(sizes) <= _MANY_ROWS:
        return False
    return related is None or related.pairs >= _SOME_PAIRS


def _try_apart(start: CoupledParameters, part, settings, seed) -> tuple[CoupledParameters, float, Any]:
    """Independent tasks on the part: parameters, evidence, and the units of the search."""
    if part[0].noise.precision_depends_on_mean:
        return *_try_out(start, part, settings, seed, "kernel"), None
    loose, rng = replace(settings, **_LOOSE), np.random.default_rng(seed)
    optimum, base = learn_on_few(start.base, part, loose, rng, "coupling kernel")
    evidence = -optimum.value - base.log_prior(base.start())[0]
    return replace(start, base=base), float(evidence), optimum.units


def _look_between(apart: CoupledParameters, part: list[Block]) -> tuple[Relatedness, float]:
    """What speaks for covariance between independent tasks, and the nats per row that each explains alone.

    Where noise is not Gaussian the second is not known, and counts as nothing.
    """
    rows = stack_rows(with_noise(part, apart.base.noise_values(apart.start())), np.arange(len(part)))
    prior = CoupledPrior(apart.terms(), rows, part[0].X[:0], gradients=False)
    settled = settle(prior)
    related = relatedness(prior, settled.q)
    if part[0].noise.precision_depends_on_mean:
        return related, 0.0
    square = np.mean(np.concatenate([b.y - b.noise.bias for b in part]) ** 2)
    only_noise = -0.5 * (np.log(2.0 * np.pi * square) + 1.0) if square > 0.0 else np.inf
    return related, float(settled.evidence / len(rows) - only_noise)


def _try_out(start: CoupledParameters, part, settings, seed, name) -> tuple[CoupledParameters, float]:
    """Parameters learnt on the part, and their penalised evidence there."""
    loose = replace(settings, n_active=settings.n_basis, **_LOOSE)
    if part[0].noise.precision_depends_on_mean:
        loose = replace(loose, precision=_LOOSE_LABELS)
    fit = climb(start, part, loose, seed, np.random.default_rng(seed), f"coupling {name}")
    learnt = fit.parameters
    evidence = fit.objective - learnt.log_prior(learnt.start())[0]
    cost = 0.5 * float(learnt.learnt_alone() @ np.log1p([len(b) for b in part]))
    return learnt, float(evidence - cost)


def _count_as_equal(blocks: list[Block]) -> float:
    """Nats within which couplings count as equal; of tasks that know themselves the evidence decides."""
    if blocks[0].noise.precision_depends_on_mean:
        return _EQUAL_LABELS
    return _EQUAL if np.median([len(b) for b in blocks if len(b)]) <= _MANY_ROWS else 0.0


def _decide(scores: dict[str, float], equal: float) -> str:
    best = max(scores.values())
    return next(name for name in _PREFERRED if scores.get(name, -np.inf) >= best - equal)


def _in_words(name: str, scores: dict[str, float], where: str, equal: float) -> str:
    ahead = scores[name] - max(v for n, v in scores.items() if n != name)
    how = f"most evidence, by {ahead:.1f} nats," if ahead >= 0 else f"within {equal:.0f} nats of the best"
    words = ", ".join(f"{n} {v:.1f}" for n, v in scores.items())
    return f"{how} {where} ({words})"


def _no_trial(related: Relatedness, explained: float, where: str) -> str:
    return (
        f"their own functions explain the tasks ({explained:.2f} nats a row) and nothing speaks for more in "
        f"common than the kernel ({related.common:.1f} standard deviations for a common function, "
        f"{related.pairs:.1f} for pairs of tasks) {where}"
    )
