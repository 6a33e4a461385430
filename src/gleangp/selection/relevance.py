"""The multitask sparsity regulariser: related tasks should keep points in the same places.

Zhu & Sun 2013, section 4. To a selector's own score of row x of task t is added alpha beta Reg(x), with alpha
the largest score over the largest Reg of the moment and beta the `weight`,

    Reg(x) = sum_{i != t} sum_{j <= k'} 1 / (|f_t - f_i| |x - x_i^j|)            (eq. 11)

where f_t describes task t and x_i^j are the k' points nearest to x among those chosen in task i. The notes of
`TaskRelevance` say how the reciprocals are bounded and what else the paper leaves open.
"""

from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import TaskError
from gleangp.graph import mean_nearest_distance, nearest_neighbours
from gleangp.inference.block import Block
from gleangp.inference.posterior import fit_on_basis
from gleangp.selection.base import in_order, join_choices
from gleangp.selection.selectors import SELECTORS

_POOL_ROWS = 500  # crucial points are sought among so many rows of all tasks
_LABELS_PER_POINT = 3  # a task's label at a point that is not among its rows: the mean of so many near it
_LEAST_TASK_DISTANCE = 0.1  # in units of the median distance: equal tasks weigh ten times, not infinitely


class LabelRelevance(BaseEstimator):
    """Tasks are alike when they have like labels in like places.

    Parameters
    ----------
    descriptor : {"vector", "mean"}, default="vector"
        "vector": the labels of each task at the same crucial points, found among the rows of all
        tasks. "mean": one number per task, the mean label of its own crucial points, as in Zhu & Sun
        2013; with rare classes most tasks then have the same descriptor.

    Notes
    -----
    A task's label at a crucial point is the mean of its three rows nearest to it, or of its one nearest
    where all tasks have a row right there (tasks that share their inputs). Labels must mean the same
    in all tasks; where they do not, use `PosteriorRelevance`.

    Examples
    --------
    >>> from gleangp import GraphSelector, LabelRelevance, TaskRelevance
    >>> TaskRelevance(GraphSelector(), relevance=LabelRelevance("mean"))
    TaskRelevance(relevance=LabelRelevance(descriptor='mean'),
                  selector=GraphSelector())
    """

    model_free = True

    def __init__(self, descriptor="vector"):
        self.descriptor = descriptor

    def distances(self, kernel, blocks, n_points):
        """Euclidean distances between the descriptors, (M, M)."""
        if self.descriptor not in ("vector", "mean"):
            raise ValueError(f"descriptor={self.descriptor!r} is not known; use 'vector' or 'mean'.")
        if self.descriptor == "mean":
            means = [[b.y[principal_rows(b.X, n_points)].mean()] for b in blocks]
            return cdist(means, means)
        points = crucial_points(blocks, n_points)
        near = [cdist(points, b.X) for b in blocks]
        shared = np.all([d.min(axis=1) == 0.0 for d in near], axis=0)
        descriptors = []
        for distance, block in zip(near, blocks, strict=True):
            rows = np.argsort(distance, axis=1, kind="stable")[:, :_LABELS_PER_POINT]
            descriptors.append(np.where(shared, block.y[rows[:, 0]], block.y[rows].mean(axis=1)))
        return cdist(descriptors, descriptors)


class PosteriorRelevance(BaseEstimator):
    """Tasks are alike when their functions rise and fall in the same places.

    Each task's posterior, under the present kernel and noise, is formed on the same crucial points; the
    distance between two tasks is sqrt(1 - r^2) with r the correlation of their posterior means there. Units,
    offset and sign of the targets cancel: tasks may even have different noise models. A constant posterior
    mean is at distance 1 from all others. O(n m^2) for m crucial points.

    Examples
    --------
    >>> from gleangp import PosteriorRelevance, TaskRelevance
    >>> TaskRelevance("entropy", relevance=PosteriorRelevance()).relevance
    PosteriorRelevance()
    """

    def distances(self, kernel, blocks, n_points):
        """sqrt(1 - r^2) between the posterior means at the crucial points, (M, M)."""
        points = crucial_points(blocks, n_points)
        posteriors = [fit_on_basis(kernel, b, points) for b in blocks]
        means = [posterior.predict(kernel, points, with_var=False)[0] for posterior in posteriors]
        centred = np.array(means) - np.mean(means, axis=1, keepdims=True)
        length = np.linalg.norm(centred, axis=1)
        varies = length > 1e-12 * np.linalg.norm(means, axis=1)
        direction = np.divide(centred, length[:, None], out=np.zeros_like(centred), where=varies[:, None])
        distances = np.sqrt(1.0 - np.minimum((direction @ direction.T) ** 2, 1.0))
        np.fill_diagonal(distances, 0.0)
        return distances


RELEVANCES = {"labels": LabelRelevance, "posterior": PosteriorRelevance}


def crucial_points(blocks: list[Block], n_points: int) -> FloatArray:
    """Up to `n_points` inputs (m, p) that stand for the rows of all tasks; evenly spaced ones are tried."""
    share = max(1, _POOL_ROWS // len(blocks))
    pool = np.vstack([b.X[:: -(-len(b) // share)] for b in blocks])
    return pool[principal_rows(pool, n_points)]


def principal_rows(X: FloatArray, count: int) -> IntArray:
    """Principal variables of a Gaussian kernel matrix over the rows, as wide as their median distance."""
    distance = pdist(X)
    positive = distance[distance > 0.0]
    width = np.median(positive) if len(positive) else 1.0
    C = squareform(np.exp(-0.5 * (distance / width) ** 2))
    C.flat[:: len(C) + 1] = 1.0
    return principal_variables(C, count)


def principal_variables(C: FloatArray, count: int) -> IntArray:
    """The variables that explain most of all others, one after the other (Cumming & Wooff 2007).

    C (n, n) is their covariance matrix. There are fewer than `count` where fewer explain everything.
    """
    C = np.array(C, dtype=np.float64)
    floor = 1e-10 * np.diagonal(C)
    chosen: list[int] = []
    while len(chosen) < min(count, len(C)):
        var = np.diagonal(C)
        left = var > floor
        if not left.any():
            break
        # Variance of all variables that variable j explains, given those chosen before.
        explained = np.divide(np.einsum("ij,ij->j", C, C), var, out=np.zeros(len(C)), where=left)
        j = int(np.argmax(explained))
        chosen.append(j)
        column = C[:, j] / np.sqrt(var[j])
        C -= np.outer(column, column)
    return np.array(chosen, dtype=np.intp)


class TaskRelevance(BaseEstimator):
    """Adds to a selector's score how near a point is to those that related tasks chose.

    `TaskRelevance(EntropySelector())` is rMTIVM and `TaskRelevance(GraphSelector())` is rMTMPGR of
    Zhu & Sun 2013, section 4. It needs at least two tasks. They take turns and share the budget equally; a
    task that has no row left is passed over. For a task on its own, as in `add_task`, `selector` chooses.

    Parameters
    ----------
    selector : str or object
        The selector it is added to: a name, or any selector with `start_runs`.
    weight : float, default=1.0
        Largest regulariser relative to the largest score (beta in the paper, which tries 1/2 to 2).
        With 0 each task chooses on its own, in turns: the control for what the coupling does.
    n_neighbors : int, default=3
        So many of the nearest chosen points of every other task count.
    n_descriptor_points : int, default=8
        Crucial points at which tasks are compared.
    relevance : {"labels", "posterior"} or object, default="labels"
        How alike tasks are: `LabelRelevance`, `PosteriorRelevance`, or an object with
        `distances(kernel, blocks, n_points)` that gives an (M, M) array.

    Notes
    -----
    What the paper leaves open is settled so:

    * zero distance between points: the reciprocal distance is 1 / (1 + distance / m_x), with m_x the
      mean distance of a row to the nearest distinct row of its task;
    * equal descriptors: the reciprocal is 1 / (0.1 + distance / median), the median over pairs of tasks
      that differ, so that units cancel; where none do, all tasks weigh the same;
    * tasks that have chosen nothing yet: the regulariser is zero until every task has one point;
    * alpha is computed anew for every pick, over the rows of the task that are left.

    A selector that samples draws in proportion to the sum of score and regulariser.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor, TaskRelevance
    >>> X = np.random.default_rng(0).uniform(0, 6, (80, 1))
    >>> tasks = np.repeat(["a", "b"], 40)
    >>> y = np.sin(X[:, 0]) + (tasks == "b")
    >>> model = SparseGPRegressor(selector=TaskRelevance("graph", weight=0.5), n_active=20)
    >>> np.unique(tasks[model.fit(X, y, tasks).active_], return_counts=True)[1].tolist()
    [10, 10]
    """

    def __init__(self, selector, weight=1.0, n_neighbors=3, n_descriptor_points=8, relevance="labels"):
        self.selector = selector
        self.weight = weight
        self.n_neighbors = n_neighbors
        self.n_descriptor_points = n_descriptor_points
        self.relevance = relevance

    @property
    def alone(self):
        """The selector for a task on its own."""
        selector = SELECTORS[self.selector]() if self.selector in list(SELECTORS) else self.selector
        if not hasattr(selector, "start_runs"):
            raise ValueError(
                f"TaskRelevance cannot be added to selector={self.selector!r}, which has no start_runs. "
                f"Use one of {sorted(SELECTORS)}, or a selector object with that method."
            )
        return selector

    @property
    def _measure(self):
        if not isinstance(self.relevance, str):
            return self.relevance
        if self.relevance not in RELEVANCES:
            raise ValueError(f"relevance={self.relevance!r} is not known; use one of {sorted(RELEVANCES)}.")
        return RELEVANCES[self.relevance]()

    @property
    def model_free(self) -> bool:
        """Whether the choice depends on neither kernel nor noise."""
        return all(getattr(part, "model_free", False) for part in (self.alone, self._measure))

    def check_tasks(self, n_tasks: int) -> None:
        """Refuse a single task."""
        if n_tasks < 2:
            raise TaskError(
                "TaskRelevance compares tasks, and there is only one. Give tasks, or use its selector "
                f"alone: selector={self.selector!r}."
            )

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        self.check_tasks(len(blocks))
        if not (isinstance(self.weight, Real) and 0.0 <= float(self.weight) < np.inf):
            raise ValueError(f"weight={self.weight!r}; a finite number that is not negative is expected.")
        for name in ("n_neighbors", "n_descriptor_points"):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and int(value) >= 1):
                raise ValueError(f"{name}={value!r}; an integer of at least 1 is expected.")
        selector = self.alone
        if n_active >= sum(len(b) for b in blocks):
            return selector.select(kernel, blocks, n_active, rng=rng, n_jobs=n_jobs)
        runs = selector.start_runs(kernel, blocks, rng, n_jobs=n_jobs)
        closeness = task_closeness(self._distances(kernel, blocks))
        pull = Pull([b.X for b in blocks], closeness, self.n_neighbors)
        order = take_turns([len(b) for b in blocks])[:n_active]
        for task in order:
            run = runs[task]
            scores, reg = np.where(run.left, np.maximum(run.scores(), 0.0), -np.inf), pull.on(task)
            most = reg[run.left].max()
            alpha = scores[run.left].max() / most if most > 0.0 else 1.0
            row = run.choose(scores + self.weight * (reg * alpha))
            run.take(row)
            pull.add(task, row)
        choices = [run.choice(len(run.picks), block) for run, block in zip(runs, blocks, strict=True)]
        gain = in_order(order, [np.array(run.gains) for run in runs])
        objective = selector.achieved(runs) if hasattr(selector, "achieved") else None
        return replace(join_choices(order, choices), gain=gain, objective=objective)

    def _distances(self, kernel, blocks) -> FloatArray:
        """The distances between tasks, checked: any object may give them."""
        distances = np.asarray(self._measure.distances(kernel, blocks, self.n_descriptor_points))
        shape, wrong = (len(blocks), len(blocks)), None
        if distances.shape != shape:
            wrong = f"the distances between tasks have shape {distances.shape}, not {shape}."
        elif not np.all(np.isfinite(distances) & (distances >= 0.0)):
            a, b = np.argwhere(~(np.isfinite(distances) & (distances >= 0.0)))[0]
            where = f"tasks number {a} and {b} (from 0) is {distances[a, b]}"
            wrong = f"the distance between {where}, from descriptors that are not finite or not a distance."
        if wrong:
            raise TaskError(f"{wrong} Look at relevance={self.relevance!r}, or at the targets.")
        return distances


class Pull:
    """Reg(x) for the rows of every task, kept up to date as tasks choose points."""

    def __init__(self, inputs: list[FloatArray], closeness: FloatArray, n_neighbors: int):
        self.X, self.closeness, self.m_x = np.vstack(inputs), closeness, point_scale(inputs)
        self.edges = np.cumsum([0] + [len(X) for X in inputs])
        # (M, k', N) 1 / (1 + distance / m_x) of every row to the nearest chosen points of every task,
        # descending; zero where a task has chosen fewer
        self.nearest = np.zeros((len(inputs), n_neighbors, len(self.X)))

    def on(self, task: int) -> FloatArray:
        """Reg of the rows of a task; zero until every task has chosen a point."""
        rows = slice(*self.edges[task : task + 2])
        near = self.nearest[:, :, rows].sum(axis=1)
        if not near[:, 0].all():  # a chosen point adds to every row
            return np.zeros(rows.stop - rows.start)
        return self.closeness[task] @ near  # Zhu & Sun 2013, eq. 11, bounded

    def add(self, task: int, row: int) -> None:
        """A task has chosen a row."""
        new = self.m_x / (self.m_x + cdist(self.X[[self.edges[task] + row]], self.X)[0])
        for near in self.nearest[task]:  # insert into the descending list of every row
            new, near[:] = np.minimum(near, new), np.maximum(near, new)


def task_closeness(distances: FloatArray) -> FloatArray:
    """1 / (0.1 + distance / median distance) between tasks, zero of a task to itself, (M, M)."""
    differ = distances[(distances > 0.0) & ~np.eye(len(distances), dtype=bool)]
    closeness = 1.0 / (_LEAST_TASK_DISTANCE + distances / (np.median(differ) if len(differ) else 1.0))
    np.fill_diagonal(closeness, 0.0)
    return closeness


def take_turns(sizes: list[int]) -> IntArray:
    """Task after task, round and round; a task that has no row left is passed over."""
    round_ = np.concatenate([np.arange(n) for n in sizes])
    return np.repeat(np.arange(len(sizes)), sizes)[np.argsort(round_, kind="stable")]


def point_scale(inputs: list[FloatArray]) -> float:
    """Mean distance of a row to the nearest distinct row of its task; 1 where no two rows differ."""
    differ = [X for X in inputs if (X != X[0]).any()]
    means = [mean_nearest_distance(X, nearest_neighbours(X, 1)[1]) for X in differ]
    return float(np.average(means, weights=[len(X) for X in differ])) if means else 1.0
