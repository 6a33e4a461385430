"""The rows of all tasks, and what learning asks of them.

Sums over tasks are taken in **chunks**, which depend on the sizes of the tasks alone, so that a fit does not
depend on who computes what: floating-point sums depend on their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import parallel_config

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import without_own_site
from gleangp.models.active.fit_blocks import choose_points, evidence_of_blocks, fit_blocks
from gleangp.models.active.settings import Settings
from gleangp.numerics.parallel import in_parallel

_CHUNK_ROWS = 20_000


def chunks_of_tasks(sizes: list[int]) -> list[tuple[int, int]]:
    """First and last-but-one task of every chunk: neighbours with about 20 000 rows together."""
    chunks, start, rows = [], 0, 0
    for task, size in enumerate(sizes):
        rows += size
        if rows >= _CHUNK_ROWS:
            chunks.append((start, task + 1))
            start, rows = task + 1, 0
    return chunks if start == len(sizes) else [*chunks, (start, len(sizes))]


def is_exact(noise, sizes: list[int], settings: Settings) -> bool:
    """Whether the evidence of a round is the exact one of all rows."""
    return settings.n_active >= sum(sizes) and not noise.precision_depends_on_mean


class LocalTasks:
    """Rows of tasks that share kernel and noise; tasks are numbered among those that have rows.

    `block_rows` are the numbers of the rows in the training set.
    """

    def __init__(self, blocks: list[Block], block_rows: list[IntArray] | None = None):
        self.n_tasks, self.n_inputs = len(blocks), blocks[0].X.shape[1]
        self.all_blocks, self.all_rows = blocks, block_rows
        self.filled = [t for t, b in enumerate(blocks) if len(b)]
        self.blocks = [blocks[t] for t in self.filled]
        self.block_rows = None if block_rows is None else [block_rows[t] for t in self.filled]
        self.sizes = [len(b) for b in self.blocks]
        self.chunks = chunks_of_tasks(self.sizes)
        self.noise = self.blocks[0].noise

    def with_noise(self, values):
        """The same rows under other noise values."""
        if not values:
            return self
        other = object.__new__(LocalTasks)
        other.__dict__ = dict(self.__dict__)
        models = {id(b.noise): b.noise for b in self.blocks}
        models = {key: replace(noise, **values) for key, noise in models.items()}  # shared ones stay so
        other.blocks = [replace(b, noise=models[id(b.noise)]) for b in self.blocks]
        other.noise = other.blocks[0].noise
        return other

    def take(self, chosen):
        """Some rows of some tasks."""
        return [self.blocks[t].at(rows) for t, rows in chosen]

    def choose(self, kernel, settings, seed):
        """The active points."""
        return choose_points(kernel, self.blocks, settings, seed)

    def row_numbers(self, selection):
        """Rows of the training set, in order of inclusion."""
        return selection.rows(self.block_rows)

    def evidence(self, kernel, selection, settings):
        """The objective of a round; an exact one needs no selection."""
        exact = is_exact(self.noise, self.sizes, settings)
        parts = [
            evidence_of_blocks(
                kernel,
                self.blocks[a:b],
                None if selection is None else selection.of_tasks(a, b),
                settings,
                exact,
            )
            for a, b in self.chunks
        ]
        return SummedEvidence(parts, settings.n_jobs)

    def fit(self, kernel, selection, settings):
        """Posterior and sites of every task, and the log evidence; with `n_jobs`, chunks in processes."""
        apart = settings.n_jobs not in (None, 1) and len(self.chunks) > 1
        how = settings.portable() if apart else settings
        calls = [(kernel, self.blocks[a:b], selection.of_tasks(a, b), how) for a, b in self.chunks]
        posteriors, sites, values = [], [], []
        for part in in_parallel(fit_blocks, calls, settings.n_jobs):
            posteriors += part[0]
            sites += part[1]
            values.append(part[2])
        if apart:  # other processes cannot tell
            for _ in posteriors:
                settings.task_done()
        return posteriors, sites, sum(values)

    def noise_objective(self, kernel, selection, posteriors=None):
        """The sum of log Z over all rows (LPJ05, eq. 28) and its gradients, as a function of noise values.

        An active row is judged by its posterior given the others: with its own site in it, noise that
        lets every active point have its way would look best. Without `posteriors`, rows are taken as the
        selection saw them.
        """
        if posteriors is None:
            parts = [NoiseTerm(self.blocks[a:b], selection.seen[a:b]) for a, b in self.chunks]
        else:
            parts = [
                noise_term(kernel, self.blocks[a:b], posteriors[a:b], selection.active[a:b])
                for a, b in self.chunks
            ]
        return lambda values: sum_noise_terms([part(values) for part in parts])


class SummedEvidence:
    """The evidence of all tasks from that of chunks of them."""

    def __init__(self, parts: list[Any], n_jobs: int | None = None):
        self.parts = parts
        self.n_jobs = n_jobs
        self.holds_sites = parts[0].holds_sites

    def __call__(self, kernel, noise_values):
        calls = [(part, kernel, noise_values) for part in self.parts]
        if len(calls) == 1:
            return sum_evidence([evidence_sums(*calls[0])])
        with parallel_config(backend="threading"):
            return sum_evidence(in_parallel(evidence_sums, calls, self.n_jobs))


def evidence_sums(part, kernel, noise_values) -> tuple[float, FloatArray, dict[str, FloatArray]]:
    """Value and gradients of a chunk, the noise gradients summed over its rows."""
    value, theta_grad, noise_grads = part(kernel, noise_values)
    return value, theta_grad, {name: np.sum(g, axis=0) for name, g in noise_grads.items()}


def sum_evidence(parts) -> tuple[float, FloatArray, dict[str, FloatArray]]:
    """The sum over chunks, in their order; noise gradients are left stacked."""
    values, theta_grads, noise_grads = zip(*parts, strict=True)
    grads = {name: np.stack([g[name] for g in noise_grads]) for name in noise_grads[0]}
    return sum(values), np.sum(theta_grads, axis=0), grads


class NoiseTerm:
    """Sum of log Z over the rows of some blocks with given marginals, as a function of noise values."""

    def __init__(self, blocks: list[Block], marginals: Sequence[tuple[FloatArray, FloatArray]]):
        self.parts = [(b.noise, b.y, *at) for b, at in zip(blocks, marginals, strict=True)]
        first = blocks[0].noise
        if all(b.noise is first for b in blocks) and first.at(slice(0, 1)) is first:
            # One model without anything that differs from row to row: one call instead of many.
            _, *rows = zip(*self.parts, strict=True)
            self.parts = [(first, *(np.concatenate(r) for r in rows))]

    def __call__(self, values):
        total, gradients = 0.0, []
        for of_block, *rows in self.parts:
            noise = replace(of_block, **values)
            total += float(np.sum(noise.log_partition(*rows)[0]))
            gradients.append(noise.log_partition_grad(*rows))
        return total, {name: sum(np.sum(g[name], axis=0) for g in gradients) for name in values}


def noise_term(kernel, blocks, posteriors, active) -> NoiseTerm:
    """The sum of log Z over the rows of a chunk."""
    given = zip(posteriors, blocks, active, strict=True)
    return NoiseTerm(blocks, [without_own_site(kernel, p, b.X, a) for p, b, a in given])


def sum_noise_terms(parts) -> tuple[float, dict[str, FloatArray]]:
    """The sum over chunks; gradients are left stacked."""
    totals, gradients = zip(*parts, strict=True)
    return sum(totals), {name: np.stack([g[name] for g in gradients]) for name in gradients[0]}
