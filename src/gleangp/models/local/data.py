"""The rows of all tasks as the model needs them; blocks of them, and rows that are a basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.neighbourhoods import neighbourhoods
from gleangp.data.tasks import filled_blocks
from gleangp.inference.block import Block
from gleangp.inference.prior import Term
from gleangp.models.defaults import Conditioning
from gleangp.noise import Gaussian
from gleangp.selection.runs import PivotedRun
from gleangp.selection.selectors import ResidualSelector


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of all tasks; inputs in their own units, targets in the coding of the noise."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,)
    codes: IntArray  # (n,)
    n_tasks: int
    noise: Any  # the noise model of all rows; a variance of `Gaussian` is a factor of the learnt one

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> IntArray:
        """(M,) rows of each task."""
        return np.bincount(self.codes, minlength=self.n_tasks)

    def at(self, rows: IntArray) -> Data:
        """Some of the rows."""
        return Data(self.X[rows], self.y[rows], self.codes[rows], self.n_tasks, self.noise.at(rows))


def targets_of(y: FloatArray, noise: Any) -> dict[str, FloatArray]:
    """Targets and what else is known of every row, such as "exposure"; each (n,)."""
    values = {"y": y, **{name: getattr(noise, name) for name in known_of_rows(noise)}}
    return {name: np.array(np.broadcast_to(value, len(y)), np.float64) for name, value in values.items()}


def known_of_rows(noise: Any) -> list[str]:
    """Fields of a noise model that are not learnt but known for every row."""
    return [name for name in noise.row_fields if name not in noise.transforms]


def canonical_order(X: FloatArray, y: FloatArray, codes: IntArray) -> IntArray:
    """An order of the rows that depends on their content alone, so that results do not depend on theirs."""
    return np.lexsort((y, *X.T[::-1], codes))


def exact_copies(data: Data) -> np.ndarray:
    """(n,) whether a row repeats the one before it in task, inputs and target; rows in canonical order.

    None of a task does if a target differs from that of an earlier row with the same inputs. The density of
    equal targets has no bound as the noise goes to zero: where not one repeated row differs, it would
    outweigh what all other rows show of the noise. Tasks have noise of their own, so each is judged alone.
    """
    repeats = (np.diff(data.codes) == 0) & np.all(data.X[1:] == data.X[:-1], axis=1)
    differs, codes = repeats & (np.diff(data.y) != 0), data.codes[1:]
    return np.append(False, repeats & (np.bincount(codes[differs], minlength=data.n_tasks) == 0)[codes])


def rounding_variance(data: Data) -> FloatArray:
    """(M,) variance of the errors of rounding, on average over the rows of each task; of a row of weight one.

    A target that several rows have is rounded: with the gap w to the nearest other target, errors are uniform
    and have the variance w^2 / 12. A target that one row has is not.
    """
    values, which, counts = np.unique(data.y, return_inverse=True, return_counts=True)
    if len(values) < 2:
        return np.zeros(data.n_tasks)
    gaps = np.diff(values)
    nearest = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    of_rows = np.where(counts > 1, nearest**2 / 12.0, 0.0)[which] / data.noise.variance
    return np.bincount(data.codes, of_rows, data.n_tasks) / np.maximum(data.sizes, 1)


def blocks_of_tasks(codes: IntArray, W: FloatArray, block: int) -> list[IntArray]:
    """Every task of up to twice `block` rows as one block, larger ones in neighbourhoods.

    W are the inputs in units in which distances matter.
    """
    blocks = []
    for _, rows in filled_blocks(codes):
        parts = neighbourhoods(W[rows], block) if len(rows) > 2 * block else [np.arange(len(rows))]
        blocks += [rows[part] for part in parts]
    return blocks


def own_bases(terms: Sequence[Term], data: Data, X: FloatArray, blocks, count: int, rng) -> dict[int, Any]:
    """Rows of X as a basis of every task with several blocks, if it has functions of its own."""
    own: dict[int, Any] = {}
    n_blocks = np.bincount([data.codes[rows[0]] for rows in blocks])
    for task in np.flatnonzero(n_blocks > 1).tolist() if data.n_tasks > 1 else ():
        if any(t.own[task] > 0.0 for t in terms):
            rows = np.flatnonzero(data.codes == task)
            own[task] = X[rows[some_of(len(rows), count, rng)]]
    return own


def some_of(n: int, count: int, rng: np.random.Generator) -> IntArray:
    """All numbers below n, or as many of them drawn, in order."""
    return np.arange(n) if n <= count else np.sort(rng.choice(n, count, replace=False))


def pivots_of(kernel, W, pool, count, rng):
    """Rows of W that leave little of the kernel's covariance unexplained: a choice of basis points."""
    return PivotedRun(kernel, W, rng).extend(count).picks[:count]


def choose_basis_of(selector: Any) -> Any:
    """The selector as a function (kernel, W, pool, count, rng) -> rows.

    W are the rows of `pool` as the kernel sees them. A selector that weighs tasks against each other sees
    each of them with its targets, any other selector one block.
    """
    if isinstance(selector, ResidualSelector):
        return pivots_of

    def choose(kernel: Any, W: FloatArray, pool: Data, count: int, rng: np.random.Generator) -> IntArray:
        parts, y = [np.arange(len(W))], np.zeros(len(W))
        if hasattr(selector, "alone"):
            parts, y = [rows for _, rows in filled_blocks(pool.codes)], pool.y
        blocks = [Block(W[rows], y[rows], Gaussian(0.1)) for rows in parts]
        active = selector.select(kernel, blocks, min(count, len(W)), rng=rng).active
        return np.concatenate([rows[chosen] for rows, chosen in zip(parts, active, strict=True)])

    return choose


def with_points(how: Conditioning, n_basis: int | None, n_rows: int) -> Conditioning:
    """With as many basis points as were asked for; None: the default. With few, rows depend through them."""
    if n_basis is None:
        return how
    return replace(how, n_basis=n_basis, n_together=0 if n_basis < n_rows else how.n_together)
