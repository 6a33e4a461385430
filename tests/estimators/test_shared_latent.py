"""Laws of the shared-latent-space estimators: tasks, transfer, the transformer, bad input."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from gleangp import SharedLatentGPClassifier, SharedLatentGPRegressor, load, save
from gleangp.exceptions import LabelError, TaskError

FAST = {"hidden_units": 10, "tol": 1e-2, "random_state": 0}


def two_rings(rng, n, task_angle):
    """Points on a plane bent into five features; a task asks on which side of a line they lie."""
    Z = rng.normal(size=(n, 2))
    X = np.column_stack([Z[:, 0], Z[:, 1], np.sin(2 * Z[:, 0]), np.cos(2 * Z[:, 1]), Z[:, 0] * Z[:, 1]])
    X += 0.05 * rng.normal(size=X.shape)
    return X, (Z @ [np.cos(task_angle), np.sin(task_angle)] > 0).astype(int)


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(3)
    parts = {name: two_rings(rng, 50, angle) for name, angle in (("east", 0.0), ("north", 1.57))}
    X = np.vstack([x for x, _ in parts.values()])
    y = np.concatenate([y for _, y in parts.values()])
    return X, y, np.repeat(list(parts), 50)


@pytest.fixture(scope="module")
def fitted(tasks):
    return SharedLatentGPClassifier(**FAST).fit(tasks[0], tasks[1], tasks[2])


def snapshot(model):
    return dict(vars(model))


def same(before, model):
    after = vars(model)
    return before.keys() == after.keys() and all(before[k] is after[k] for k in before)


def test_tasks_have_their_own_labels(fitted, tasks):
    """One row is classified differently in two tasks, and each task is learnt."""
    X, y, names = tasks
    assert fitted.score(X, y, names) > 0.9
    both = np.array([[1.5, -1.5, np.sin(3.0), np.cos(3.0), -2.25]])
    assert fitted.predict(both, ["east"])[0] == 1
    assert fitted.predict(both, ["north"])[0] == 0
    assert len(fitted.label_kernels_) == 2
    assert fitted.embedding_.shape == (100, 2)


def test_training_rows_lie_where_transform_says(fitted, tasks):
    """With a back-constraint, positions of training rows are those of the map."""
    assert_allclose(fitted.transform(tasks[0]), fitted.embedding_, rtol=1e-12)


def test_add_task_leaves_the_others_alone(fitted, tasks):
    """Transfer: a task learnt from twenty rows in the old latent space; old predictions stay to the bit."""
    X, _, names = tasks
    rng = np.random.default_rng(8)
    X_new, y_new = two_rings(rng, 220, 0.8)
    model = pickle.loads(pickle.dumps(fitted))
    before = model.predict_proba(X, names)
    model.add_task(X_new[:20], y_new[:20], "north-east")
    assert_array_equal(model.predict_proba(X, names), before)
    assert_array_equal(model.tasks_, ["east", "north", "north-east"])
    score = model.score(X_new[20:], y_new[20:], np.repeat("north-east", 200))
    assert score > 0.75  # one in two by guessing
    assert_array_equal(model.embedding_, fitted.embedding_)


def test_task_column_gives_the_same_model(fitted, tasks):
    """Tasks by column of a frame and by argument are one model; transform ignores the column's values."""
    X, y, names = tasks
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["side"] = names
    model = SharedLatentGPClassifier(**FAST, task="side").fit(frame, y)
    assert_allclose(model.predict_proba(frame), fitted.predict_proba(X, names), rtol=1e-6)
    model.set_output(transform="pandas")
    moved = model.transform(frame)
    assert list(moved.columns) == ["sharedlatentgpclassifier0", "sharedlatentgpclassifier1"]
    assert_allclose(moved, fitted.transform(X), rtol=1e-6)
    assert_allclose(model.inverse_transform(moved), fitted.inverse_transform(fitted.embedding_), rtol=1e-5)


def test_inverse_transform_reconstructs(fitted, tasks):
    """Means come near the features, and errors are as large as the standard deviations say."""
    X = tasks[0]
    mean, std = fitted.inverse_transform(fitted.transform(X), return_std=True)
    error = (X - mean) / std
    assert np.mean((X - mean) ** 2) < 0.2 * np.var(X)
    assert 0.5 < np.sqrt(np.mean(error**2)) < 1.5
    far, far_std = fitted.inverse_transform([[50.0, 50.0]], return_std=True)
    assert np.isfinite(far).all()
    assert (far_std > std.max(axis=0) * 0.99).all()


def test_free_positions(tasks):
    """Without a back-constraint new rows are placed by search, near training rows like them."""
    X, y, names = tasks
    model = SharedLatentGPClassifier(back_constraint=None, tol=1e-2).fit(X[:60], y[:60], names[:60])
    assert model.score(X[60:], y[60:], names[60:]) > 0.8
    assert_allclose(model.transform(X[60:63]), model.transform(X[60:])[:3], atol=1e-5)


def test_without_labels_the_space_does_not_know_them(tasks):
    """label_weight=0: positions do not depend on the labels, and label mappings are still learnt."""
    X, y, names = tasks
    model = SharedLatentGPClassifier(**FAST, label_weight=0.0).fit(X, y, names)
    flipped = SharedLatentGPClassifier(**FAST, label_weight=0.0).fit(X, 1 - y, names)
    assert_array_equal(model.embedding_, flipped.embedding_)
    assert model.score(X, y, names) > 0.7


def test_unlabeled_rows_help_to_find_the_space(tasks):
    """Rows without a label are placed too; their label is nowhere used."""
    X, y, _ = tasks
    hidden = y.copy()
    hidden[20:50] = -1
    model = SharedLatentGPClassifier(**FAST, unlabeled=-1).fit(X[:50], hidden[:50])
    assert_array_equal(model.classes_, [0, 1])
    assert len(model.embedding_) == 50
    assert len(model._model.label_maps[0].points) == 20


def test_best_of_several_starts(tasks):
    """More starts never give a worse objective than the first alone, which is among them."""
    X, y, names = tasks
    one = SharedLatentGPClassifier(**FAST).fit(X, y, names)
    several = SharedLatentGPClassifier(**FAST, n_init=3).fit(X, y, names)
    assert several.objective_ <= one.objective_


def test_same_seed_same_model(fitted, tasks):
    """Fitting again with the same seed gives the same numbers; clones carry no state."""
    X, y, names = tasks
    again = clone(fitted).fit(X, y, names)
    assert_allclose(again.embedding_, fitted.embedding_, rtol=1e-6)


@pytest.mark.parametrize(
    "Model", [SharedLatentGPRegressor, pytest.param(SharedLatentGPClassifier, marks=pytest.mark.slow)]
)
def test_the_order_of_rows_does_not_matter(Model):
    """Nor does it with features that have few values, where searches from two sums end in two optima."""
    rng = np.random.default_rng(0)
    X, names = np.round(rng.normal(size=(40, 3))), np.arange(40) % 2
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=40), [-0.5, 0.5])
    rows, new = rng.permutation(40), rng.permutation(8)
    one, two = (Model(n_active=10, random_state=0, tol=1e-3) for _ in range(2))
    one.fit(X, y, names).add_task(X[:8] + 0.1, y[:8], 2)
    two.fit(X[rows], y[rows], names[rows]).add_task(X[new] + 0.1, y[new], 2)
    assert_allclose(two.embedding_, one.embedding_[rows], atol=1e-9)
    assert_array_equal(X[rows][two.basis_], X[one.basis_])
    for codes in (names, np.full(40, 2)):
        answer = "predict_proba" if Model is SharedLatentGPClassifier else "predict"
        assert_allclose(getattr(two, answer)(X, codes), getattr(one, answer)(X, codes), atol=1e-9)
    if Model is SharedLatentGPClassifier:
        assert two.transfer_report() == one.transfer_report()


def test_verbose_reports(capsys, tasks):
    """Progress is printed."""
    X, y, names = tasks
    SharedLatentGPClassifier(**FAST, verbose=1).fit(X[:40], y[:40], names[:40])
    assert "[SharedLatentGPClassifier] start 1: log evidence" in capsys.readouterr().out


def test_relevance_reads_off_the_dimensions_used():
    """Data on a line need one latent dimension of three: the others are hardly used."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-2, 2, size=80)
    X = np.column_stack([t, np.sin(t), np.cos(t), t**2]) + 0.02 * rng.normal(size=(80, 4))
    model = SharedLatentGPClassifier(3, ard=True, hidden_units=10, tol=1e-4, random_state=0)
    relevance = np.sort(model.fit(X, t > 0).relevance_)
    assert relevance.shape == (3,)
    assert relevance[0] < 0.5 * relevance[-1]


def test_kernel_of_the_user(tasks):
    """A kernel without noise gets it where it is needed; the start's structure stays."""
    X, y, names = tasks
    model = SharedLatentGPClassifier(**FAST, kernel=RBF(0.7)).fit(X, y, names)
    assert "WhiteKernel" in repr(model.kernel_)
    assert model.score(X, y, names) > 0.9


def test_bad_input_of_fit(tasks):
    """Each has its message, and a failed fit leaves no trace."""
    X, y, names = tasks
    all_ones = np.where(names == "east", 1, y)
    cases = [
        (6, (X, y, names), ValueError, "n_components=6 is more .* n_features=5"),
        (2, (X, all_ones, names), LabelError, "'east' has 1 class"),
        (2, (X[:51], y[:51], names[:51]), LabelError, "'north' has 1 labeled rows"),
        (2, (np.ones((9, 3)), np.arange(9) % 2), ValueError, "features are constant"),
        (2, (X + 1e14, y, names), ValueError, "as large as 1e\\+14.*subtract their means"),
        (2, (np.where(X > 2, np.nan, X), y, names), ValueError, "NaN"),
    ]
    for n_components, arguments, error, message in cases:
        model = SharedLatentGPClassifier(n_components)
        before = snapshot(model)
        with pytest.raises(error, match=message):
            model.fit(*arguments)
        assert same(before, model)


def test_bad_input_after_fit(fitted, tasks):
    """Wrong features, unknown tasks and classes, too few rows: the message, and the model as it was."""
    X, y, names = tasks
    model = pickle.loads(pickle.dumps(fitted))
    before = snapshot(model)
    cases = [
        (lambda: model.predict(X[:, :4], names), ValueError, "4 features.*expecting 5"),
        (lambda: model.transform(X[:, :4]), ValueError, "4 features.*expecting 5"),
        (lambda: model.add_task(X[:9, :4], y[:9], "new"), ValueError, "4 features.*expecting 5"),
        (lambda: model.add_task(X[:1], y[:1], "new"), LabelError, "'new' has 1 labeled rows"),
        (lambda: model.add_task(X[:9], np.ones(9, int), "new"), LabelError, "'new' has 1 class"),
        (lambda: model.add_task(X[:9], np.arange(9), "new"), LabelError, "did not see"),
        (lambda: model.add_task(X[:9], y[:9], "east"), TaskError, "east"),
        (lambda: model.predict(X, np.arange(100)), TaskError, "another type"),
        (lambda: model.inverse_transform([[1.0]]), ValueError, "1 columns.*2 dimensions"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()
        assert same(before, model)


def test_no_convergence_is_said(tasks):
    """The warning gives the last change and the limit."""
    X, y, names = tasks
    model = SharedLatentGPClassifier(max_iter=3, tol=1e-9, hidden_units=5, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=3 .* nats per observed number .*tol=1e-09"):
        model.fit(X, y, names)
    assert model.n_iter_ == 3


def curves(rng, n, task):
    """One hidden coordinate seen through four features; targets are functions of it, in any units."""
    t = rng.uniform(-2, 2, size=n)
    X = np.column_stack([t, np.sin(2 * t), np.cos(2 * t), t**2]) + 0.02 * rng.normal(size=(n, 4))
    f = {"wave": 1e3 * np.sin(2 * t) + 5e3, "slope": 1e-3 * t, "bowl": t**2}[task]
    return X, f


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(5)
    X_1, y_1 = curves(rng, 40, "wave")
    X_2, y_2 = curves(rng, 40, "slope")
    X, y = np.vstack([X_1, X_2]), np.concatenate([y_1, y_2])
    names = np.repeat(["wave", "slope"], 40)
    return X, y, names, SharedLatentGPRegressor(1, **FAST).fit(X, y, names)


def test_regression_tasks_in_their_own_units(regression):
    """Tasks six orders of magnitude apart are both learnt; deviations are in each task's units."""
    X, y, names, model = regression
    mean, std = model.predict(X, names, return_std=True)
    for name in ("wave", "slope"):
        rows = names == name
        spread = y[rows].std()
        assert np.sqrt(np.mean((mean[rows] - y[rows]) ** 2)) < 0.25 * spread
        assert (std[rows] < spread).all()
    assert_allclose(model.predict(X, names), mean)


def test_regression_of_a_new_task(regression):
    """A task learnt from eight rows in the old latent space; the others stay to the bit."""
    X, _, names, fitted = regression
    model = pickle.loads(pickle.dumps(fitted))
    before = model.predict(X, names)
    X_new, y_new = curves(np.random.default_rng(11), 108, "bowl")
    model.add_task(X_new[:8], y_new[:8], "bowl")
    assert_array_equal(model.predict(X, names), before)
    assert model.score(X_new[8:], y_new[8:], np.repeat("bowl", 100)) > 0.7


def test_rescaled_targets_rescale_predictions(regression):
    """Targets are standardised task by task, so units of y do not matter."""
    X, y, names, model = regression
    other = clone(model).fit(X, 7.0 - 1e4 * y, names)
    assert_allclose(other.predict(X, names), 7.0 - 1e4 * model.predict(X, names), rtol=1e-4)


def test_regression_without_targets_in_some_rows(regression):
    """NaN rows are placed in the space and not counted as targets."""
    X, y, names, _ = regression
    holes = y.copy()
    holes[::2] = np.nan
    model = SharedLatentGPRegressor(1, **FAST).fit(X, holes, names)
    assert len(model.embedding_) == len(X)
    assert model.score(X[::2], y[::2], names[::2]) > 0.9


def test_bad_regression_input(regression):
    """A task of one target, and infinite targets, are refused; the model stays as it was."""
    X, y, names, fitted = regression
    model = pickle.loads(pickle.dumps(fitted))
    before = snapshot(model)
    lonely = np.where((names == "slope") & (np.arange(80) > 40), np.nan, y)
    for call, message in [
        (lambda: model.fit(X, lonely, names), "'slope' has 1 labeled rows"),
        (lambda: model.fit(X, np.full(80, np.inf), names), "infin"),
        (lambda: model.add_task(X[:1], y[:1], "new"), "'new' has 1 labeled rows"),
        (lambda: model.add_task(X[:5, :2], y[:5], "new"), "2 features.*expecting 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
        assert same(before, model)


@pytest.mark.parametrize("label_noise", ["gaussian", pytest.param("probit", marks=pytest.mark.slow)])
def test_sparse_fit_with_all_rows_is_the_dense_fit(tasks, label_noise):
    """n_active at or beyond the number of rows changes nothing."""
    X, y, names = tasks
    dense = SharedLatentGPClassifier(**FAST, label_noise=label_noise).fit(X[::2], y[::2], names[::2])
    sparse = SharedLatentGPClassifier(**FAST, label_noise=label_noise, n_active=50)
    sparse.fit(X[::2], y[::2], names[::2])
    assert_allclose(sparse.objective_, dense.objective_, rtol=1e-8)
    assert_array_equal(sparse.basis_, np.arange(50))


@pytest.mark.parametrize("label_noise", ["gaussian", pytest.param("probit", marks=pytest.mark.slow)])
def test_sparse_fit_learns_from_all_rows(tasks, label_noise):
    """A basis of 20 of 100 rows gives nearly the dense model's accuracy."""
    X, y, names = tasks
    model = SharedLatentGPClassifier(**FAST, label_noise=label_noise, n_active=20).fit(X, y, names)
    assert len(model.basis_) == len(np.unique(model.basis_)) == 20
    assert model._model.observation_map.points.shape == (20, 2)
    assert model.score(X, y, names) > 0.9
    X_new, y_new = two_rings(np.random.default_rng(8), 130, 0.8)
    model.add_task(X_new[:30], y_new[:30], "north-east")  # more rows than the basis has points
    assert model.score(X_new[30:], y_new[30:], np.repeat("north-east", 100)) > 0.7


@pytest.mark.parametrize("label_noise", ["gaussian", pytest.param("probit", marks=pytest.mark.slow)])
def test_multi_class_tasks(label_noise):
    """Tasks of three classes and of two: zero probability for classes that a task does not have."""
    rng = np.random.default_rng(1)
    X, east = two_rings(rng, 120, 0.0)
    y = np.where(X[:, 0] > 0.4, "right", np.where(X[:, 0] < -0.4, "left", "middle"))
    names = np.repeat(["three", "two"], 60)
    y[60:] = np.where(east[60:] == 1, "right", "left")
    model = SharedLatentGPClassifier(**FAST, label_noise=label_noise).fit(X, y, names)
    probabilities = model.predict_proba(X, names)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert_array_equal(model.classes_, ["left", "middle", "right"])
    assert (probabilities[60:, 1] == 0.0).all()
    assert np.isneginf(model.decision_function(X, names)[60:, 1]).all()
    assert model.score(X, y, names) > 0.85
    assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X, names))


def test_probit_probabilities_are_calibrated():
    """Where labels are drawn with known probabilities, the predicted ones come near them."""
    rng = np.random.default_rng(4)
    t = rng.uniform(-2, 2, size=120)
    X = np.column_stack([t, np.sin(t), t**2]) + 0.01 * rng.normal(size=(120, 3))
    truth = 1.0 / (1.0 + np.exp(-3.0 * t))
    y = rng.random(120) < truth
    model = SharedLatentGPClassifier(1, **FAST, label_noise="probit").fit(X, y)
    assert np.mean(np.abs(model.predict_proba(X)[:, 1] - truth)) < 0.1


@pytest.mark.parametrize("settings", [{}, {"n_active": 20}, {"back_constraint": None}], ids=str)
def test_saved_models_are_the_same(tmp_path, tasks, settings):
    """A model file gives back every number of predictions, transforms and new tasks."""
    X, y, names = tasks
    model = SharedLatentGPClassifier(**{**FAST, **settings}).fit(X[::2], y[::2], names[::2])
    save(model, tmp_path / "model.glean")
    again = load(tmp_path / "model.glean")
    assert_array_equal(again.predict_proba(X, names), model.predict_proba(X, names))
    assert_array_equal(again.transform(X), model.transform(X))
    for one in (model, again):
        one.add_task(X[:10], y[:10], "more")
    assert_array_equal(again.predict_proba(X, ["more"] * 100), model.predict_proba(X, ["more"] * 100))
