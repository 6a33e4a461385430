"""Learning as the papers do it: rounds of "select points, then learn the kernel" on them alone.

Rounds do not share an objective: each has its own active points and, but for Gaussian noise, its own sites.
Two laws hold. A round ends at least as well as the reference's round from the same start (`one_round_each`),
for both climb the evidence of the same points. And what the rounds are compared by, the sum of log Z over all
rows, never falls from one round to the next for the parameters that are kept (`rounds`). The evidence of the
kept round may be below that of the reference's last one: it is not what rounds are compared by.
"""

import numpy as np

from gleangp.inference.block import Block
from gleangp.models.active.learn import Learner, Settings, TaskBlocks
from gleangp.models.parameters import Parameters
from gleangp.selection.selectors import EntropySelector


def rounds(kernel, blocks: list[Block], n_active: int, n_rounds: int, n_restarts: int = 0):
    """Largest log evidence of the active points in any round, and the best sum of log Z before each."""
    values, best = [], []

    def keep(stage, step, value):
        if stage.name.startswith("round") and value is not None:
            (values if step > 0 else best).append(value)
        return False

    settings = Settings(
        EntropySelector(),
        n_active,
        n_rounds=n_rounds,
        n_restarts=n_restarts,
        tol=0.0,
        precision=1e-9,
        progress=keep,
    )
    kernel = kernel.clone_with_theta(kernel.theta)
    for h in kernel.hyperparameters:
        if not h.fixed:  # the toolbox has no bounds
            kernel.set_params(**{f"{h.name}_bounds": (1e-12, 1e12)})
    start = Parameters(kernel, blocks[0].noise)
    Learner(TaskBlocks(blocks), settings, np.random.default_rng(0)).learn(start)
    return max(values), best


def one_round_each(reference, blocks: list[Block], n_active: int, natural_after_each, enough):
    """Log evidence after one round from the reference's start of each of its rounds.

    There are four restarts where the first climb does not find `enough`.
    """
    found = []
    for start, wanted in zip([reference.natural, *natural_after_each[:-1]], enough, strict=True):
        kernel = reference.at(start).kernel
        value = rounds(kernel, blocks, n_active, 1)[0]
        found.append(value if value >= wanted else rounds(kernel, blocks, n_active, 1, 4)[0])
    return np.array(found)
