"""Coupled tasks at the estimators: their limits, new tasks, choices, and bad input."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gleangp import (
    CoregionCoupling,
    FunctionCoupling,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
    TaskRelevance,
    load,
    save,
)
from gleangp.estimators import _sparse
from gleangp.exceptions import TaskError
from gleangp.inference.block import Block
from gleangp.inference.coupled import Term
from gleangp.inference.coupled_posterior import fit_coupled, predict_coupled
from gleangp.inference.posterior import predict_latent
from gleangp.inference.projected import fit_projection
from gleangp.kernels import has_white
from gleangp.learning import coupling_choice
from gleangp.learning.coupling_choice import _count_as_equal, _decide, part_of_whole_tasks
from gleangp.learning.couplings import KernelCoupling
from gleangp.learning.parameters import Parameters
from gleangp.noise import Gaussian, Probit

NOTHING = ConstantKernel(1e-12, "fixed")
KERNEL = ConstantKernel(1.5) * RBF(0.8) + ConstantKernel(0.3)
FIXED = {"optimizer": None, "noise_variance": 0.1, "normalize_y": False, "n_active": 1.0}


def rows(seed=0, n_tasks=4, n=12):
    """Tasks that are a common wave plus a smaller one of their own."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n_tasks * n, 1))
    tasks = np.repeat(np.arange(n_tasks), n)
    phase = rng.uniform(0, 6, n_tasks)[tasks]
    y = 2 * np.sin(X[:, 0]) + 0.3 * np.cos(2 * X[:, 0] + phase) + 0.1 * rng.normal(size=len(X))
    return X, y, tasks


GRID = np.linspace(-3, 3, 9)[:, None]


def test_no_common_part_is_the_kernel_coupling():
    """With a common function of variance zero, tasks share the kernel alone."""
    X, y, tasks = rows()
    apart = SparseGPRegressor(KERNEL, **FIXED).fit(X, y, tasks=tasks)
    coupled = SparseGPRegressor(NOTHING * RBF(), coupling=FunctionCoupling(KERNEL), **FIXED)
    coupled.fit(X, y, tasks=tasks)
    assert_allclose(coupled.log_evidence_, apart.log_evidence_, rtol=1e-7)
    for task in range(4):
        expected = apart.predict(GRID, tasks=np.full(9, task), return_std=True)
        got = coupled.predict(GRID, tasks=np.full(9, task), return_std=True)
        assert_allclose(got, expected, atol=1e-6)


def test_no_own_part_is_the_pooled_gp():
    """With own functions of variance zero, all tasks are one."""
    X, y, tasks = rows()
    pooled = SparseGPRegressor(KERNEL, **FIXED).fit(X, y)
    coupled = SparseGPRegressor(KERNEL, coupling=FunctionCoupling(NOTHING * RBF()), **FIXED)
    coupled.fit(X, y, tasks=tasks)
    assert_allclose(coupled.log_evidence_, pooled.log_evidence_, atol=1e-4)
    got = coupled.predict(GRID, tasks=np.arange(9) % 4, return_std=True)
    assert_allclose(got, pooled.predict(GRID, return_std=True), atol=1e-5)
    assert_allclose(coupled.task_correlation_, np.ones((4, 4)), atol=1e-9)


def test_identical_tasks_are_one_task_with_twice_the_rows():
    """Two tasks that share everything and have the same rows predict as one that has each row twice."""
    X, y, _ = rows(n_tasks=1)
    twice, y_twice = np.vstack([X, X]), np.concatenate([y, y])
    one = SparseGPRegressor(KERNEL, **FIXED).fit(twice, y_twice)
    two = SparseGPRegressor(KERNEL, coupling=FunctionCoupling(NOTHING * RBF()), **FIXED)
    two.fit(twice, y_twice, tasks=np.repeat(["a", "b"], len(X)))
    for task in "ab":
        got = two.predict(GRID, tasks=[task] * 9, return_std=True)
        assert_allclose(got, one.predict(GRID, return_std=True), atol=1e-5)


def test_diagonal_coregionalisation_is_independent_tasks():
    """With W = 0 each task is a Gaussian process of its own, scaled by its kappa; also under EP."""
    X, y, tasks = rows()
    kappa = np.array([0.5, 1.0, 2.0, 0.1])
    blocks = [Block(X[tasks == t], np.sign(y[tasks == t]), Probit(0.2)) for t in range(4)]
    posterior = fit_coupled([Term(KERNEL, np.zeros((4, 2)), kappa)], blocks, X[::6])
    total = 0.0
    for t, block in enumerate(blocks):
        own = ConstantKernel(kappa[t]) * KERNEL
        alone, evidence, _ = fit_projection(own, block, block.X)
        total += evidence
        assert_allclose(predict_coupled(posterior, t, GRID), predict_latent(own, alone, GRID), atol=2e-3)
    assert_allclose(posterior.log_evidence, total, rtol=1e-5)


def test_one_task_ignores_the_coupling():
    """With one task there is nothing to couple, and the model says so."""
    X, y, _ = rows(n_tasks=1)
    model = SparseGPRegressor(coupling="function", random_state=0).fit(X, y, tasks=np.zeros(len(X)))
    assert model.coupling_.name == "kernel"
    assert "nothing to couple" in model.coupling_.reason
    plain = SparseGPRegressor(coupling="function", random_state=0).fit(X, y)
    assert_allclose(plain.predict(X), SparseGPRegressor(random_state=0).fit(X, y).predict(X), atol=1e-6)


@pytest.mark.parametrize("coupling", ["function", "coregion"])
def test_few_rows_borrow_from_the_others(coupling):
    """A task with three rows, and one with none at all, follow the others where they have no rows."""
    X, y, tasks = rows(n_tasks=6, n=20)
    keep = (tasks != 5) | (np.arange(len(X)) % 20 < 3)
    model = SparseGPRegressor(coupling=coupling, random_state=0).fit(X[keep], y[keep], tasks=tasks[keep])
    model.add_task(None, None, 99)
    truth = 2 * np.sin(GRID[:, 0])
    apart = SparseGPRegressor(coupling="kernel", random_state=0).fit(X[keep], y[keep], tasks=tasks[keep])
    worse = np.mean((apart.predict(GRID, tasks=np.full(9, 5)) - truth) ** 2)
    for name in (5, 99):
        error = np.mean((model.predict(GRID, tasks=np.full(9, name)) - truth) ** 2)
        assert error < 0.15 < worse
    assert model.task_correlation_.shape == (7, 7)
    assert model.task_correlation_[0, 1] > 0.7


def test_unlabeled_task_is_predicted_from_the_others():
    """A task all of whose targets are NaN is known, and predicted as a new task would be."""
    X, y, tasks = rows()
    y = np.where(tasks == 2, np.nan, y)
    for coupling in ("function", "coregion"):
        model = SparseGPRegressor(coupling=coupling, random_state=0).fit(X, y, tasks=tasks)
        model.add_task(None, None, 99)
        assert_allclose(
            model.predict(GRID, tasks=np.full(9, 2)),
            model.predict(GRID, tasks=np.full(9, 99)),
            atol=1e-8,
        )


def test_absorbed_rows_are_as_if_they_had_been_there():
    """`partial_fit` with Gaussian noise gives the posterior of all rows on the same basis."""
    X, y, tasks = rows()
    first = np.arange(len(X)) % 3 > 0
    options = {**FIXED, "n_active": 20, "random_state": 0, "selector": "entropy"}
    model = SparseGPRegressor(KERNEL, coupling="function", **options)
    model.fit(X[first], y[first], tasks=tasks[first])
    before = model.log_evidence_
    model.partial_fit(X[~first], y[~first], tasks=tasks[~first])
    terms = model._model.parameters.terms()
    blocks = [Block(X[tasks == t], y[tasks == t], model.noise_) for t in range(4)]
    whole = fit_coupled(terms, blocks, model._model.posterior.Z)
    assert_allclose(model.log_evidence_, whole.log_evidence, rtol=1e-5)
    assert model.log_evidence_ != before
    for t in range(4):
        got = model.predict(GRID, tasks=np.full(9, t), return_std=True)
        mean, var = predict_coupled(whole, t, GRID)
        assert_allclose(got, [mean, np.sqrt(var)], atol=1e-5)


def test_auto_says_what_it_chose_and_why():
    """The choice couples tasks that share a function, has no case for it where they do not, and says why."""
    X, y, tasks = rows(n_tasks=6, n=15)
    together = SparseGPRegressor(coupling="auto", random_state=0).fit(X, y, tasks=tasks)
    assert together.coupling_.name in ("function", "coregion")
    assert set(together.coupling_.scores) == {"kernel", "function", "coregion"}
    assert together.coupling_.name in together.coupling_.reason
    rng = np.random.default_rng(1)
    C = ConstantKernel(1.0) * RBF(0.7)
    y = np.concatenate(
        [
            rng.multivariate_normal(np.zeros(15), C(X[tasks == t]) + 0.01 * np.eye(15), method="cholesky")
            for t in range(6)
        ]
    )
    apart = SparseGPRegressor(coupling="auto", random_state=0).fit(X, y, tasks=tasks)
    assert apart.coupling_.name == "kernel"
    assert list(apart.coupling_.scores) == ["kernel"]  # what the others would explain was not worth a trial
    assert "nothing speaks for more in common" in apart.coupling_.reason


@pytest.mark.parametrize(
    ("noise", "equal", "of_many_rows"),
    [(Gaussian(), 2.0, 0.0), (Probit(), 4.0, 4.0)],
    ids=["numbers", "labels"],
)
def test_equal_evidence_is_given_to_the_common_function(noise, equal, of_many_rows):
    """Within two nats, four with labels, "function" comes before "kernel" and that before "coregion".

    Not so for tasks of more than 250 measured rows, to which the others have little to tell.
    """
    for n, expected in ((1, equal), (250, equal), (251, of_many_rows)):
        assert _count_as_equal([Block(np.zeros((n, 1)), np.ones(n), noise)]) == expected
    less, more = equal - 0.1, equal + 0.1
    assert _decide({"kernel": 0.0, "function": -less, "coregion": 0.0}, equal) == "function"
    assert _decide({"kernel": 0.0, "function": -more, "coregion": less}, equal) == "kernel"
    assert _decide({"kernel": 0.0, "function": -more, "coregion": more}, equal) == "coregion"
    assert _decide({"kernel": 0.0, "function": -more}, equal) == "kernel"


@pytest.mark.parametrize("coupling", ["function", CoregionCoupling(rank=2)], ids=str)
def test_coupled_classifier_borrows_and_is_saved(coupling, tmp_path):
    """A class boundary that is common is known to a task without rows; the model survives a file."""
    X, y, tasks = rows(n_tasks=5, n=15)
    labels = np.where(y > 0, "up", "down")
    model = SparseGPClassifier(coupling=coupling, random_state=0).fit(X, labels, tasks=tasks)
    model.add_task(None, None, 9)
    inside = np.array([[-1.5], [1.5]])
    assert model.predict(inside, tasks=[9, 9]).tolist() == ["down", "up"]
    assert (np.abs(model.predict_proba(inside, tasks=[9, 9])[:, 1] - 0.5) > 0.25).all()
    save(model, tmp_path / "m.glean")
    again = load(tmp_path / "m.glean")
    assert_allclose(again.predict_proba(X, tasks=tasks), model.predict_proba(X, tasks=tasks), rtol=1e-12)
    assert again.coupling_ == model.coupling_
    model.partial_fit(X[:2], labels[:2], tasks=[9, 9])
    assert np.isfinite(model.log_evidence_)


def test_covariance_between_tasks():
    """`return_cov` correlates rows of different tasks, and its diagonal is the variance."""
    X, y, tasks = rows()
    model = SparseGPRegressor(KERNEL, coupling="function", **FIXED).fit(X, y, tasks=tasks)
    two = np.array([[0.5], [0.5]])
    _, cov = model.predict(two, tasks=[0, 1], return_cov=True)
    _, std = model.predict(two, tasks=[0, 1], return_std=True)
    assert_allclose(np.sqrt(np.diagonal(cov)), std, rtol=1e-8)
    assert cov[0, 1] > 0
    assert np.linalg.eigvalsh(cov)[0] > 0


def test_bad_input_is_explained():
    """Unknown names, ranks above the number of tasks, and couplings that cannot be combined."""
    X, y, tasks = rows()
    with pytest.raises(ValueError, match="coupling"):
        SparseGPRegressor(coupling="functional").fit(X, y, tasks=tasks)
    with pytest.raises(TaskError, match=r"rank=5.*4 tasks"):
        SparseGPRegressor(coupling=CoregionCoupling(rank=5)).fit(X, y, tasks=tasks)
    with pytest.raises(TaskError, match="at least one term"):
        SparseGPRegressor(coupling=CoregionCoupling(n_terms=0)).fit(X, y, tasks=tasks)
    with pytest.raises(ValueError, match="posterior='active'"):
        SparseGPRegressor(coupling="function", posterior="active").fit(X, y, tasks=tasks)
    model = SparseGPRegressor(coupling=CoregionCoupling(rank=5))
    with pytest.raises(TaskError):
        model.fit(X, y, tasks=tasks)
    assert not hasattr(model, "tasks_")


def test_a_task_unlike_all_others_leaves_the_common_function_alone():
    """An unrelated task gets a larger own function, and costs the others little of what they share."""
    X, y, tasks = rows(n_tasks=7, n=12)
    odd = tasks == 6
    y[odd] = 6 * np.cos(3 * X[odd, 0])
    errors = {}
    for name, keep in (("without", ~odd), ("with", np.ones(len(X), dtype=bool))):
        model = SparseGPRegressor(coupling="function", random_state=0)
        model.fit(X[keep], y[keep], tasks=tasks[keep])
        model.add_task(None, None, 99)
        gap = model.predict(GRID, tasks=np.full(9, 99)) - 2 * np.sin(GRID[:, 0])
        errors[name] = np.sqrt(np.mean(gap**2))
    weights = model._model.parameters.own[1]
    assert weights[6] > 5.0
    assert (weights[:6] < 0.5 * weights[6]).all()
    assert errors["with"] < errors["without"] + 0.15
    alike = FunctionCoupling(outlier_cost=np.inf)
    model = SparseGPRegressor(coupling=alike, random_state=0).fit(X, y, tasks=tasks)
    assert_allclose(model._model.parameters.own[1], 1.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"posterior": "active", "n_active": 10}, "posterior='active'"),
        ({"optimizer": None}, "no evidence to weigh"),
        ({"invariances": np.negative}, "invariances"),
        ({"selector": TaskRelevance("entropy"), "n_active": 12}, "the selector shares points"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_the_default_says_why_tasks_stay_apart(options, reason):
    """What cannot be combined with a coupling makes "auto" the kernel alone, and is an error for others."""
    X, y, tasks = rows()
    model = SparseGPRegressor(n_rounds=1, random_state=0, **options).fit(X, y, tasks=tasks)
    assert model.coupling == "auto"
    assert model.coupling_.name == "kernel"
    assert reason in model.coupling_.reason
    if "optimizer" not in options:
        with pytest.raises(ValueError, match=rf"coupling='function', but .*{reason}.*coupling='kernel'"):
            model.set_params(coupling="function").fit(X, y, tasks=tasks)


def test_large_tasks_stay_apart(monkeypatch):
    """Above a number of rows "auto" does not try; above a larger one an explicit coupling is refused."""
    X, y, tasks = rows()
    monkeypatch.setattr(_sparse, "_MOST_ROWS_AUTO", 11)
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    assert model.coupling_.name == "kernel"
    assert "a task has 12 labels" in model.coupling_.reason
    monkeypatch.setattr(_sparse, "_MOST_ROWS_COUPLED", 11)
    with pytest.raises(ValueError, match="a task has 12 rows, and own functions are exact"):
        SparseGPRegressor(coupling="coregion").fit(X, y, tasks=tasks)


def test_unlabeled_rows_keep_tasks_apart():
    """The null category is for tasks that share the kernel alone."""
    X, y, tasks = rows(n_tasks=2)
    labels = np.where(np.arange(len(X)) % 3 == 0, -1, (y > 0).astype(int))
    model = SparseGPClassifier(unlabeled=-1, n_rounds=1, random_state=0).fit(X, labels, tasks=tasks)
    assert "unlabeled rows" in model.coupling_.reason


def test_the_part_that_decides_is_of_whole_tasks():
    """Up to 500 rows, of labels 25 of a task; tasks with several rows come before those with one or two."""
    rng = np.random.default_rng(0)
    sizes = [2] * 50 + [60] * 40 + [0]
    blocks = [Block(rng.normal(size=(n, 1)), np.zeros(n), Probit(0.0)) for n in sizes]
    part, tasks = part_of_whole_tasks(blocks, rng)
    assert [len(b) for b in part] == [25] * 20
    assert len(np.unique(tasks)) == 20
    assert tasks.min() >= 50
    part, tasks = part_of_whole_tasks(blocks[:50], rng)
    assert sorted(tasks) == list(range(50))


def test_few_measured_tasks_are_known_by_more_rows():
    """500 rows are shared out among few tasks, where labels, which cost more, have 25 of each."""
    rng = np.random.default_rng(0)
    for noise, expected in ((Gaussian(0.1), [100] * 4 + [7]), (Probit(0.0), [25] * 4 + [7])):
        blocks = [Block(rng.normal(size=(n, 1)), np.zeros(n), noise) for n in (130, 130, 130, 130, 7)]
        part, tasks = part_of_whole_tasks(blocks, rng)
        assert [len(part[k]) for k in np.argsort(tasks)] == expected


def groups(seed=0, n_tasks=6, n=40, noise=0.1):
    """Tasks in two groups: four are one function up to their sign, the last two another."""
    rng = np.random.default_rng(seed)
    X, tasks = rng.uniform(-3, 3, (n_tasks * n, 2)), np.repeat(np.arange(n_tasks), n)
    first, second = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]), np.sin(X[:, 0] * X[:, 1])
    sign = np.where(tasks % 2 == 0, 1.0, -1.0)
    y = np.where(tasks < 4, sign * first, second)
    return X, y, y + noise * rng.normal(size=len(y)), tasks


def test_tasks_in_groups_are_mixed():
    """The default finds opposite tasks and groups, and is better for it; with many rows it does not try."""
    X, _, y, tasks = groups(n=25)
    X_new, f, _, tasks_new = groups(seed=1, n=200)
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    assert model.coupling_.name == "coregion"
    assert model.task_correlation_[0, 1] < -0.8
    assert model.task_correlation_[0, 2] > 0.8
    assert model.task_correlation_[4, 5] > 0.8
    assert abs(model.task_correlation_[0, 4]) < 0.5
    apart = SparseGPRegressor(coupling="kernel", random_state=0).fit(X, y, tasks=tasks)
    errors = [np.mean((m.predict(X_new, tasks=tasks_new) - f) ** 2) for m in (model, apart)]
    assert errors[0] < 0.6 * errors[1]
    X, _, y, tasks = groups(n=251)
    many = SparseGPRegressor(random_state=0, n_rounds=1).fit(X, y, tasks=tasks)
    assert "coregion" not in many.coupling_.scores


def test_mixed_tasks_have_noise_of_their_own():
    """With the default kernel noise goes with the size of a task, so that intervals hold in each of them."""
    rng = np.random.default_rng(3)
    size = np.array([3.0, 1.0, 0.3])
    X, tasks = rng.uniform(-3, 3, (600, 1)), np.repeat(np.arange(3), 200)
    y = size[tasks] * (np.sin(X[:, 0]) + 0.3 * rng.normal(size=600))
    model = SparseGPRegressor(coupling="coregion", random_state=0).fit(X[::4], y[::4], tasks=tasks[::4])
    new = np.arange(600) % 4 > 0
    mean, std = model.predict(X[new], tasks=tasks[new], return_std=True, include_noise=True)
    inside = np.abs(mean - y[new]) < 1.96 * std
    covered = [np.mean(inside[tasks[new] == t]) for t in range(3)]
    assert min(covered) > 0.9
    assert max(covered) < 0.99
    _, of_function = model.predict(X[new], tasks=tasks[new], return_std=True)
    _, cov = model.predict(X[new][:5], tasks=tasks[new][:5], return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), of_function[:5], rtol=1e-6)
    noise = np.sqrt(std**2 - of_function**2)
    assert_allclose([noise[tasks[new] == t].mean() / size[t] for t in range(3)], 0.3, rtol=0.25)
    assert has_white(model.kernel_)
    known = SparseGPRegressor(coupling="coregion", noise_variance=0.1, random_state=0)
    assert not has_white(known.fit(X[::4], y[::4], tasks=tasks[::4]).kernel_)


def test_a_mixture_may_have_a_kernel_of_its_own(tmp_path):
    """`CoregionCoupling(kernel=...)` is what `SparseGPRegressor(kernel)` would be; the model is saved."""
    X, y, tasks = rows()
    white = KERNEL + WhiteKernel(0.05)
    options = {"optimizer": None, "noise_variance": 0.1, "random_state": 0}
    inside = SparseGPRegressor(RBF(5.0), coupling=CoregionCoupling(2, kernel=white), **options)
    outside = SparseGPRegressor(white, coupling=CoregionCoupling(2), **options)
    models = [m.fit(X, y, tasks=tasks) for m in (inside, outside)]
    assert models[0].kernel_ == models[1].kernel_
    expected = models[1].predict(GRID, tasks=[1] * 9, return_std=True)
    save(models[0], tmp_path / "mixed.glean")
    for model in (models[0], load(tmp_path / "mixed.glean")):
        assert_allclose(model.predict(GRID, tasks=[1] * 9, return_std=True), expected, rtol=1e-10)


@pytest.mark.parametrize("coupling", ["auto", "coregion"])
def test_ordinal_tasks_borrow_and_are_saved(coupling, tmp_path):
    """Categories of a common function are known to a task without rows; the model survives a file."""
    X, y, tasks = rows(n_tasks=5, n=15)
    ranks = np.digitize(y, [-1.0, 1.0])
    model = SparseGPOrdinal(coupling=coupling, random_state=0).fit(X, ranks, tasks=tasks)
    assert model.coupling_.name == ("function" if coupling == "auto" else coupling)
    model.add_task(None, None, 9)
    inside = np.array([[-1.5], [0.0], [1.5]])
    assert model.predict(inside, tasks=[9] * 3).tolist() == [0, 1, 2]
    apart = SparseGPOrdinal(coupling="kernel", random_state=0).fit(X, ranks, tasks=tasks)
    apart.add_task(None, None, 9)
    assert len(set(apart.predict(inside, tasks=[9] * 3))) == 1
    save(model, tmp_path / "m.glean")
    again = load(tmp_path / "m.glean")
    assert_allclose(again.predict_proba(X, tasks=tasks), model.predict_proba(X, tasks=tasks), rtol=1e-12)
    assert again.task_correlation_.shape == (6, 6)
    model.partial_fit(X[:3], ranks[:3], tasks=[9] * 3)
    assert np.isfinite(model.log_evidence_)


@pytest.mark.parametrize("coupling", ["kernel", "function"])
def test_inputs_may_lie_far_from_zero(coupling):
    """The linear part of the default kernel turns around the centre of the data, wherever that is."""
    X, y, tasks = rows()
    near, far = (
        SparseGPRegressor(coupling=coupling, random_state=0)
        .fit(X + shift, y, tasks=tasks)
        .predict(GRID + shift, tasks=np.zeros(9, dtype=int))
        for shift in (0.0, 1e4)
    )
    assert np.std(near) > 0.5
    assert_allclose(far, near, rtol=1e-3, atol=1e-3)


def test_a_linear_truth_is_extrapolated():
    """Few labels of many tasks on one plane: far from all of them the default kernel follows the plane."""
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(40, 6)), np.repeat(np.arange(20), 2)
    slopes = rng.normal(size=6)
    model = SparseGPRegressor(random_state=0).fit(X, X @ slopes + 0.1 * rng.normal(size=40), tasks=tasks)
    assert str(model.coupling_) == "function"
    new = 4.0 * rng.normal(size=(200, 6))
    error = np.sqrt(np.mean((model.predict(new, tasks=rng.integers(20, size=200)) - new @ slopes) ** 2))
    assert error < 0.2 * np.std(new @ slopes)


def test_the_name_of_a_coupling_is_short_for_its_object():
    """`coupling="function"` is `FunctionCoupling()`, default kernels of own or mixed functions included."""
    X, y, tasks = rows()
    for pair in (("function", FunctionCoupling()), ("coregion", CoregionCoupling())):
        named, made = (SparseGPRegressor(coupling=c, random_state=0).fit(X, y, tasks=tasks) for c in pair)
        assert made.kernel_ == named.kernel_
        assert_allclose(made.predict(GRID, tasks=[1] * 9), named.predict(GRID, tasks=[1] * 9), rtol=1e-12)


def test_classes_of_a_classifier_have_one_coupling():
    """It is chosen from the evidence of the first classes together."""
    rng = np.random.default_rng(4)
    X, tasks = rng.normal(size=(160, 2)), np.repeat(np.arange(8), 20)
    y = (np.digitize(X[:, 0] + 0.2 * rng.normal(size=8)[tasks], [-0.8, 0.0, 0.8]) + (X[:, 1] > 0)) % 4
    one = SparseGPClassifier(random_state=0).fit(X, y, tasks=tasks)
    assert {choice.name for choice in one.coupling_} == {"function"}
    assert len({choice.reason for choice in one.coupling_}) == 1
    assert "of 3 of 4 classes, on 160 rows of 8 tasks" in one.coupling_[0].reason
    scores = one.coupling_[0].scores
    assert scores["function"] > scores["kernel"] + 10
    assert np.mean(one.predict(X, tasks=tasks) == y) > 0.8


def test_coupling_of_many_classes_weighs_all_trials(monkeypatch):
    """Scores of classes add up; a candidate far behind after three of them is not tried any more."""
    names = ("kernel", "function", "coregion")
    candidates = [SimpleNamespace(name=n, parameters=lambda base, n_tasks: _start(base)) for n in names]
    scores = iter([(0.0, 3.0, -9.0), (0.0, -4.0, -9.0), (0.0, 3.0, -9.0), (0.0, 3.5), (5.0, 0.0)])
    asked = []

    def try_all(left, base, blocks, settings, rng):
        asked.append([c.name for c in left])
        values = dict(zip([c.name for c in left], next(scores), strict=True))
        return coupling_choice._Trials(values, {n: _start(base) for n in values}, None, "here")

    monkeypatch.setattr(coupling_choice, "_try_all", try_all)
    chosen = coupling_choice.choose_together(candidates, [(float(k), [], None) for k in range(5)], None)
    assert asked == [list(names)] * 3 + [list(names[:2])] * 2
    assert chosen[0].choice.scores == {"kernel": 5.0, "function": 5.5}
    assert {c.choice.name for c in chosen} == {"function"}
    assert [c.start.base.kernel.theta[0] for c in chosen] == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


def _start(theta):
    """Parameters whose kernel has that theta."""
    base = Parameters(ConstantKernel(np.exp(theta)), Probit())
    return KernelCoupling().parameters(base, 2)
