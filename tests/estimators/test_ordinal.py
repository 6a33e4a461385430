"""`SparseGPOrdinal`: ordered categories."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from sklearn.exceptions import DataConversionWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from gleangp import SparseGPOrdinal, translations
from gleangp.exceptions import KernelError, LabelError
from gleangp.models.defaults import LABELS_LEARNING, LEARNING
from gleangp.models.priors import LogNormal
from tests.estimators.learning_checks import checks_of_what_learns

NAMES = np.array(["poor", "fair", "good", "excellent"])


@pytest.mark.filterwarnings("ignore:y has two categories")
@parametrize_with_checks([SparseGPOrdinal(ConstantKernel(1.0) * RBF(1.0), optimizer=None)])
def test_scikit_learn_check(estimator, check):
    """scikit-learn's estimator checks pass, none excepted."""
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:y has two categories")
@checks_of_what_learns(SparseGPOrdinal())
def test_scikit_learn_check_of_what_learns(estimator, check):
    """They pass with learning too."""
    check(estimator)


@pytest.fixture(scope="module")
def data():
    """A smooth function cut into four unequal categories."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(150, 1))
    f = 2.0 * np.sin(X[:, 0]) + 0.3 * rng.standard_normal(150)
    return X, np.digitize(f, [-1.0, 0.2, 1.5]), f


@pytest.mark.filterwarnings("ignore:SparseGPOrdinal stopped")
@pytest.mark.parametrize("posterior", ["local", "active"])
def test_cut_points_are_learnt(data, posterior):
    """Cut-points ascend in the proportions of the truth; predictions are mostly right, never far off."""
    X, y, _ = data
    model = SparseGPOrdinal(categories=NAMES, posterior=posterior, n_active=60, random_state=0)
    model.fit(X, NAMES[y])
    assert model.classes_.tolist() == NAMES.tolist()
    assert_allclose(model.cut_points_, model.noise_.edges[1:-1] - model.noise_.bias)
    gaps = np.diff(model.cut_points_)
    assert (gaps > 0).all()
    assert_allclose(gaps[0] / gaps.sum(), 1.2 / 2.5, atol=0.15)
    rank = {name: k for k, name in enumerate(NAMES)}
    predicted = np.array([rank[c] for c in model.predict(X)])
    assert np.mean(predicted == y) > 0.7
    assert np.mean(np.abs(predicted - y) > 1) < 0.03


def test_probabilities_are_those_of_the_noise_model(data):
    """Rows sum to one; each column is the category's interval under the Gaussians of all draws."""
    X, y, _ = data
    model = SparseGPOrdinal(random_state=0, n_active=40).fit(X, y)
    p = model.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    each = model._model.predict_each(X, np.zeros(len(X), dtype=int))
    assert len(each) == LEARNING.n_draws
    assert_allclose(model.predict_latent(X)[0], np.mean([mean for mean, _, _ in each], axis=0), rtol=1e-9)
    edges = np.concatenate([[-np.inf], model.cut_points_, [np.inf]])
    below = [ndtr((edges[:, None] - mean) / np.sqrt(var + model.noise_.variance)) for mean, var, _ in each]
    assert_allclose(p, np.diff(np.mean(below, axis=0), axis=0).T, atol=1e-12)


def test_noise_can_be_left_alone_or_named(data):
    """`learn_noise` switches what is learnt."""
    X, y, _ = data
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed")
    held = SparseGPOrdinal(kernel, learn_noise=False, n_active=40, random_state=0).fit(X, y)
    widths = SparseGPOrdinal(kernel, learn_noise=["widths"], n_active=40, random_state=0).fit(X, y)
    both = SparseGPOrdinal(kernel, learn_noise=["widths", "variance"], n_active=40, random_state=0).fit(X, y)
    assert widths.noise_.bias == held.noise_.bias
    assert held.log_evidence_ < widths.log_evidence_ < both.log_evidence_ + LABELS_LEARNING.settled
    assert widths.noise_.variance == held.noise_.variance != both.noise_.variance
    with pytest.raises(ValueError, match="slope"):
        SparseGPOrdinal(learn_noise=["slope"]).fit(X, y)


def test_unlabeled_rows_are_left_out(data):
    """They change nothing."""
    X, y, _ = data
    some = np.where(np.arange(len(y)) % 3 == 0, -1, y)
    kernel = ConstantKernel(2.0) * RBF(1.0)
    model = SparseGPOrdinal(kernel, unlabeled=-1, random_state=0, n_rounds=1).fit(X, some)
    kept = SparseGPOrdinal(kernel, random_state=0, n_rounds=1).fit(X[some >= 0], y[some >= 0])
    assert_allclose(model.predict_proba(X), kept.predict_proba(X), rtol=1e-9)
    assert (some[model.active_] >= 0).all()


@pytest.mark.slow
def test_tasks(data):
    """Tasks share cut-points; a new one needs few rows; more rows can be absorbed."""
    X, y, f = data
    flipped = np.digitize(-f, [-1.0, 0.2, 1.5])
    tasks = np.repeat(["up", "down"], len(X))
    model = SparseGPOrdinal(n_active=0.25, random_state=0, n_rounds=1)
    model.fit(np.vstack([X, X]), np.append(y, flipped), tasks=tasks)
    assert np.mean(model.predict(X, tasks=np.full(len(X), "down")) == flipped) > 0.75
    model.add_task(X[:40], y[:40], "third").partial_fit(X[40:60], y[40:60], tasks=["third"] * 20)
    assert np.mean(model.predict(X, tasks=np.full(len(X), "third")) == y) > 0.7


def test_invariances_apply():
    """Virtual vectors keep the category of their row."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 6))
    y = np.digitize(X.sum(axis=1), [-1.0, 1.0])
    model = SparseGPOrdinal(
        posterior="active", n_active=20, invariances=translations((2, 3)), random_state=0, n_rounds=1
    ).fit(X, y)
    assert (model.active_virtual_ >= 0).any()
    assert model.predict_proba(X).shape == (40, 3)


@pytest.mark.parametrize(
    ("categories", "labels", "match"),
    [
        (["a", "b"], ["a", "b", "a"], "at least three"),
        (["a", "b", "a"], ["a", "b", "a"], "at least three"),
        (["a", "b", "c"], ["a", "c", "c"], r"no row of y is of the categories \['b'\]"),
        (["a", "b", "c"], ["a", "b", "d"], r"\['d'\], which categories"),
        (None, ["a", "a", "a"], "1 class"),
    ],
)
def test_bad_categories(data, categories, labels, match):
    """Too few, repeated, empty or unknown categories: an error, and the old fit stays."""
    X, y, _ = data
    model = SparseGPOrdinal(ConstantKernel() * RBF(), optimizer=None, n_active=10).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(LabelError, match=match):
        model.set_params(categories=categories).fit(X[:3], labels)
    assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_order_of_a_column_with_an_order(data, library):
    """The categories of an ordered column are in its order, without those that do not occur."""
    X, codes, _ = data
    names = np.array(["never", "poor", "fair", "good", "best"])
    text = names[codes + 1]
    if library == "pandas":
        y = pd.Series(pd.Categorical(text, categories=names, ordered=True))
        y[0] = np.nan
    else:
        pl = pytest.importorskip("polars")
        y = pl.Series([None, *text[1:].tolist()], dtype=pl.Enum(names.tolist()))
    settings = {"optimizer": None, "random_state": 0, "unlabeled": np.nan}
    model = SparseGPOrdinal(**settings).fit(X, y)
    assert model.classes_.tolist() == ["poor", "fair", "good", "best"]
    named = SparseGPOrdinal(categories=names[1:], **settings).fit(X[1:], text[1:])
    assert_array_equal(model.predict_proba(X), named.predict_proba(X))
    assert model.score(X[1:], y[1:]) == np.mean(model.predict(X[1:]) == text[1:])
    if library == "pandas":
        with pytest.warns(DataConversionWarning):  # of scikit-learn: y is a column
            assert SparseGPOrdinal(**settings).fit(X, y.to_frame()).classes_.tolist() == names[1:].tolist()
    plain = SparseGPOrdinal(**settings).fit(X[1:], pd.Series(text[1:], dtype="category"))
    assert plain.classes_.tolist() == sorted(names[1:])


def test_two_categories_are_warned_about(data):
    """Two categories that nobody named: said, and the model is a classifier."""
    X, y, _ = data
    with pytest.warns(UserWarning, match=r"two categories, \[0, 1\]"):
        model = SparseGPOrdinal(ConstantKernel() * RBF(), optimizer=None, n_active=20).fit(X, 1 * (y > 1))
    assert model.cut_points_.shape == (1,)


def test_priors_have_the_names_of_the_model_that_is_fitted():
    """A narrow prior of the default model holds its length scale; the names of another kernel are refused."""
    X = np.linspace(-3, 3, 40)[:, None]
    y = np.digitize(X[:, 0], [-1, 1])
    priors = {"k2__k2__length_scale": LogNormal(0.3, 1e-3)}
    model = SparseGPOrdinal(random_state=0, priors=priors).fit(X, y)
    assert_allclose(model.kernel_.k2.k2.length_scale, 0.3, rtol=0.01)
    with pytest.raises(KernelError, match="'k2__length_scale', which the model does not have"):
        SparseGPOrdinal(priors={"k2__length_scale": LogNormal(0.3, 1e-3)}).fit(X, y)
