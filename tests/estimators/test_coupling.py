"""Coupled tasks at the estimators: their limits, new tasks, choices, and bad input."""

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
from gleangp.exceptions import TaskError

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
    apart = SparseGPRegressor(KERNEL, coupling="kernel", **FIXED).fit(X, y, tasks=tasks)
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


def test_one_task_ignores_the_coupling():
    """With one task there is nothing to couple, and the model says so."""
    X, y, _ = rows(n_tasks=1)
    model = SparseGPRegressor(coupling="function", random_state=0).fit(X, y, tasks=np.zeros(len(X)))
    assert model.coupling_.name == "kernel"
    assert "nothing to couple" in model.coupling_.reason
    plain = SparseGPRegressor(coupling="function", random_state=0).fit(X, y)
    assert_allclose(plain.predict(X), SparseGPRegressor(random_state=0).fit(X, y).predict(X), atol=1e-6)


@pytest.mark.parametrize("coupling", ["function", pytest.param("coregion", marks=pytest.mark.slow)])
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


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"posterior": "active", "n_active": 10}, "posterior='active'"),
        ({"invariances": np.negative}, "invariances"),
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
    with pytest.raises(ValueError, match=rf"coupling='function', but .*{reason}.*coupling='kernel'"):
        model.set_params(coupling="function").fit(X, y, tasks=tasks)


def test_selectors_that_weigh_tasks_choose_the_basis():
    """The model is the default one."""
    X, y, tasks = rows()
    model = SparseGPRegressor(selector=TaskRelevance("entropy"), n_active=12, random_state=0)
    assert model.fit(X, y, tasks=tasks).coupling_.name == "function"
    assert np.isfinite(model.predict(X, tasks=tasks)).all()


def test_tasks_with_unlabeled_rows_are_coupled():
    """As without them; whether these rows are used is a decision."""
    X, y, tasks = rows(n_tasks=2)
    labels = np.where(np.arange(len(X)) % 3 == 0, -1, (y > 0).astype(int))
    model = SparseGPClassifier(unlabeled=-1, n_rounds=1, random_state=0).fit(X, labels, tasks=tasks)
    assert model.coupling_.name == "function"
    assert any("label" in decision.reason for decision in model.decisions_)


def groups(seed=0, n_tasks=6, n=40, noise=0.1):
    """Tasks in two groups: four are one function up to their sign, the last two another."""
    rng = np.random.default_rng(seed)
    X, tasks = rng.uniform(-3, 3, (n_tasks * n, 2)), np.repeat(np.arange(n_tasks), n)
    first, second = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]), np.sin(X[:, 0] * X[:, 1])
    sign = np.where(tasks % 2 == 0, 1.0, -1.0)
    y = np.where(tasks < 4, sign * first, second)
    return X, y, y + noise * rng.normal(size=len(y)), tasks


@pytest.mark.slow
def test_tasks_in_groups_are_mixed():
    """The default finds opposite tasks and groups, and is better for it."""
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
    assert model.coupling_.scores["coregion"] > model.coupling_.scores["function"]
    assert "coregion" in str(model.decisions_[0])


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
    assert_allclose(again.task_correlation_, model.task_correlation_)
    assert model.task_correlation_.shape == (6, 6)
    model.partial_fit(X[:3], ranks[:3], tasks=[9] * 3)
    assert np.isfinite(model.log_evidence_)


def test_a_model_of_many_tasks_keeps_nothing_for_every_pair_of_them(tmp_path):
    """Its file has fewer bytes than there are pairs of tasks."""
    n_tasks = 600
    rng = np.random.default_rng(0)
    X, y, tasks = rng.uniform(0, 1, (n_tasks, 1)), rng.normal(size=n_tasks), np.arange(n_tasks)
    model = SparseGPRegressor(optimizer=None, random_state=0).fit(X, y, tasks=tasks)
    save(model, tmp_path / "m.glean")
    assert (tmp_path / "m.glean").stat().st_size < n_tasks**2
    assert model.task_correlation_.shape == (n_tasks, n_tasks)


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


@pytest.mark.slow
def test_the_name_of_a_coupling_is_short_for_its_object():
    """`coupling="function"` is `FunctionCoupling()`, default kernels of own or mixed functions included."""
    X, y, tasks = rows()
    for pair in (("function", FunctionCoupling()), ("coregion", CoregionCoupling())):
        named, made = (SparseGPRegressor(coupling=c, random_state=0).fit(X, y, tasks=tasks) for c in pair)
        assert made.kernel_ == named.kernel_
        assert_allclose(made.predict(GRID, tasks=[1] * 9), named.predict(GRID, tasks=[1] * 9), rtol=1e-12)


def test_absorbed_rows_are_as_if_they_had_been_there():
    """`partial_fit` with Gaussian noise gives the posterior of all rows, where they are one block."""
    X, y, tasks = rows()
    first = np.arange(len(X)) % 3 > 0
    model = SparseGPRegressor(KERNEL, coupling="function", **FIXED)
    model.fit(X[first], y[first], tasks=tasks[first])
    model.partial_fit(X[~first], y[~first], tasks=tasks[~first])
    whole = SparseGPRegressor(KERNEL, coupling="function", **FIXED).fit(X, y, tasks=tasks)
    for t in range(4):
        got = model.predict(GRID, tasks=np.full(9, t), return_std=True)
        assert_allclose(got, whole.predict(GRID, tasks=np.full(9, t), return_std=True), atol=1e-8)


def test_few_tasks_with_few_rows_are_a_hierarchy():
    """With fewer than ten rows a task no mixture competes: the choice and its reason are data."""
    X, y, tasks = rows(n=6)
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    assert model.coupling_.name == "function"
    assert model.decisions_[0].what == "coupling"
    assert "common function" in model.decisions_[0].reason


@pytest.mark.slow
def test_noise_of_each_task():
    """Tasks whose noise differs by a factor of ten have intervals that hold in each of them."""
    rng = np.random.default_rng(3)
    size = np.array([1.0, 0.3, 0.1])
    X, tasks = rng.uniform(-3, 3, (600, 1)), np.repeat(np.arange(3), 200)
    y = np.sin(X[:, 0]) + size[tasks] * rng.normal(size=600)
    train = np.arange(600) % 4 == 0
    model = SparseGPRegressor(random_state=0).fit(X[train], y[train], tasks=tasks[train])
    low, high = model.predict_interval(X[~train], tasks=tasks[~train]).T
    inside = (low < y[~train]) & (y[~train] < high)
    # 150 rows a task: three standard errors are 0.053.
    covered = [np.mean(inside[tasks[~train] == t]) for t in range(3)]
    assert min(covered) > 0.88
    assert np.mean((high - low)[tasks[~train] == 2]) < 0.3 * np.mean((high - low)[tasks[~train] == 0])
