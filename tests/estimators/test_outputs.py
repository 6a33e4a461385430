"""Several outputs of every row: `Y` of shape (n, q) goes into `fit` as it is."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import gleangp
from gleangp import SparseGPRegressor, stack_outputs
from gleangp.exceptions import LabelError, TaskError


def rows(n=60, seed=0):
    """A wave, and its mirror image in other units; one cell in four is missing."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (n, 2))
    wave = np.sin(X[:, 0])
    truth = np.column_stack([wave, 1000.0 - 500.0 * wave + 10.0 * X[:, 1]])
    Y = truth + rng.normal(size=(n, 2)) * [0.1, 50.0]
    Y[rng.random(Y.shape) < 0.25] = np.nan
    return X, Y, truth


@pytest.fixture(scope="module")
def fitted():
    """A model of two outputs."""
    X, Y, _ = rows()
    return SparseGPRegressor(random_state=0).fit(X, Y)


def test_shapes_are_those_of_the_outputs(fitted):
    """Every answer has a column for each output."""
    X = rows(5, seed=1)[0]
    mean, std = fitted.predict(X, return_std=True)
    assert mean.shape == std.shape == (5, 2)
    assert_allclose(fitted.predict(X), mean)
    interval = fitted.predict_interval(X, 0.9)
    assert interval.shape == (5, 2, 2)
    assert (interval[..., 0] < mean).all()
    assert (interval[..., 1] > mean).all()
    assert fitted.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (5, 2, 3)
    assert fitted.sample_y(X, 4).shape == (5, 2, 4)
    cov = fitted.predict(X, return_cov=True)[1]
    assert cov.shape == (5, 2, 5, 2)
    assert_allclose(np.sqrt(np.einsum("iqiq->iq", cov)), std)
    assert fitted.suggest(X, 3).shape == (3, 2)
    assert [line.task for line in fitted.transfer_report()] == [0, 1]


def test_outputs_inform_each_other():
    """Where one output is missing, the other one, its mirror image in other units, helps."""
    X, Y, truth = rows()
    Y[X[:, 0] < 3.0, 0] = np.nan
    both = SparseGPRegressor(coupling="coregion", random_state=0).fit(X, Y).predict(X)
    alone = SparseGPRegressor(random_state=0).fit(X, Y[:, 0]).predict(X)
    gone = X[:, 0] < 3.0
    error = [np.sqrt(np.mean((f[gone] - truth[gone, 0]) ** 2)) for f in (both[:, 0], alone)]
    assert error[0] < 0.6 * error[1]


def test_columns_are_tasks(fitted):
    """The outputs are tasks of the model: one of them can be asked for, and another one added."""
    X, Y, truth = rows()
    mean = fitted.predict(X[:4])
    assert_allclose(
        fitted.predict(X[:4], tasks=[1, 1, 0, 0]), [mean[0, 1], mean[1, 1], mean[2, 0], mean[3, 0]]
    )
    more = SparseGPRegressor(optimizer=None, random_state=0).fit(X, Y).add_task(X, 2.0 * truth[:, 0], 2)
    assert more.predict(X[:4]).shape == (4, 3)
    assert more.leave_one_out()[0].shape == (60, 2)


def test_score_and_density_leave_missing_cells_out(fitted):
    """R^2 is the mean of those of the outputs; left-out predictions have the shape of Y."""
    X, Y, _ = rows(40, seed=2)
    Y[:, 0] = np.where(np.arange(40) < 20, Y[:, 0], np.nan)
    mean = fitted.predict(X)
    known = ~np.isnan(Y)
    each = [r2_score(Y[known[:, k], k], mean[known[:, k], k]) for k in range(2)]
    assert_allclose(fitted.score(X, Y), np.mean(each))
    assert np.isfinite(fitted.log_density(X, Y))
    left_out = fitted.leave_one_out()[0]
    assert left_out.shape == (60, 2)
    assert (np.isnan(left_out) == np.isnan(rows()[1])).all()


def test_searches_and_files(fitted, tmp_path):
    """Cross-validation, grid search, and a model file."""
    X, Y, _ = rows()
    fixed = SparseGPRegressor(RBF([1.5, 20.0]), noise_variance=0.02, optimizer=None, random_state=0)
    scores = cross_val_score(fixed, X, Y, cv=2)
    assert scores.min() > 0.8
    search = GridSearchCV(fixed, {"coupling": ["kernel", "function"]}, cv=2).fit(X, Y)
    assert search.predict(X[:3]).shape == (3, 2)
    gleangp.save(fitted, tmp_path / "m.glean")
    assert_allclose(gleangp.load(tmp_path / "m.glean").predict(X), fitted.predict(X))


def test_more_rows_are_absorbed():
    """`partial_fit` with the same parameters gives the posterior of all cells."""
    X, Y, _ = rows(30)
    fixed = {"optimizer": None, "coupling": "function", "normalize_y": False, "noise_variance": 0.1}
    part = SparseGPRegressor(**fixed).fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:])
    Xs, ys, tasks = stack_outputs(X[20:], Y[20:])
    stacked = SparseGPRegressor(**fixed).fit(*stack_outputs(X[:20], Y[:20]))
    assert_allclose(part.predict(X)[:, 1], stacked.partial_fit(Xs, ys, tasks).predict(X, np.ones(30, int)))


def test_weights_and_headings():
    """A frame gives names to the outputs in its order; a weight counts for all outputs, or for one cell."""
    X, Y, _ = rows(30)
    frame = pd.DataFrame(Y, columns=["z", "a"])
    weight = np.ones(30)
    weight[:5] = 0.0
    fixed = SparseGPRegressor(optimizer=None, random_state=0)
    model = clone(fixed).fit(X, frame, sample_weight=weight)
    assert model.tasks_.tolist() == ["z", "a"]
    assert model.predict(X)[:, 1].mean() > 500.0
    cells = clone(fixed).fit(X, frame, sample_weight=np.column_stack([weight, weight]))
    assert_allclose(cells.predict(X), model.predict(X))
    without = clone(fixed).fit(X[5:], Y[5:])
    assert_allclose(without.predict(X), model.predict(X), rtol=1e-6)


def test_an_output_without_values_and_lists():
    """Lists will do; a column without any value is predicted, with a wide spread."""
    X, Y, _ = rows(30)
    Y[:, 1] = np.nan
    mean, std = SparseGPRegressor(random_state=0).fit(X.tolist(), Y.tolist()).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std[:, 1] > std[:, 0]).all()


def test_what_does_not_fit_is_explained(fitted):
    """Tasks beside outputs, other shapes, and outputs in models that have one target."""
    X, Y, _ = rows()
    with pytest.raises(TaskError, match="there are tasks too"):
        SparseGPRegressor().fit(X, Y, tasks=np.repeat([0, 1], 30))
    with pytest.raises(LabelError, match=r"shape \(60,\), but the model has 2 outputs and X has 60 rows"):
        fitted.score(X, Y[:, 0])
    with pytest.raises(TaskError, match="Y has 59 rows"):
        SparseGPRegressor().fit(X, Y[1:])
    with pytest.raises(LabelError, match="SparseGPRegressor learns several outputs"):
        gleangp.HierarchicalGPRegressor().fit(X, Y)
    with pytest.raises(LabelError, match="NaN in all rows"):
        SparseGPRegressor().fit(X, np.full((60, 2), np.nan))
    # One target again: the estimator does not remember the outputs.
    assert gleangp.SparseGPRegressor(optimizer=None).fit(X, Y).fit(X, X[:, 0]).predict(X).shape == (60,)
