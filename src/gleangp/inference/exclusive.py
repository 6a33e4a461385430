"""Classes that exclude each other: a row without a label belongs to exactly one of them.

One null category a class, each class against the rest (Lawrence, Platt & Jordan 2005, section 4), leaves rows
that no class wants: far from labelled rows every one of ten functions is below its null category. The
noise model here joins the functions f_c of all C classes at a row without a label,

    p(no label | f) = sum_c gamma_c [f_c above] prod_{k != c} [f_k below],

with "above" and "below" the sides of the null category: one class has the row, and none is in between. It is
our extension of the paper, and the model under which the classifier's probabilities are formed ("given
that exactly one fires").

Expectation propagation needs, for one class, the sum over what the others may be. With cavities that are
independent and P_c^+, P_c^- the probabilities of the sides,

    p(no label | f_c) ~ A_c [f_c above] + B_c [f_c below],
    A_c = gamma_c prod_{k != c} P_k^-        nobody else has it,
    B_c = sum_{k != c} gamma_k P_k^+ prod_{j != k, c} P_j^-        one other has it,

which is the null category of the class with gammas of its own for every row. So the classes take turns:
each moves its sites under what the others say of the rows at the moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import expit

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.evidence import RowSites
from gleangp.inference.propagate import MarginalsOfSites, Swept, sweep_rows

_MAX_ROUNDS = 10
_SWEEPS = 2  # of a class in its turn
_FULL_STEPS = 4.0  # rounds after which messages are damped
_SETTLED = 3e-3  # mean change of the probability of a row's class in a round at which it is the last
_LAST_SWEEPS = 4  # of a class when the messages stand still: more change less than the messages still would


def settle_exclusive(
    marginals: Sequence[MarginalsOfSites], blocks: Sequence[Block], starts: Sequence[RowSites | None]
) -> list[tuple[Swept, float]]:
    """Sites of all C classes over the same rows, of which the unlabelled ones have exactly one class.

    `blocks` have the targets +1 (the class), -1 (another) and 0 (no label) and `NullCategory` noise, whose
    `gamma_plus` is the probability that a row of the class has no label. `starts` are sites to start from, as
    for `sweep_rows`.

    Gives the sites of every class, and its part of the joint log evidence.
    """
    free = ~blocks[0].noise.is_labeled(blocks[0].y)
    sides = np.zeros((2, len(blocks), len(free)))  # log P^- and log P^+ of every class
    log_gammas = np.log([[b.noise.gamma_plus] for b in blocks])

    def sweep(c: int, heard: Block, start: RowSites | None, max_sweeps: int) -> Swept:
        swept = sweep_rows(heard, marginals[c], start, max_sweeps=max_sweeps)
        sides[:, c] = blocks[c].noise.log_sides(swept.cavity_mean, swept.cavity_var)
        return swept

    sites = list(starts)
    for c, block in enumerate(blocks):
        sweep(c, block, sites[c], 1)
    odds, owner, _ = exactly_one(log_gammas, *sides)
    for round_ in range(_MAX_ROUNDS):
        step = min(1.0, _FULL_STEPS / (round_ + 1.0))
        for c, block in enumerate(blocks):
            odds[c] += step * (exactly_one(log_gammas, *sides)[0][c] - odds[c])
            sites[c] = sweep(c, _hearing(block, odds[c], free), sites[c], _SWEEPS).sites
        last, owner = owner, exactly_one(log_gammas, *sides)[1]
        if 0.5 * np.sum(np.abs(owner - last)[:, free]) <= _SETTLED * np.sum(free):
            break
    heard = [_hearing(block, odds[c], free) for c, block in enumerate(blocks)]
    settled = [sweep(c, block, sites[c], _LAST_SWEEPS) for c, block in enumerate(heard)]
    shared = np.sum(exactly_one(log_gammas, *sides)[2][free]) / len(blocks)
    return [(s, s.evidence - _counted(h, s) + shared) for h, s in zip(heard, settled, strict=True)]


def _hearing(block: Block, odds: FloatArray, free: np.ndarray) -> Block:
    """The block with what the others say of its unlabelled rows; only the odds of the gammas matter."""
    plus = np.where(free, expit(odds), block.noise.gamma_plus)
    minus = np.where(free, expit(-odds), block.noise.gamma_minus)
    return replace(block, noise=replace(block.noise, gamma_minus=minus, gamma_plus=plus))


def exactly_one(
    log_gammas: FloatArray, log_minus: FloatArray, log_plus: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log odds A_c / B_c (C, n), probabilities of the classes (C, n), and log p(no label) (n,) of rows.

    From the logs of gamma_c (C, 1) and of the probabilities of the sides (C, n).
    """
    weights = log_gammas + log_plus - log_minus  # log of gamma_c P_c^+ / P_c^-
    others = [np.logaddexp.reduce(np.delete(weights, c, axis=0), axis=0) for c in range(len(weights))]
    total = np.logaddexp.reduce(weights, axis=0)
    return log_gammas - np.array(others), np.exp(weights - total), np.sum(log_minus, axis=0) + total


def _counted(heard: Block, swept: Swept) -> float:
    """What the evidence of one class has for things that the classes share.

    That is log_z of the rows without a label, and that rows of other classes have theirs.
    """
    log_z = heard.noise.log_partition(heard.y, swept.cavity_mean, swept.cavity_var)[0]
    free, others = heard.y == 0.0, heard.y < 0.0
    labelled = np.broadcast_to(np.log1p(-heard.noise.gamma_minus * others), heard.y.shape)
    return float(np.sum(log_z[free]) + np.sum(labelled[others]))
