"""Unlabelled rows: the null category in `SparseGPClassifier`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel

from gleangp import SparseGPClassifier, load, save
from gleangp.exceptions import KernelError, LabelError
from gleangp.inference.posterior import PRECISION_FLOOR, include_moments
from gleangp.models.decisions import in_standard_errors
from gleangp.noise import NullCategory, Probit
from gleangp.noise.classes import N_POWERS, averaged_over_powers, weights_of_powers
from tests.two_fits import assert_same_answers


def crescents(n, rng):
    """Two interlocking crescents; class -1 or +1."""
    side = rng.choice([-1, 1], size=n)
    angle, radius = rng.uniform(0, np.pi, n), 5 + 0.7 * rng.standard_normal(n)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]) * side[:, None]
    return X + side[:, None] * [2.5, -1.0], side


def few_labels(side, rng, per_class):
    """Labels of a few rows of each class, 0 elsewhere."""
    y = np.zeros(len(side), dtype=int)
    for c in (-1, 1):
        rows = rng.choice(np.flatnonzero(side == c), per_class, replace=False)
        y[rows] = c
    return y


@pytest.fixture(scope="module")
def problem():
    """200 rows, 5 labels a class."""
    rng = np.random.default_rng(3)
    X, side = crescents(200, rng)
    return X, few_labels(side, rng, 5), side


@pytest.fixture(scope="module")
def fitted(problem):
    """The defaults on that problem."""
    X, y, _ = problem
    return SparseGPClassifier(unlabeled=0, random_state=0).fit(X, y)


def test_unlabeled_rows_halve_the_error(problem, fitted):
    """With the unlabelled rows the error is at most half of that with the labelled rows alone."""
    X, y, side = problem
    alone = SparseGPClassifier(random_state=0).fit(X[y != 0], y[y != 0])
    assert isinstance(fitted.noise_, NullCategory)
    assert isinstance(alone.noise_, Probit)
    assert np.mean(fitted.predict(X) != side) <= 0.5 * np.mean(alone.predict(X) != side)
    assert np.isfinite(fitted.log_evidence_)
    assert np.isfinite(fitted.site_mean_).all()
    assert 0 <= fitted.n_silent_ <= 20


def test_probabilities(problem, fitted):
    """Rows sum to one, agree with `predict`, and the gammas are the share of unlabelled rows."""
    X, y, _ = problem
    p = fitted.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(X))
    assert fitted.noise_.gamma_plus == fitted.noise_.gamma_minus == np.mean(y == 0)
    assert fitted.score(X, y) == np.mean(fitted.predict(X[y != 0]) == y[y != 0])


def test_a_value_that_never_occurs_is_supervised(problem):
    """Without unlabelled rows the model is the probit one."""
    X, y, _ = problem
    X, y = X[y != 0], y[y != 0]
    usual = SparseGPClassifier(random_state=0).fit(X, y)
    same = SparseGPClassifier(unlabeled=0, random_state=0).fit(X, y)
    assert_same_answers(usual.predict_proba(X), same.predict_proba(X))
    assert same.n_silent_ == 0


def test_string_labels_several_classes_and_missing_entries(problem):
    """Three classes one against the rest share the unlabelled rows; None is unlabelled too."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    truth = rng.integers(3, size=90)
    X = centres[truth] + 0.6 * rng.standard_normal((90, 2))
    y = np.array(["a", "b", "c"], dtype=object)[truth]
    y[15:] = "?"
    y[20] = None
    model = SparseGPClassifier(unlabeled="?", random_state=0, n_rounds=1).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.mean(model.predict(X) != np.array(["a", "b", "c"])[truth]) < 0.05
    assert all(isinstance(n, NullCategory) for n in model.noise_)


def test_several_classes_share_unlabelled_rows():
    """Arms labelled at one end: every row finds one class, in tasks, a new task and with kernels given."""
    rng = np.random.default_rng(1)
    angle, along = np.repeat([0.5, 2.6, 4.7], 30), np.tile(np.linspace(1.0, 4.0, 30), 3)
    X = along[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(90, 2))
    truth = np.repeat([0, 1, 2], 30)
    y = np.where(np.tile(np.arange(30) < 2, 3), truth, -1)
    kernel = ConstantKernel(4.0, "fixed") * RBF(0.4, "fixed")
    settings = dict(unlabeled=-1, optimizer=None, random_state=0, n_active=60)
    model = SparseGPClassifier(CompoundKernel([kernel] * 3), **settings).fit(X, y)
    assert np.mean(model.predict(X) != truth) < 0.03
    assert np.mean((model.decision_function(X) > 0).sum(axis=1) == 1) > 0.95
    assert model.kernel_ == CompoundKernel([kernel] * 3)
    same = SparseGPClassifier(kernel, **settings).fit(X, y)
    assert_array_equal(same.decision_function(X), model.decision_function(X))
    many = SparseGPClassifier(kernel, **settings).fit(X, y, tasks=np.full(90, "first"))
    assert_allclose(many.log_evidence_, model.log_evidence_, rtol=1e-6)
    many.add_task(X + 20.0, y, "second")
    assert np.mean(many.predict(X + 20.0, tasks=np.full(90, "second")) != truth) < 0.03
    assert_allclose(many.log_evidence_, 2.0 * model.log_evidence_, rtol=0.02)


def test_the_predicted_class_is_the_most_probable_one():
    """Also under the null category, whose probabilities are not those of the margins."""
    rng = np.random.default_rng(2)
    truth = rng.integers(3, size=60)
    X = rng.standard_normal((60, 2)) + 1.5 * np.column_stack([truth, np.zeros(60)])
    y = np.where(rng.permutation(60) < 12, truth, -1)
    model = SparseGPClassifier(noise="null_category", unlabeled=-1, random_state=0).fit(X, y)
    new = rng.uniform(-6, 10, (2000, 2))
    assert_array_equal(model.predict(new), model.predict_proba(new).argmax(axis=1))


def test_kernels_for_other_classes_are_refused(problem):
    """A CompoundKernel needs as many kernels as there are classes, and more than two of these."""
    X, y, _ = problem
    with pytest.raises(KernelError, match="holds 3 kernels side by side, and 1 is needed"):
        SparseGPClassifier(CompoundKernel([RBF()] * 3), unlabeled=0).fit(X, y)
    with pytest.raises(KernelError, match="holds 2 kernels side by side, and 3 are needed"):
        SparseGPClassifier(CompoundKernel([RBF()] * 2)).fit(X[:9], np.arange(9) % 3)


def test_tasks_and_new_rows(problem):
    """Tasks share kernel and null category; more rows and tasks can come later, unlabelled ones too."""
    X, y, side = problem
    kernel = ConstantKernel(1.0, "fixed") * RBF(1.5, "fixed")
    model = SparseGPClassifier(kernel, unlabeled=0, n_active=0.3, optimizer=None, random_state=0)
    tasks = np.repeat(["one", "two"], len(X))
    model.fit(np.vstack([X, X + 30.0]), np.append(y, -y), tasks=tasks)
    one, two = model.predict(X, tasks=tasks[: len(X)]), model.predict(X + 30.0, tasks=tasks[len(X) :])
    assert_array_equal(one, -two)
    assert np.mean(one != side) < 0.25
    before = model.log_evidence_
    model.partial_fit(X[:20] + 0.1, y[:20], tasks=tasks[:20]).add_task(X, y, "new")
    assert np.isfinite(model.log_evidence_)
    assert model.log_evidence_ != before
    assert np.mean(model.predict(X, tasks=np.full(len(X), "new")) != side) < 0.25


@pytest.mark.parametrize("selector", ["entropy", "information", "random", "residual", "graph"])
def test_active_posterior_is_finite_with_every_selector(problem, selector):
    """The papers' scheme gives finite sites and evidence, and is no worse than the labelled rows alone."""
    X, y, side = problem
    kernel = ConstantKernel(1.0, "fixed") * RBF(1.2, "fixed")
    model = SparseGPClassifier(
        kernel,
        unlabeled=0,
        posterior="active",
        selector=selector,
        n_active=60,
        learn_noise=False,
        random_state=0,
    ).fit(X, y)
    assert np.isfinite(model.log_evidence_)
    assert np.abs(model.site_mean_).max() < 1e3
    if selector == "entropy":
        alone = SparseGPClassifier(kernel, posterior="active", selector=selector, random_state=0).fit(
            X[y != 0], y[y != 0]
        )
        assert np.mean(model.predict(X) != side) <= np.mean(alone.predict(X) != side)


def test_silent_rows_say_nothing():
    """A row in the middle of the null category, or one whose site would be absurd, changes no marginal."""
    noise = NullCategory()
    mean = np.linspace(-3.0, 3.0, 601)
    _, g, floored, silent = include_moments(noise, np.zeros(601), mean, np.ones(601))
    nu = noise.precision(0.0, mean, 1.0)
    assert silent[nu <= 0].all()
    assert silent[nu > 0].any()  # just outside, g / nu is very large
    assert not silent[np.abs(mean) > 1.5].any()
    assert (g[silent] == 0.0).all()
    assert (floored[silent] == PRECISION_FLOOR).all()
    assert (np.abs(g / floored)[~silent] < 12.0).all()


def test_learnt_gammas(problem):
    """Named noise parameters are learnt: with one class fully labelled its gamma falls."""
    X, _, side = problem
    y = np.where(side > 0, 1, 0)
    y[np.flatnonzero(side < 0)[:10]] = -1
    kernel = ConstantKernel(4.0, "fixed") * RBF(2.5, "fixed")
    model = SparseGPClassifier(
        kernel, unlabeled=0, learn_noise=("gamma_minus", "gamma_plus"), random_state=0
    ).fit(X, y)
    assert model.noise_.gamma_plus < 0.2 < 0.6 < model.noise_.gamma_minus


@pytest.mark.parametrize(
    ("unlabeled", "y", "match"),
    [
        (0, [0, 0, 0, 0], "no class"),
        (0, [0, 1, 1, 0], "1 class"),
        ("?", np.array([0, 1, 1, 0]), "can equal no label"),
        (0, [0, 1, -1, np.nan], None),
    ],
)
def test_bad_labels_leave_the_estimator_unchanged(problem, unlabeled, y, match):
    """No label, one class, or a value that cannot occur: an error, and the old fit stays."""
    X, _, _ = problem
    model = SparseGPClassifier(ConstantKernel() * RBF(), optimizer=None).fit(X[:4], [1, 2, 1, 2])
    before = model.predict_proba(X)
    model.set_params(unlabeled=unlabeled)
    if match is None:  # missing entries are unlabelled as well
        assert model.fit(X[:4], y).classes_.tolist() == [-1, 1]
        return
    with pytest.raises(LabelError, match=match):
        model.fit(X[:4], y)
    assert_array_equal(model.predict_proba(X), before)


def test_unknown_noise_parameter_is_named(problem):
    """`learn_noise` with a name that the noise model lacks says which it has."""
    X, y, _ = problem
    with pytest.raises(ValueError, match="gamma_minus"):
        SparseGPClassifier(unlabeled=0, learn_noise=["slope"]).fit(X, y)


def test_unlabeled_rows_need_a_null_category(problem):
    """A model fitted without unlabelled rows cannot absorb them."""
    X, y, _ = problem
    model = SparseGPClassifier(unlabeled=0, optimizer=None).fit(X[y != 0], y[y != 0])
    with pytest.raises(LabelError, match="no null category"):
        model.partial_fit(X[:30], y[:30])


@pytest.mark.slow
def test_tasks_share_a_function():
    """A task without any label learns from the other where functions are coupled, and else from none."""
    rng = np.random.default_rng(5)
    X, side = crescents(120, rng)
    labels = np.append(few_labels(side, rng, 5), np.zeros_like(side))
    tasks, errors = np.repeat(["one", "two"], len(X)), {}
    for coupling in ("function", "kernel"):
        model = SparseGPClassifier(unlabeled=0, coupling=coupling, noise="null_category", random_state=0)
        model.fit(np.vstack([X, X]), labels, tasks=tasks)
        assert isinstance(model.noise_, NullCategory)
        errors[coupling] = np.mean(model.predict(X, tasks=tasks[len(X) :]) != side)
    assert errors["function"] < 0.2 < 0.35 < errors["kernel"]


@pytest.mark.slow
def test_rows_that_do_not_help_are_left_out():
    """Classes that are no clusters: predictions are those of the labelled rows, and later rows likewise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    truth = np.where(X[:, 0] > 0.2 * rng.normal(size=300), 1, -1)
    y = np.where(np.arange(300) < 40, truth, 0)
    model = SparseGPClassifier(unlabeled=0, random_state=0).fit(X, y)
    made = model.decisions_[-1]
    assert (made.what, made.chosen) == ("unlabelled rows", "labelled rows alone")
    assert made.numbers["labelled rows alone"] > made.numbers["all rows"]
    alone = SparseGPClassifier(random_state=0).fit(X[:40], y[:40])
    assert_same_answers(model.predict_proba(X), alone.predict_proba(X))
    model.partial_fit(X[:50] + 0.1, y[:50])
    alone.partial_fit(X[:40] + 0.1, y[:40])
    assert_allclose(model.predict_proba(X), alone.predict_proba(X))
    forced = SparseGPClassifier(unlabeled=0, noise="null_category", random_state=0).fit(X, y)
    assert isinstance(forced.noise_, NullCategory)


@pytest.mark.parametrize("noise", ["logit", "robust"])
def test_other_noise_needs_labels(problem, noise):
    """It is said what to do."""
    X, y, _ = problem
    with pytest.raises(ValueError, match=f"noise='{noise}' needs a label in every row, and 190 have none"):
        SparseGPClassifier(unlabeled=0, noise=noise).fit(X, y)


@pytest.mark.slow
def test_few_rows_that_teach_another_labelling_do_not_end_the_fit():
    """A kernel learnt on some rows under which more of them would change sides is given up, not an error."""
    X, y = load_digits(return_X_y=True)
    kept = np.random.default_rng(0).random(len(y)) < 0.05
    labels = np.where(kept, np.where(y == 1, 1, -1), 0)
    model = SparseGPClassifier(unlabeled=0, n_active=100, n_rounds=1, random_state=0).fit(X, labels)
    assert np.isfinite(model.log_evidence_)
    assert np.mean(model.predict(X)[kept] == labels[kept]) > 0.85


@pytest.mark.parametrize("n", [2, 20])
def test_better_needs_more_than_a_standard_error(n):
    """A gain that two rows of twenty have does not count; a gain that all have does."""
    alone = np.full(n, -0.7)
    lucky = alone + np.where(np.arange(n) < 1, 0.5, np.where(np.arange(n) < 2, -0.45, 0.0))
    assert np.mean(lucky) > np.mean(alone)
    assert in_standard_errors(lucky - alone) <= 1.0
    assert in_standard_errors(np.full(n, 0.1)) > 1.0
    assert in_standard_errors(np.zeros(n)) == 0.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_as_certain_as_held_out_labels_allow(n_classes, tmp_path):
    """Clusters that overlap do not give certain labels; those that do not stay certain."""
    loss = {}
    for distance in (1.5, 5.0):
        rng = np.random.default_rng(1)
        y = rng.integers(n_classes, size=600)
        X = distance * np.eye(n_classes)[y] + rng.normal(size=(600, n_classes))
        known = np.where(np.arange(600) < 8 * n_classes, y, -1)
        model = SparseGPClassifier(noise="null_category", unlabeled=-1, random_state=0)
        p = model.fit(X[:100], known[:100]).predict_proba(X[100:])
        assert_allclose(p.sum(axis=1), 1.0)
        loss[distance] = -np.log(p[np.arange(500), y[100:]]).mean()
    assert loss[1.5] < 1.25  # without averaging over powers 13 and 32
    assert loss[5.0] < 0.05
    save(model, tmp_path / "model.glean")
    assert_array_equal(load(tmp_path / "model.glean").predict_proba(X), model.predict_proba(X))


def test_averages_over_powers():
    """Few labels leave all powers, many certain mistakes the small ones; the most probable class stays."""
    log_p = np.log([[1.0 - 1e-8, 1e-8]])
    assert_allclose(weights_of_powers(log_p[:0], np.zeros(0, dtype=int)), 1.0 / N_POWERS)
    wrong = weights_of_powers(np.tile(log_p, (10, 1)), np.array([0] * 7 + [1] * 3))
    right = weights_of_powers(np.tile(log_p, (10, 1)), np.zeros(10, dtype=int))
    assert wrong[:3].sum() > 0.9
    assert 0.5 < averaged_over_powers(log_p, wrong)[0, 0] < averaged_over_powers(log_p, right)[0, 0] < 1.0
