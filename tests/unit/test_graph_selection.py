"""Graph selection: the lazy greedy against a brute-force twin, its order, and its limits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import RBF

from gleangp import GraphSelector, SparseGPClassifier, SparseGPRegressor
from gleangp.exceptions import GraphError
from gleangp.graph import connectivity, exponential_graph
from gleangp.inference.block import Block
from gleangp.noise import Gaussian
from gleangp.selection.runs import GraphRun


def random_weights(rng, n, ties):
    """A random symmetric graph, also with rows that have no edge; few distinct weights make ties."""
    W = rng.choice([0.25, 0.5, 1.0], (n, n)) if ties else rng.random((n, n))
    W = np.triu(W * (rng.random((n, n)) < 0.2), 1)
    return W + W.T


def take_largest_degree(W, d):
    """Zhu & Sun 2013, section 3: take the vertex of largest degree, delete it and its edges, repeat."""
    W = W.copy()
    left = list(range(len(W)))
    picks = []
    for _ in range(d):
        degrees = [sum(sorted(W[v])) for v in left]
        picks.append(left[int(np.argmax(degrees))])
        left.remove(picks[-1])
        W[picks[-1]] = W[:, picks[-1]] = 0.0
    return picks


def take_best_connectivity(W, d):
    """Plain greedy on eq. 10: always the vertex after which its value is largest."""
    picks = []
    for _ in range(d):
        values = [
            -1.0 if v in picks else round(connectivity(csr_array(W), np.array([*picks, v])), 12)
            for v in range(len(W))
        ]
        picks.append(int(np.argmax(values)))
    return picks


def blocks_of(sizes, seed=0, p=2):
    rng = np.random.default_rng(seed)
    return [Block(rng.normal(size=(n, p)), rng.normal(size=n), Gaussian(0.1)) for n in sizes]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_degree_greedy_equals_brute_force(seed, ties):
    """The run takes what recomputing every degree takes, ties to the lowest row."""
    W = random_weights(np.random.default_rng(seed), 40, ties)
    run = GraphRun(csr_array(W)).extend(40)
    assert run.picks == take_largest_degree(W, 40)
    assert run.gains == sorted(run.gains, reverse=True)
    assert run.weight == -np.inf


@pytest.mark.parametrize("seed", range(4))
def test_coverage_greedy_equals_brute_force(seed):
    """The run takes what the plain greedy on eq. 10 takes."""
    W = random_weights(np.random.default_rng(seed), 25, ties=False)
    run = GraphRun(csr_array(W), "coverage").extend(24)
    assert run.picks == take_best_connectivity(W, 24)


@pytest.mark.parametrize("objective", ["degree", "coverage"])
def test_scores_are_kept_up_to_date(objective):
    """After every pick the scores are, to the last bit, those of a computation from the beginning."""
    W = csr_array(random_weights(np.random.default_rng(3), 60, ties=False))
    run = GraphRun(W, objective)
    for _ in range(60):
        again = run.worth_of(np.arange(60))
        assert_array_equal(run.scores(), np.where(run.left, again, -np.inf))
        run.extend(1)
    assert_array_equal(run.scores(), -np.inf)


def test_coverage_gains_add_up_to_the_objective():
    """A pick's score is the rise of sum_i max_j W_ij with W_ii = 1, so the scores sum to it."""
    X = np.random.default_rng(2).normal(size=(80, 2))
    W = exponential_graph(X, 8, 3.0)
    run = GraphRun(W, "coverage").extend(20)
    expected = 20 + 60 * connectivity(W, np.array(run.picks))
    assert sum(run.gains) == pytest.approx(expected, rel=1e-12)


def test_coverage_beats_degree_and_chance_at_its_goal():
    """Greedy on eq. 10 reaches a larger value of it than the degree rule and random rows."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 3))
    W = exponential_graph(X, 10, 5.0)
    covered, by_degree = (
        connectivity(W, np.array(GraphRun(W, o).extend(30).picks)) for o in ("coverage", "degree")
    )
    by_chance = np.mean([connectivity(W, rng.permutation(300)[:30]) for _ in range(20)])
    assert covered > by_degree + 0.05
    assert covered > by_chance + 0.05


@pytest.mark.parametrize("objective", ["degree", "coverage"])
def test_tasks_compete_for_every_pick(objective):
    """Over tasks the best row of all comes next: the joint loop on the block-diagonal graph."""
    blocks = blocks_of([40, 25, 60], seed=1)
    selector = GraphSelector(n_neighbors=5, objective=objective)
    selection = selector.select(RBF(), blocks, 50, rng=np.random.default_rng(0))
    runs = selector.start_runs(RBF(), blocks, None)
    for step, task in enumerate(selection.order):
        weights = [run.weight for run in runs]
        assert task == int(np.argmax(weights))
        assert selection.gain[step] == weights[task]
        runs[task].extend(1)
    for run, rows in zip(runs, selection.active, strict=True):
        assert run.picks == rows.tolist()


def test_objective_is_the_mean_over_left_out_rows_of_all_tasks():
    """The reported eq. 10 is that of the block-diagonal graph."""
    blocks = blocks_of([30, 45], seed=2)
    selector = GraphSelector(n_neighbors=4, scale=2.0)
    selection = selector.select(RBF(), blocks, 21, rng=np.random.default_rng(0))
    strongest = []
    for block, kept in zip(blocks, selection.active, strict=True):
        W = exponential_graph(block.X, 4, 2.0).toarray()
        out = np.setdiff1d(np.arange(len(block)), kept)
        strongest += W[np.ix_(out, kept)].max(axis=1).tolist()
        one = selector.connectivity(block.X, kept)
        assert one == pytest.approx(W[np.ix_(out, kept)].max(axis=1).mean())
    assert selection.objective == pytest.approx(np.mean(strongest))


def test_choice_does_not_look_at_targets_or_kernel():
    """Other targets, another kernel: the same rows, in the same order."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(X[:, 0])
    first = SparseGPRegressor(selector="graph", n_active=12, posterior="active").fit(X, y)
    second = SparseGPRegressor(
        RBF(0.3), selector="graph", n_active=12, posterior="active", optimizer=None
    ).fit(X, -y)
    assert_array_equal(first.active_, second.active_)
    assert_allclose(first.selection_objective_, GraphSelector().connectivity(X, first.active_))


def test_estimators_train_on_the_kept_points():
    """Regression, two classes and three classes learn from what the graph kept."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-3, 3, size=(150, 2))
    options = {"selector": GraphSelector(5), "n_active": 40, "posterior": "active"}
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1]
    assert SparseGPRegressor(**options).fit(X, y).score(X, y) > 0.95
    two = X[:, 0] * X[:, 1] > 0
    assert SparseGPClassifier(**options).fit(X, two).score(X, two) > 0.9
    three = np.digitize(X[:, 0] + X[:, 1], [-1.5, 1.5])
    model = SparseGPClassifier(**options).fit(X, three)
    assert model.score(X, three) > 0.9
    assert [len(active) for active in model.active_] == [40, 40, 40]


def test_everything_kept_needs_no_graph():
    """Where all rows are kept there is nothing to choose, so few rows are no error."""
    selection = GraphSelector().select(RBF(), blocks_of([3, 1]), 4, rng=np.random.default_rng(0))
    assert selection.order.tolist() == [0, 0, 0, 1]
    assert [rows.tolist() for rows in selection.active] == [[0, 1, 2], [0]]
    assert np.isnan(selection.gain).all()


@pytest.mark.parametrize(
    ("sizes", "selector", "message"),
    [
        ([8], GraphSelector(), r"GraphSelector: 8 rows cannot have n_neighbors=10 .* at most 7"),
        ([30, 8], GraphSelector(), r"task number 1 \(from 0\): 8 rows cannot have n_neighbors=10"),
        ([30, 1], GraphSelector(1), r"task number 1 .*: 1 rows cannot .* One row makes no graph"),
        ([30], GraphSelector(scale=-1.0), r"scale=-1.0; .* must be positive"),
        ([30], GraphSelector(0), r"n_neighbors=0"),
    ],
)
def test_bad_graphs_are_refused(sizes, selector, message):
    """The error names the task, the numbers, and what to set."""
    with pytest.raises(GraphError, match=message):
        selector.select(RBF(), blocks_of(sizes), 4, rng=np.random.default_rng(0))


def test_identical_rows_and_unknown_objective_are_refused():
    """Identical rows set no scale; an objective that is not known is listed against those that are."""
    with pytest.raises(GraphError, match="all 20 rows are the same point"):
        SparseGPRegressor(selector="graph", n_active=5, posterior="active").fit(
            np.ones((20, 2)), np.arange(20.0)
        )
    with pytest.raises(ValueError, match="objective='size' is not known"):
        SparseGPRegressor(selector=GraphSelector(objective="size"), n_active=5, posterior="active").fit(
            np.arange(20.0)[:, None], np.arange(20.0)
        )


def test_unlabeled_rows_may_be_kept():
    """Where the estimator can use rows without a label, the graph chooses among them as well."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(-2, 0.5, size=(40, 2)), rng.normal(2, 0.5, size=(40, 2))])
    y = np.full(80, -1)
    y[[0, 1, 2]], y[[40, 41, 42]] = 0, 1
    model = SparseGPClassifier(
        RBF(1.0), selector="graph", n_active=20, unlabeled=-1, optimizer=None, posterior="active"
    ).fit(X, y)
    assert np.sum(y[model.active_] == -1) > 10
