"""A new task in a latent space: it gains where the space is right, and loses nothing where it is not."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from gleangp import SharedLatentGPClassifier, SharedLatentGPRegressor, load, save
from gleangp.models.latent import model as latent

N_TASKS, N_ROWS = 6, 60
NEW, EMPTY = 50, 51
PLANE = np.linalg.qr(np.random.default_rng(5).normal(size=(30, 30)))[0]
FAST = {"hidden_units": 20, "tol": 1e-3, "random_state": 0}


def hidden_plane(rng, n):
    """Classes depend on two directions out of thirty; a task is a line in their plane."""
    Z = rng.normal(size=(n, 2))
    angle = rng.uniform(0.0, 2.0 * np.pi)
    X = np.hstack([2.0 * Z, rng.normal(size=(n, 28))]) @ PLANE
    return X, (Z @ [np.cos(angle), np.sin(angle)] > 0).astype(int)


def unrelated(rng, n):
    """Every task depends on a direction of its own in thirty dimensions."""
    X = rng.normal(size=(n, 30))
    return X, (X @ rng.normal(size=30) > 0).astype(int)


def sources(draw, seed=0):
    rng = np.random.default_rng(seed)
    parts = [draw(rng, N_ROWS) for _ in range(N_TASKS)]
    X, y = (np.concatenate(p) for p in zip(*parts, strict=True))
    return X, y, np.repeat(np.arange(N_TASKS), N_ROWS), rng


def accuracy_of_new_tasks(model, draw, rng, count=5, n_labels=8):
    found = []
    for k in range(count):
        X, y = draw(rng, 200)
        few = np.concatenate([np.flatnonzero(y == c)[: n_labels // 2] for c in (0, 1)])
        model.add_task(X[few], y[few], 100 + k)
        found.append(model.score(X[40:], y[40:], np.full(160, 100 + k)))
    return np.mean(found)


@pytest.fixture(scope="module")
def plane():
    X, y, tasks, rng = sources(hidden_plane)
    return SharedLatentGPClassifier(**FAST).fit(X, y, tasks), rng


@pytest.mark.slow
def test_a_space_that_helps_is_used(plane):
    """New tasks in a plane that the sources found gain more than four points over the features alone."""
    model, _ = plane
    report = model.transfer_report()
    assert all(entry["used"] for entry in report.values())
    assert np.mean([entry["gain"] for entry in report.values()]) > 0.05
    without = clone_with_features_alone(model)
    ours = accuracy_of_new_tasks(model, hidden_plane, np.random.default_rng(1))
    theirs = accuracy_of_new_tasks(without, hidden_plane, np.random.default_rng(1))
    assert ours > theirs + 0.04


def clone_with_features_alone(model):
    """The same fit, told that the space did not help."""
    other = clone(model).fit(*sources(hidden_plane)[:3])
    other._model = replace(other._model, blend=replace(other._model.blend, used=False))
    return other


@pytest.mark.slow
def test_a_space_that_does_not_help_steps_aside():
    """Predictions of a new task do not depend on the space: other seeds and dimensions give the same."""
    X, y, tasks, rng = sources(unrelated)
    X_new, y_new = unrelated(rng, 100)
    predictions = []
    for q, seed in ((2, 0), (3, 1)):
        model = SharedLatentGPClassifier(q, **{**FAST, "random_state": seed}).fit(X, y, tasks)
        model.add_task(X_new[:20], y_new[:20], NEW)
        assert not model.transfer_report()[NEW]["used"]
        predictions.append(model.predict_proba(X_new, np.full(100, NEW)))
    assert_allclose(predictions[0], predictions[1], rtol=1e-8)


def test_tasks_are_left_out_with_their_rows():
    """Where a source task is placed does not depend on its own labels."""
    X, y, tasks, _ = sources(hidden_plane)
    rows = [np.flatnonzero(tasks == t) for t in range(N_TASKS)]
    settings = SharedLatentGPClassifier(**FAST)._settings(len(X))

    def positions(y):
        labels = [latent.Labels(r, np.where(y[r, None] == 1, 1.0, -1.0)) for r in rows]
        return latent._positions_left_out(X, labels, settings, np.random.default_rng(0))

    first = positions(y)
    flipped = y.copy()
    flipped[rows[0]] = np.random.default_rng(2).permutation(y[rows[0]])
    second = positions(flipped)
    assert_array_equal(first[rows[0]], second[rows[0]])
    assert np.abs(first[rows[1]] - second[rows[1]]).max() > 1e-3


@pytest.mark.slow
def test_report_of_new_tasks_and_after_saving(plane, tmp_path):
    model, rng = plane
    X, y = hidden_plane(rng, 30)
    model = clone(model).fit(*sources(hidden_plane)[:3])
    model.add_task(X, y, NEW).add_task(None, None, EMPTY)
    report = model.transfer_report()
    assert list(report) == [*range(N_TASKS), NEW, EMPTY]
    assert report[NEW]["helped"] is (report[NEW]["gain"] > 0)
    assert_allclose(report[NEW]["gain"], report[NEW]["with_space"] - report[NEW]["without_space"])
    assert np.isnan(report[EMPTY]["gain"])
    assert report[EMPTY]["helped"] is None
    save(model, tmp_path / "model.glean")
    loaded = load(tmp_path / "model.glean")
    assert loaded.transfer_report()[NEW] == report[NEW]
    assert_array_equal(
        loaded.predict_proba(X, np.full(30, NEW)),
        model.predict_proba(X, np.full(30, NEW)),
    )


def test_one_task_is_not_measured():
    X, y, tasks, _ = sources(hidden_plane)
    model = SharedLatentGPClassifier(**FAST).fit(X[tasks == 0], y[tasks == 0])
    assert np.isnan(model.transfer_report()[None]["gain"])
    assert model.transfer_report()[None]["helped"] is None


def test_the_setting_of_the_paper():
    """With transfer="latent" labels are functions of the positions, and there is nothing to compare."""
    X, y, tasks, rng = sources(hidden_plane)
    model = SharedLatentGPClassifier(**FAST, transfer="latent").fit(X, y, tasks)
    assert all(m.points.shape[1] == 2 for m in model._model.label_maps)
    model.add_task(*hidden_plane(rng, 20), NEW)
    assert model._model.label_maps[-1].points.shape == (20, 2)
    with pytest.raises(ValueError, match='transfer="latent"'):
        model.transfer_report()


def test_regression_gains_by_the_space():
    rng = np.random.default_rng(0)

    def draw(n):
        Z, direction = rng.normal(size=(n, 2)), rng.normal(size=2)
        X = np.hstack([2.0 * Z, rng.normal(size=(n, 28))]) @ PLANE
        return X, np.sin(Z @ direction) + 0.1 * rng.normal(size=n)

    parts = [draw(N_ROWS) for _ in range(N_TASKS)]
    X, y = (np.concatenate(p) for p in zip(*parts, strict=True))
    model = SharedLatentGPRegressor(**FAST).fit(X, y, np.repeat(np.arange(N_TASKS), N_ROWS))
    assert model.transfer_report()[0]["used"]
    X, y = draw(200)
    model.add_task(X[:15], y[:15], NEW)
    assert model.score(X[15:], y[15:], np.full(185, NEW)) > 0.5


def compact(rng, n):
    """The positives of a task are in one small place of its own, and the negatives everywhere else."""
    positive = rng.normal(size=10) + 0.3 * rng.normal(size=(n // 2, 10))
    return np.vstack([positive, 1.5 * rng.normal(size=(n // 2, 10))]), np.repeat([1, 0], n // 2)


@pytest.mark.slow
def test_the_prior_mean_is_learnt_from_the_sources():
    """Far from all rows, the class that is everywhere is the more probable one."""
    X, y, tasks, _ = sources(compact)
    model = SharedLatentGPClassifier(**FAST).fit(X, y, tasks)
    other = SharedLatentGPClassifier(**FAST).fit(X, 1 - y, tasks)
    assert model._model.blend.offset < -0.1
    assert_allclose(other._model.blend.offset, -model._model.blend.offset, atol=0.02)
    model.add_task(X[[0, N_ROWS - 1]], y[[0, N_ROWS - 1]], NEW)
    assert model.predict_proba(np.full((1, 10), 30.0), [NEW])[0, 1] < 0.45


def test_the_order_of_columns_does_not_matter():
    """Neither for what the space is found to be worth nor for what is predicted."""
    rng = np.random.default_rng(1)
    hidden, tasks = rng.normal(size=(80, 2)), np.repeat(np.arange(4), 20)
    X = hidden @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(80, 6))
    slopes = rng.normal(size=4)[tasks]
    y = slopes * hidden[:, 0] + 0.3 * hidden[:, 1] + 0.3 * rng.normal(size=80) > 0.0
    gains, found = [], []
    for columns in (slice(None), slice(None, None, -1)):
        model = SharedLatentGPClassifier(tol=0.01, random_state=0).fit(X[:, columns], y, tasks)
        gains.append([part["gain"] for part in model.transfer_report().values()])
        found.append(model.predict_proba(X[:, columns], tasks))
    assert_allclose(gains[1], gains[0], atol=0.003)
    assert_allclose(found[1], found[0], atol=1e-6)
