"""The multitask sparsity regulariser: against its definition, and where the paper leaves it open."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, KFold

from gleangp import (
    EntropySelector,
    GraphSelector,
    InformationGainSelector,
    LabelRelevance,
    PosteriorRelevance,
    RandomSelector,
    ResidualSelector,
    SparseGPClassifier,
    SparseGPRegressor,
    TaskRelevance,
)
from gleangp.exceptions import TaskError
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, Probit
from gleangp.selection.relevance import (
    crucial_points,
    point_scale,
    principal_variables,
    take_turns,
    task_closeness,
)

KERNEL = RBF(0.8)
WRAPPED = [
    EntropySelector(),
    InformationGainSelector(),
    GraphSelector(4),
    GraphSelector(4, 2.0, "coverage"),
    ResidualSelector("variance"),
    ResidualSelector("gain"),
    RandomSelector(),
]


def blocks_of(sizes, noise=None, seed=0, p=2):
    rng = np.random.default_rng(seed)
    blocks = []
    for n in sizes:
        X = rng.normal(size=(n, p))
        f = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
        blocks.append(Block(X, f, Gaussian(0.1)) if noise is None else Block(X, np.sign(f), noise))
    return blocks


class GivenDistances:
    """A relevance that a user might write: the distances are known."""

    def __init__(self, distances):
        self.given = np.asarray(distances, dtype=float)

    def distances(self, kernel, blocks, n_points):
        return self.given


def regulariser(x, task, chosen, closeness, m_x, k):
    """Zhu & Sun 2013, eq. 11 with both reciprocals bounded, for one point, term by term."""
    total = 0.0
    for other, points in enumerate(chosen):
        if other != task:
            distances = sorted(np.linalg.norm(x - z) for z in points)[:k]
            total += closeness[task, other] * sum(1.0 / (1.0 + d / m_x) for d in distances)
    return total


def choose_jointly(selector, blocks, distances, n_active, weight, k):
    """The regularised greedy, all of it computed anew for every pick."""
    runs = selector.start_runs(KERNEL, blocks, np.random.default_rng(0))
    closeness = task_closeness(np.asarray(distances, dtype=float))
    m_x = point_scale([b.X for b in blocks])
    picks = []
    for task in take_turns([len(b) for b in blocks]):
        if len(picks) == n_active:
            return picks
        scores = runs[task].scores()
        left = [r for r in range(len(blocks[task])) if r not in runs[task].picks]
        chosen = [b.X[run.picks] for b, run in zip(blocks, runs, strict=True)]
        reg = np.zeros(len(scores))
        if all(len(points) for points in chosen):
            reg = np.array([regulariser(x, task, chosen, closeness, m_x, k) for x in blocks[task].X])
            reg *= max(scores[left]) / max(reg[left])
        best = max(left, key=lambda r: (round(scores[r] + weight * reg[r], 10), -r))
        runs[task].take(best)
        picks.append((task, best))
    return picks


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("noise", [None, Probit()], ids=["gaussian", "probit"])
@pytest.mark.parametrize("selector", WRAPPED[:4], ids=repr)
def test_regularised_greedy_equals_brute_force(selector, noise, weight):
    """The picks are those of recomputing score and regulariser for every row at every step."""
    blocks = blocks_of([14, 20, 6], noise)
    distances = [[0, 1, 2], [1, 0, 0], [2, 0, 0]]
    coupled = TaskRelevance(selector, weight, n_neighbors=2, relevance=GivenDistances(distances))
    selection = coupled.select(KERNEL, blocks, 27, rng=np.random.default_rng(0))
    expected = choose_jointly(selector, blocks, distances, 27, weight, 2)
    seen = [0, 0, 0]
    for task, (expected_task, expected_row) in zip(selection.order, expected, strict=True):
        assert task == expected_task
        assert selection.active[task][seen[task]] == expected_row
        seen[task] += 1


@pytest.mark.parametrize("selector", WRAPPED, ids=repr)
@pytest.mark.parametrize("noise", [None, Probit()], ids=["gaussian", "probit"])
def test_every_selector_can_be_wrapped(selector, noise):
    """The budget is shared in turns, no row is taken twice, and scores are those of the selector."""
    blocks = blocks_of([9, 30, 30], noise)
    selection = TaskRelevance(selector).select(KERNEL, blocks, 45, rng=np.random.default_rng(1))
    assert [len(rows) for rows in selection.active] == [9, 18, 18]
    assert all(len(np.unique(rows)) == len(rows) for rows in selection.active)
    assert selection.order[:6].tolist() == [0, 1, 2, 0, 1, 2]
    assert (selection.gain >= 0.0).all()


def test_without_weight_each_task_chooses_alone():
    """Weight 0 gives every task the sequence that the selector would give it on its own."""
    blocks = blocks_of([30, 25], Probit())
    selection = TaskRelevance("entropy", weight=0).select(KERNEL, blocks, 20, rng=np.random.default_rng(0))
    for block, rows in zip(blocks, selection.active, strict=True):
        alone = EntropySelector().select(KERNEL, [block], 10, rng=np.random.default_rng(0))
        assert_array_equal(rows, alone.active[0])


def test_large_weight_draws_related_tasks_together():
    """The more weight, the nearer a task's points lie to those of the task it resembles."""
    blocks = blocks_of([60, 60], seed=3)
    apart = []
    for weight in (0.0, 1.0, 20.0):
        chosen = TaskRelevance(GraphSelector(), weight).select(
            KERNEL, blocks, 20, rng=np.random.default_rng(0)
        )
        a, b = (block.X[rows] for block, rows in zip(blocks, chosen.active, strict=True))
        apart.append(np.mean(np.linalg.norm(a[:, None] - b, axis=2).min(axis=1)))
    assert apart[0] > apart[1] > apart[2]


def test_units_of_inputs_and_descriptors_cancel():
    """Scaling the inputs, or all distances between tasks, changes no pick of a graph selector."""
    blocks = blocks_of([20, 20, 20])
    D = np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0.0]])
    first = TaskRelevance("graph", relevance=GivenDistances(D)).select(KERNEL, blocks, 18, rng=None)
    scaled = [Block(64.0 * b.X, b.y, b.noise) for b in blocks]
    second = TaskRelevance("graph", relevance=GivenDistances(1024 * D)).select(KERNEL, scaled, 18, rng=None)
    for one, other in zip(first.active, second.active, strict=True):
        assert_array_equal(one, other)


def test_shared_inputs_and_equal_descriptors_stay_finite():
    """Zero distances, of points and of tasks, give a finite choice and not copies of one task."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    blocks = [Block(X, np.sin(X[:, 0]), Gaussian(0.1)) for _ in range(3)]
    closeness = task_closeness(LabelRelevance().distances(KERNEL, blocks, 8))
    assert_allclose(closeness, 10.0 * (1 - np.eye(3)))
    selection = TaskRelevance("graph").select(KERNEL, blocks, 30, rng=np.random.default_rng(0))
    assert np.isfinite(selection.gain).all()
    assert 0.0 < selection.objective < 1.0


def test_closeness_is_bounded_and_free_of_units():
    """1 / (0.1 + distance / median): 10 for equal tasks, 1 / 1.1 at the median."""
    D = np.array([[0, 0, 5], [0, 0, 5], [5, 5, 0.0]])
    expected = [[0, 10, 1 / 1.1], [10, 0, 1 / 1.1], [1 / 1.1, 1 / 1.1, 0]]
    assert_allclose(task_closeness(D), expected)
    assert_allclose(task_closeness(1e6 * D), expected)


def test_principal_variables_explain_most():
    """Each choice leaves least residual variance over all variables, as trying all of them shows."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(12, 30))
    C = A @ A.T
    chosen = principal_variables(C, 5)
    for step in range(5):
        before = chosen[:step]

        def residual(j, before=before):
            rows = [*before, j]
            return np.trace(C - C[:, rows] @ np.linalg.solve(C[np.ix_(rows, rows)], C[rows]))

        assert chosen[step] == min((j for j in range(12) if j not in before), key=residual)
    assert len(principal_variables(np.ones((6, 6)), 4)) == 1


def test_crucial_points_are_distinct_rows_of_the_tasks():
    """Duplicates explain nothing new, so each crucial point is another one."""
    X = np.repeat(np.arange(5.0), 4)[:, None]
    points = crucial_points([Block(X, X[:, 0], Gaussian(0.1))] * 2, 8)
    assert sorted(points[:, 0].tolist()) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_label_descriptors_see_what_labels_say():
    """Equal tasks are at distance zero; the one with other labels is farthest; means can be blind."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.sin(2 * X[:, 0])
    blocks = [Block(X, target, Gaussian(0.1)) for target in (y, y.copy(), -y)]
    D = LabelRelevance().distances(KERNEL, blocks, 8)
    assert D[0, 1] == 0.0
    assert D[0, 2] == pytest.approx(2 * np.linalg.norm(y[_rows_at(X, crucial_points(blocks, 8))]))
    means = LabelRelevance("mean").distances(KERNEL, blocks, 8)
    assert means[0, 1] == 0.0
    assert means[0, 2] > 0.0


def _rows_at(X, points):
    return [int(np.argmin(np.linalg.norm(X - z, axis=1))) for z in points]


@pytest.mark.parametrize("noise", [Gaussian(0.1), Probit()], ids=["gaussian", "probit"])
def test_posterior_relevance_ignores_the_sign(noise):
    """Tasks with the same function up to its sign are near; an unrelated one is not; silence is 1."""
    rng = np.random.default_rng(1)
    X = [rng.uniform(-2, 2, size=(80, 1)) for _ in range(3)]
    targets = [np.sin(2 * X[0][:, 0]), -np.sin(2 * X[1][:, 0]), np.cos(X[2][:, 0]) - 0.5]
    if noise.precision_depends_on_mean:
        targets = [np.sign(t) for t in targets]
    blocks = [Block(x, t, noise) for x, t in zip(X, targets, strict=True)]
    D = PosteriorRelevance().distances(RBF(0.7), blocks, 8)
    assert D[0, 1] < 0.3
    assert D[0, 2] > 0.6
    assert_allclose(D, D.T)
    silent = [blocks[0], Block(X[1], np.zeros(80), Gaussian(0.1))]
    assert PosteriorRelevance().distances(RBF(0.7), silent, 8)[0, 1] == 1.0


def test_posterior_relevance_of_rescaled_targets_is_the_same():
    """Targets in other units, under Gaussian noise, leave the distances as they were."""
    blocks = blocks_of([40, 40, 40])
    other = [Block(b.X, 7.0 * b.y, Gaussian(0.1)) if k == 1 else b for k, b in enumerate(blocks)]
    assert_allclose(
        PosteriorRelevance().distances(KERNEL, other, 8),
        PosteriorRelevance().distances(KERNEL, blocks, 8),
        atol=1e-7,
    )


@pytest.mark.parametrize("relevance", ["labels", "posterior"])
@pytest.mark.parametrize("posterior", ["active", pytest.param("local", marks=pytest.mark.slow)])
def test_estimators_take_it(posterior, relevance):
    """Regression and classification over tasks fit, predict, and add a task with the wrapped selector."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-3, 3, size=(120, 1))
    tasks = np.repeat(["a", "b", "c"], 40)
    y = np.sin(X[:, 0]) + (tasks == "b")
    selector = TaskRelevance(GraphSelector(5), relevance=relevance)
    model = SparseGPRegressor(selector=selector, n_active=36, posterior=posterior).fit(X, y, tasks)
    assert model.score(X, y, tasks=tasks) > 0.95
    model.add_task(X[:40], y[:40] - 3.0, "d")
    assert_allclose(model.predict(X[:40], tasks=["d"] * 40), y[:40] - 3.0, atol=0.7)
    classifier = SparseGPClassifier(
        selector=TaskRelevance("entropy", relevance=relevance), n_active=36, posterior=posterior
    ).fit(X, y > 0.5, tasks)
    assert classifier.score(X, y > 0.5, tasks=tasks) > 0.85


def test_grid_search_over_nested_parameters():
    """`selector__weight`, `selector__selector__scale` and `n_active` can be searched."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.tile([0.0, 1.0], 30), rng.uniform(0, 6, 60)])
    y = np.sin(X[:, 1]) + X[:, 0]
    model = SparseGPRegressor(
        RBF(1.0), selector=TaskRelevance(GraphSelector(3)), n_active=12, task=0, optimizer=None
    )
    grid = {"selector__weight": [0.5, 2.0], "selector__selector__scale": [1.0, 5.0], "n_active": [12, 16]}
    search = GridSearchCV(model, grid, cv=KFold(2), error_score="raise").fit(X, y)
    assert set(search.best_params_) == set(grid)
    assert search.best_estimator_.selector.weight == search.best_params_["selector__weight"]
    assert clone(model).selector.selector.n_neighbors == 3


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (TaskRelevance("graph", weight=-0.5), r"weight=-0.5; .* not negative"),
        (TaskRelevance("graph", weight=np.nan), r"weight=nan; a finite number"),
        (TaskRelevance("graph", n_neighbors=0), r"n_neighbors=0; an integer of at least 1"),
        (TaskRelevance("graph", n_descriptor_points=1.5), r"n_descriptor_points=1.5; an integer"),
        (TaskRelevance("graph", relevance="dreams"), r"relevance='dreams' is not known; use one of"),
        (TaskRelevance("best"), r"selector='best', which has no start_runs"),
        (TaskRelevance("graph", relevance=LabelRelevance("mode")), r"descriptor='mode' is not known"),
    ],
)
def test_impossible_settings(selector, message):
    """What cannot be meant is refused with the value and what is expected."""
    with pytest.raises(ValueError, match=message):
        selector.select(KERNEL, blocks_of([20, 20]), 10, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        ([[0, np.nan], [np.nan, 0]], r"tasks number 0 and 1 \(from 0\) is nan, .* not finite"),
        ([[0, np.inf], [np.inf, 0]], r"is inf, .* not finite"),
        ([[0, -1], [-1, 0]], r"is -1.0, .* not a distance"),
        ([0, 1], r"shape \(2,\), not \(2, 2\)"),
    ],
)
def test_descriptors_that_are_not_finite(distances, message):
    """Distances that no finite descriptors can have are refused."""
    selector = TaskRelevance("graph", relevance=GivenDistances(distances))
    with pytest.raises(TaskError, match=message):
        selector.select(KERNEL, blocks_of([20, 20]), 10, rng=np.random.default_rng(0))


@pytest.mark.parametrize("n_active", [5, None])
def test_a_single_task_is_refused(n_active):
    """There is nothing to be relevant to, even where all rows would be kept; the estimator stays unfitted."""
    X = np.arange(30.0)[:, None]
    model = SparseGPRegressor(selector=TaskRelevance("graph"), n_active=n_active)
    with pytest.raises(TaskError, match=r"compares tasks, and there is only one.*selector='graph'"):
        model.fit(X, np.sin(X[:, 0]))
    assert not hasattr(model, "active_")
