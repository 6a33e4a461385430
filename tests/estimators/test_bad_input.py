"""Input that cannot be learnt from is refused with a message; ugly input that can, is learnt from."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, Kernel, WhiteKernel

from gleangp import SparseGPClassifier, SparseGPRegressor
from gleangp.exceptions import KernelError, LabelError, NewTaskWarning, NotPositiveDefiniteError, TaskError


@pytest.fixture(params=[SparseGPRegressor, SparseGPClassifier])
def Model(request):
    """Each of the two."""
    return request.param


@pytest.fixture
def X(Model):
    """Inputs of `problem`."""
    return problem(Model)[0]


@pytest.fixture
def y(Model):
    """Its targets: numbers, or two classes."""
    return problem(Model)[1]


def problem(Model, n=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    return X, (y if Model is SparseGPRegressor else np.where(y > 0, "up", "down"))


def halves(y):
    return np.repeat(["u", "v"], len(y) // 2)


class NotACovariance(Kernel):
    """1 where the first inputs are closer than 1.5, else 0: symmetric, but not positive definite."""

    def __init__(self):
        pass

    def __call__(self, X, Y=None, eval_gradient=False):
        K = (np.abs(X[:, :1] - (X if Y is None else Y)[:, 0]) < 1.5).astype(float)
        return (K, np.zeros((*K.shape, 0))) if eval_gradient else K

    def diag(self, X):
        return np.ones(len(X))

    def is_stationary(self):
        return True


@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_inputs_not_finite(Model, X, y, value, message):
    """NaN or infinity in X is refused by every method."""
    model = Model(optimizer=None).fit(X, y, halves(y))
    bad = X.copy()
    bad[3, 1] = value
    calls = [
        lambda: Model(optimizer=None).fit(bad, y),
        lambda: model.predict(bad, halves(y)),
        lambda: model.partial_fit(bad, y, halves(y)),
        lambda: model.add_task(bad, y, "w"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"Input X contains {message}"):
            call()


def test_targets_of_wrong_length(Model, X, y):
    """The message has both lengths."""
    with pytest.raises(LabelError, match="y has 39 entries, but X has 40 rows"):
        Model(optimizer=None).fit(X, y[:-1])
    model = Model(optimizer=None).fit(X, y, halves(y))
    with pytest.raises(LabelError, match="y has 2 entries, but X has 3 rows"):
        model.add_task(X[:3], y[:2], "w")
    with pytest.raises(LabelError, match="y has 2 entries, but X has 3 rows"):
        model.partial_fit(X[:3], y[:2], ["u"] * 3)


def test_all_targets_missing():
    """No row with a target is an error; in classification any missing label is."""
    X, y = problem(SparseGPRegressor)
    with pytest.raises(LabelError, match="y is NaN in all rows"):
        SparseGPRegressor().fit(X, np.full(len(y), np.nan))
    with pytest.raises(LabelError, match="y has 40 missing entries"):
        SparseGPClassifier().fit(X, np.full(len(y), np.nan))


def test_one_class_overall():
    """One class cannot be told from nothing."""
    X, y = problem(SparseGPClassifier)
    with pytest.raises(LabelError, match=r"y has 1 class: \['up'\]. Two are needed"):
        SparseGPClassifier().fit(X, np.full(len(y), "up"))


def test_one_class_within_a_task():
    """Such a task is usable: it says where its class is."""
    X, y = problem(SparseGPClassifier)
    tasks = halves(y)
    y = np.where(tasks == "v", "up", y)
    model = SparseGPClassifier().fit(X, y, tasks)
    assert np.all(model.predict(X[tasks == "v"], tasks[tasks == "v"]) == "up")
    model.add_task(X[:3], ["down"] * 3, "w")
    assert np.all(model.predict(X[:3], ["w"] * 3) == "down")


def test_unknown_task(Model, X, y):
    """The message lists the known tasks. `partial_fit` refuses new ones whatever `new_tasks` is."""
    model = Model(new_tasks="error", optimizer=None).fit(X, y, halves(y))
    for call in (model.predict, lambda X, t: model.partial_fit(X, y[:2], t)):
        with pytest.raises(TaskError, match=r"unknown tasks \(1\): 'w'. Known tasks \(2\): 'u', 'v'"):
            call(X[:2], ["u", "w"])
    with pytest.raises(TaskError, match="unknown tasks"):
        model.set_params(new_tasks="prior").partial_fit(X[:2], y[:2], ["u", "w"])


def test_tasks_forgotten_or_not_expected(Model, X, y):
    """A model fitted with tasks needs them to predict, and one fitted without refuses them."""
    with pytest.raises(TaskError, match="was fitted with tasks, and now there are none"):
        Model(optimizer=None).fit(X, y, halves(y)).predict(X)
    with pytest.raises(TaskError, match="was fitted without tasks, and now tasks= is given"):
        Model(optimizer=None).fit(X, y).predict(X, halves(y))
    with pytest.raises(TaskError, match="was fitted without tasks, so 'w' cannot be added"):
        Model(optimizer=None).fit(X, y).add_task(X, y, "w")


def test_known_task_added(Model, X, y):
    """A task can be added once."""
    with pytest.raises(TaskError, match="task 'u' is known already"):
        Model(optimizer=None).fit(X, y, halves(y)).add_task(X, y, "u")


def test_added_rows_of_another_task(Model, X, y):
    """Rows with a task column must be of the task that is added."""
    with_column = np.column_stack([X.astype(object), halves(y)])
    model = Model(task=2, optimizer=None).fit(with_column, y)
    with pytest.raises(TaskError, match="task='w', but the task column of its rows has 'u'"):
        model.add_task(with_column[:4], y[:4], "w")


@pytest.mark.parametrize("nothing", [None, np.zeros((0, 2))])
def test_empty_task(Model, X, y, nothing):
    """A task without rows is predicted from the prior: one number everywhere, with the prior's spread."""
    model = Model(coupling="kernel", optimizer=None).fit(X, y, halves(y))
    model.add_task(nothing, None if nothing is None else [], "w")
    where = ["w"] * len(X)
    assert len(np.unique(model.predict(X, where))) == 1
    if Model is SparseGPRegressor:
        _, std = model.predict(X, where, return_std=True)
        assert np.all(std >= model.predict(X, halves(y), return_std=True)[1])
    else:
        assert_allclose(np.ptp(model.predict_proba(X, where), axis=0), 0.0, atol=1e-12)


def test_task_without_targets():
    """A task whose targets are all NaN is known, and predicted from the prior."""
    X, y = problem(SparseGPRegressor)
    tasks = halves(y)
    model = SparseGPRegressor(coupling="kernel", random_state=0)
    model.fit(X, np.where(tasks == "v", np.nan, y), tasks)
    mean, std = model.predict(X, ["v"] * len(X), return_std=True)
    assert_allclose(mean, np.mean(y[tasks == "u"]), rtol=1e-9)
    fresh = clone(model).fit(X, np.where(tasks == "v", np.nan, y), tasks).add_task(None, None, "w")
    assert_allclose(std, fresh.predict(X, ["w"] * len(X), return_std=True)[1], rtol=1e-9)
    assert np.all(std > model.predict(X, ["u"] * len(X), return_std=True)[1])
    model.partial_fit(X[tasks == "v"], y[tasks == "v"], tasks[tasks == "v"])
    assert model.score(X[tasks == "v"], y[tasks == "v"], tasks[tasks == "v"]) > 0.9


@pytest.mark.parametrize("selector", ["entropy", "information", "residual", "random"])
@pytest.mark.parametrize("optimizer", ["l-bfgs-b", None])
def test_fewer_active_points_than_tasks(Model, X, y, selector, optimizer):
    """Tasks that get no active point are predicted from the prior, with a kernel that is still learnt."""
    tasks = np.arange(len(y)) % 8
    model = Model(
        RBF() + WhiteKernel(0.1),
        coupling="kernel",
        n_active=3,
        posterior="active",
        selector=selector,
        optimizer=optimizer,
        random_state=0,
    ).fit(X, y, tasks)
    assert len(model.active_) == 3
    without = np.setdiff1d(tasks, tasks[model.active_])
    assert len(without) >= 5
    assert len(np.unique(model.predict(X, [without[0]] * len(X)))) == 1
    model.partial_fit(X, y, tasks)
    assert model.score(X, y, tasks) > 0.0


def test_too_many_active_points(Model, X, y):
    """n_active above n is clipped, with a warning that has both numbers."""
    with pytest.warns(UserWarning, match="n_active=100 is more than the 40 labeled rows"):
        model = Model(n_active=100, optimizer=None).fit(X, y)
    assert sorted(model.active_) == list(range(40))


@pytest.mark.parametrize("n_active", [0, -3, 0.0, 1.5, "many"])
def test_active_points_not_positive(Model, X, y, n_active):
    """n_active is a positive int, or a share of the rows."""
    with pytest.raises(ValueError, match=r"'n_active' parameter of SparseGP.* must be an int in the range"):
        Model(n_active=n_active).fit(X, y)


def test_tasks_given_twice(Model, X, y):
    """Both the column and the argument is an error, in every method."""
    with pytest.raises(TaskError, match="tasks were given twice: by the column task=0"):
        Model(task=0).fit(X, y, halves(y))


def test_predict_before_fit(Model, X, y):
    """scikit-learn's own error."""
    for call in (lambda m: m.predict(X), lambda m: m.score(X, y), lambda m: m.add_task(X, y, "w")):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            call(Model())


def test_wrong_number_of_features(Model, X, y):
    """The message has both numbers."""
    model = Model(optimizer=None).fit(X, y, halves(y))
    calls = [
        lambda: model.predict(X[:, :1], halves(y)),
        lambda: model.partial_fit(X[:, :1], y, halves(y)),
        lambda: model.add_task(X[:, :1], y, "w"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"X has 1 features, but SparseGP.* is expecting 2 features"):
            call()


def test_classes_or_numbers(Model):
    """A regressor refuses strings, a classifier numbers with a continuum of values."""
    X, _ = problem(Model)
    wrong = problem(SparseGPClassifier if Model is SparseGPRegressor else SparseGPRegressor)[1]
    message = "y has strings" if Model is SparseGPRegressor else "Unknown label type"
    with pytest.raises(ValueError, match=message):
        Model(optimizer=None).fit(X, wrong)


def test_new_class_later():
    """Classes are fixed by `fit`."""
    X, y = problem(SparseGPClassifier)
    model = SparseGPClassifier().fit(X, y, halves(y))
    with pytest.raises(LabelError, match=r"classes that fit did not see: \['left'\]"):
        model.partial_fit(X[:2], ["up", "left"], ["u", "u"])
    with pytest.raises(LabelError, match=r"first call of partial_fit has no row of the classes \['left'\]"):
        SparseGPClassifier().partial_fit(X, y, classes=["up", "down", "left"])


@pytest.mark.parametrize("posterior", ["local", "active"])
@pytest.mark.parametrize("selector", ["entropy", "information", "residual", "random"])
@pytest.mark.parametrize("optimizer", ["l-bfgs-b", None])
def test_kernel_not_positive_definite(Model, X, y, posterior, selector, optimizer):
    """A kernel that is no covariance function is named as the cause, whichever part meets it first."""
    model = Model(
        NotACovariance(),
        n_active=10,
        posterior=posterior,
        selector=selector,
        optimizer=optimizer,
        random_state=0,
    )
    with pytest.raises(NotPositiveDefiniteError, match=r"not positive definite.*covariance function"):
        model.fit(X, y)


@pytest.mark.parametrize("settings", [{}, {"n_active": 15}, {"n_active": 15, "posterior": "active"}])
def test_constant_columns(Model, X, y, settings):
    """A constant column changes no prediction, and nothing overflows where all columns are constant."""
    with_constant = np.column_stack([X, np.full(len(X), 7.0)])
    model = Model(random_state=0, **settings).fit(with_constant, y)
    assert model.score(with_constant, y) > (0.8 if Model is SparseGPRegressor else 0.85)
    flat = Model(random_state=0, **settings).fit(np.ones((len(X), 2)), y)
    if Model is SparseGPRegressor:
        assert flat.predict(np.ones((1, 2)))[0] == pytest.approx(np.mean(y), abs=0.25)
    else:
        assert flat.predict_proba(np.ones((1, 2)))[0, 1] == pytest.approx(np.mean(y == "up"), abs=0.25)


@pytest.mark.parametrize("settings", [{}, {"n_active": 30}, {"n_active": 30, "posterior": "active"}])
def test_repeated_rows_with_conflicting_targets(Model, X, y, settings):
    """Rows that contradict each other are noise: the prediction is between them, and finite.

    Active points alone may not contain the contradiction.
    """
    other = -y if Model is SparseGPRegressor else np.where(y == "up", "down", "up")
    model = Model(random_state=0, **settings).fit(np.vstack([X, X]), np.concatenate([y, other]))
    if Model is SparseGPRegressor:
        mean, std = model.predict(X, return_std=True)
        bound = 0.5 if "posterior" not in settings else 1.5
        assert np.all(np.abs(mean) < bound * np.max(np.abs(y)))
        assert np.all(std > 0)
    else:
        margin = 0.2 if "posterior" not in settings else 0.5
        assert np.all(np.abs(model.predict_proba(X) - 0.5) < margin)


@pytest.mark.parametrize(
    ("scale", "settings"),
    [(1e-12, {}), (1e12, {"n_active": 15}), (1e-12, {"n_active": 15, "posterior": "active"})],
)
def test_targets_of_any_scale(scale, settings):
    """Targets of scale 1e-12 and 1e12 are learnt as those of scale one are."""
    X, y = problem(SparseGPRegressor)
    plain = SparseGPRegressor(random_state=0, **settings).fit(X, y)
    scaled = SparseGPRegressor(random_state=0, **settings).fit(X, scale * y)
    mean, std = plain.predict(X[:9], return_std=True)
    scaled_mean, scaled_std = scaled.predict(X[:9], return_std=True)
    assert_allclose(scaled_mean / scale, mean, rtol=1e-3, atol=1e-4)
    assert_allclose(scaled_std / scale, std, rtol=1e-2)


def test_a_wild_input(Model, X, y):
    """One input far away from all others does not hide their structure."""
    X = np.vstack([X, [[1e9, -1e9]]])
    model = Model(random_state=0).fit(X, np.append(y, y[0]))
    assert model.score(X[:-1], y) > 0.8


def test_features_that_are_mostly_constant():
    """Values in one row of five are no outliers: such features do not drown the one that matters.

    Their middle half is nearly constant; in units of that, distances would be theirs alone.
    """
    rng = np.random.default_rng(0)
    x, sparse = rng.normal(size=(120, 1)), rng.normal(size=(120, 5)) * (rng.random((120, 5)) < 0.2)
    X, y = np.hstack([x, sparse + 1e-3 * rng.normal(size=(120, 5))]), np.sin(2.0 * x[:, 0])
    model = SparseGPRegressor(random_state=0).fit(X[:60], y[:60])
    assert model.score(X[60:], y[60:]) > 0.9


def test_compound_kernel(Model, X, y):
    """Several kernels side by side are no covariance."""
    with pytest.raises(KernelError, match="kernel is a CompoundKernel"):
        Model(CompoundKernel([RBF(), RBF()])).fit(X, y)


def test_targets_far_from_zero_or_constant():
    """A large offset costs no digits of the variation beyond those of the targets; constants are kept."""
    X, y = problem(SparseGPRegressor, 20)
    far = SparseGPRegressor(random_state=0).fit(X, y + 1e9).predict(X) - 1e9
    assert_allclose(far, SparseGPRegressor(random_state=0).fit(X, y).predict(X), atol=1e-3)
    for tasks in (np.zeros(len(y), int), np.arange(len(y)) % 3):
        constant = SparseGPRegressor().fit(X, np.full(len(y), 3.0), tasks)
        assert_allclose(constant.predict(X, tasks), 3.0, rtol=1e-9)


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.inf, [0.1, 0.2], np.full(40, -0.1), np.full(40, np.nan)])
def test_noise_variance_not_usable(bad):
    """One positive number, or one for each row."""
    X, y = problem(SparseGPRegressor)
    with pytest.raises(ValueError, match="noise_variance"):
        SparseGPRegressor(RBF(), noise_variance=bad).fit(X, y)


@pytest.mark.parametrize(
    ("noise", "changed", "rows", "message"),
    [
        ("poisson", -1.0, {}, "y is -1 in row 3. Poisson noise needs counts"),
        ("negative_binomial", 1.5, {}, "y is 1.5 in row 3. Negative-binomial noise needs counts"),
        ("binomial", 21.0, {"trials": 20.0}, "y is 21 in row 3. It cannot be above its 20 trials"),
        ("binomial", 2.0, {"trials": 20.5}, "trials is 20.5 in row 0. It must be a positive whole number"),
        ("poisson", 2.0, {"exposure": 0.0}, "exposure has shape .* and least value 0; one positive number"),
        ("gamma", 0.0, {}, "y is 0 in row 3. Gamma noise needs positive targets"),
        ("gaussian", 2.0, {"exposure": 1.0}, "exposure= is given, but Gaussian noise has no exposure"),
        ("poisson", 2.0, {"trials": 9.0}, "trials= is given, but Poisson noise has no trials"),
        ("poisson", 2.0, {"sample_weight": 2.0}, "sample_weight= .* It is for noise='gaussian'"),
    ],
)
def test_targets_that_do_not_fit_the_noise(noise, changed, rows, message):
    """One clear error each, with the row."""
    X, y = np.arange(12.0)[:, None], np.arange(1.0, 13.0)
    y[3] = changed
    rows = {name: np.full(12, value) for name, value in rows.items()}
    with pytest.raises(ValueError, match=message):
        SparseGPRegressor(noise=noise, optimizer=None).fit(X, y, **rows)


def test_rows_of_predictions_that_do_not_fit_the_noise():
    """Exposure or trials of new rows that the noise does not have are refused, not left out."""
    X, y = np.arange(12.0)[:, None], np.arange(12.0)
    model = SparseGPRegressor(optimizer=None).fit(X, y)
    for method in (model.predict, model.predict_interval, model.sample_y):
        with pytest.raises(ValueError, match="Gaussian noise has no exposure"):
            method(X, exposure=np.ones(12))
    counts = SparseGPRegressor(noise="poisson", optimizer=None).fit(X, y)
    with pytest.raises(ValueError, match="Poisson noise has no trials"):
        counts.predict(X, trials=np.ones(12))


def test_noise_of_new_rows_unknown():
    """With a variance per training row, what needs the noise of other rows is refused."""
    X, y = problem(SparseGPRegressor)
    model = SparseGPRegressor(RBF(), noise_variance=np.full(len(y), 0.1), optimizer=None).fit(X, y, halves(y))
    calls = [
        lambda: model.predict(X, halves(y), return_std=True, include_noise=True),
        lambda: model.partial_fit(X, y, halves(y)),
        lambda: model.add_task(X, y, "w"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the noise of new rows is not known"):
            call()


def test_std_or_cov():
    """One of them can be asked for."""
    X, y = problem(SparseGPRegressor)
    with pytest.raises(ValueError, match="return_std and return_cov are both True"):
        SparseGPRegressor(optimizer=None).fit(X, y).predict(X, return_std=True, return_cov=True)


class FailingSelector:
    """Raises when it is asked: after everything was validated."""

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        raise RuntimeError("the selector failed")


def test_failures_leave_the_estimator_as_it_was(Model, X, y, monkeypatch):
    """After a failed fit, add_task or partial_fit every attribute is what it was, to the last byte."""
    options = {"coupling": "kernel", "posterior": "active", "n_active": 20, "random_state": 0}
    model = Model(RBF() + WhiteKernel(), **options)
    model.fit(X, y, halves(y)).set_params(selector=FailingSelector(), n_active=10)
    before = pickle.dumps(vars(model))
    inner = type(model._models[0] if Model is SparseGPClassifier else model._model)
    real_absorb = inner.absorb

    def absorb_then_fail(*args):
        real_absorb(*args)
        raise RuntimeError("absorbing failed")

    monkeypatch.setattr(inner, "absorb", absorb_then_fail)
    calls = [
        lambda: model.fit(X[:, :1], y),
        lambda: model.fit(X, y, ["other"] * len(y)),
        lambda: model.fit(X, y[:-1], halves(y)),
        lambda: model.add_task(X, y, "w"),
        lambda: model.add_task(X, y[:3], "w"),
        lambda: model.partial_fit(X, y, halves(y)),
        lambda: model.partial_fit(X, y, ["w"] * len(y)),
    ]
    for call in calls:
        with pytest.raises((RuntimeError, ValueError)):
            call()
        assert pickle.dumps(vars(model)) == before
    assert_allclose(model.score(X, y, halves(y)), pickle.loads(pickle.dumps(model)).score(X, y, halves(y)))


def test_failed_first_fit_leaves_nothing(Model, X, y):
    """An estimator whose first fit failed is as new."""
    model = Model(selector=FailingSelector(), posterior="active", n_active=5)
    before = dict(vars(model))
    with pytest.raises(RuntimeError, match="the selector failed"):
        model.fit(X, y)
    assert vars(model) == before


def test_warnings_name_the_line_of_the_user(Model, X, y):
    """However deep in the library a warning arises."""
    fixed = {"kernel": RBF(), "optimizer": None}
    model = Model(**fixed).fit(X, y, tasks=halves(y))
    calls = [
        (NewTaskWarning, lambda: model.predict(X[:2], tasks=["w", "w"])),
        (NewTaskWarning, lambda: model.score(X[:2], y[:2], tasks=["w", "w"])),
        (FutureWarning, lambda: Model(posterior="projected", **fixed).fit(X, y)),
        (UserWarning, lambda: Model(n_active=100, **fixed).fit(X, y)),
        (UserWarning, lambda: Model(n_active=100, posterior="active", **fixed).fit(X, y)),
    ]
    for category, call in calls:
        with pytest.warns(category) as caught:
            call()
        assert caught[0].filename == __file__
