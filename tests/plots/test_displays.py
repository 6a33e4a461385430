"""The Displays: what they show is what the model says, on the axes they are given."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs, make_moons
from sklearn.gaussian_process.kernels import RBF

from gleangp import (
    HierarchicalGPRegressor,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
    plots,
)
from gleangp.exceptions import TaskError
from gleangp.plots._base import shortened, values_of

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def tasks_model():
    """A regressor of three tasks of two inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (90, 2))
    tasks = np.tile(["a", "b", "c"], 30)
    y = np.where(tasks == "c", -1, 1) * np.sin(X[:, 0]) + 0.1 * rng.standard_normal(90)
    model = SparseGPRegressor(n_active=24, posterior="active", random_state=0)
    return model.fit(X, y, tasks=tasks), X, y, tasks


def test_prediction(tasks_model):
    """The line is the model's mean at medians of the other inputs; ticks are its active points."""
    model, X, y, tasks = tasks_model
    rows = tasks == "b"
    _, ax = plt.subplots()
    display = plots.PredictionDisplay.from_estimator(model, X[rows], y[rows], task="b", n_points=11, ax=ax)
    assert display.ax_ is ax
    grid = np.column_stack([display.x, np.full(11, np.median(X[rows, 1]))])
    mean, std = model.predict(grid, tasks=["b"] * 11, return_std=True)
    np.testing.assert_allclose(display.mean, mean)
    np.testing.assert_allclose(display.std, std)
    assert (display.std_with_noise > display.std).all()
    assert set(display.active) <= set(X[rows, 0])
    assert ax.get_title() == "b"


def test_ticks_are_the_basis():
    """Of a model with a basis the ticks are its points, not all rows; without a basis there are none."""
    X = np.linspace(0, 6, 700)[:, None]
    model = SparseGPRegressor(n_active=7, optimizer=None, random_state=0).fit(X, np.sin(X[:, 0]))
    display = plots.PredictionDisplay.from_estimator(model, X)
    assert len(model.active_) == 7
    np.testing.assert_allclose(display.active, np.sort(X[model.active_, 0]))
    model = SparseGPRegressor(random_state=0).fit(X[::20], np.sin(X[::20, 0]))
    assert len(plots.PredictionDisplay.from_estimator(model, X).active) == 0


@pytest.mark.parametrize("noise", ["poisson", "gamma", "gaussian"])
def test_bands_end_where_targets_do(noise):
    """At zero for counts and positive targets, and for others where two deviations end."""
    X = np.linspace(0.0, 6.0, 20)[:, None]
    y = np.where(np.arange(20) % 5 == 0, 3.0, 0.0) + (noise == "gamma")
    model = SparseGPRegressor(noise=noise, optimizer=None).fit(X, y)
    display = plots.PredictionDisplay.from_estimator(model, X, y)
    assert (display.mean < 2 * display.std_with_noise).any()
    ends = [band.get_paths()[0].vertices[:, 1].min() for band in display.ax_.collections]
    least = display.mean - 2 * np.array([display.std_with_noise, display.std])
    expected = least if noise == "gaussian" else np.maximum(least, 0.0)
    np.testing.assert_allclose(ends, expected.min(axis=1), atol=1e-12)


def test_unknown_task(tasks_model):
    """A task that is not there is an error that names those that are."""
    model, X, *_ = tasks_model
    with pytest.raises(TaskError, match=r"'d' is not a task of this model. Its tasks: 'a', 'b', 'c'"):
        plots.PredictionDisplay.from_estimator(model, X, task="d")
    single = SparseGPRegressor(optimizer=None).fit(X[:5], X[:5, 0])
    with pytest.raises(TaskError, match="without tasks"):
        plots.PredictionDisplay.from_estimator(single, X, task="d")


def test_task_column():
    """Models that take tasks as a column of a frame or of an array are drawn alike."""
    pd = pytest.importorskip("pandas")
    X = np.linspace(0, 6, 30)[:, None]
    frame = pd.DataFrame({"school": ["a", "b"] * 15, "hours": X[:, 0]})
    y = np.sin(X[:, 0])
    by_name = SparseGPRegressor(task="school", optimizer=None).fit(frame, y)
    by_place = SparseGPRegressor(task=0, optimizer=None).fit(frame.to_numpy(dtype=object), y)
    one, two = (
        plots.PredictionDisplay.from_estimator(m, X, task="b", n_points=7) for m in (by_name, by_place)
    )
    np.testing.assert_allclose(one.mean, two.mean)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("task", ["patient", None], ids=["task column", "tasks given"])
def test_frames_with_categories(task):
    """Frames as they were fitted go into pictures: text and dates are held and named."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "sex": pd.Categorical(np.resize(["f", "m", "f"], 48)),
            "day": pd.date_range("2025-01-01", periods=48),
            "dose": rng.uniform(0, 5, 48),
            "age": rng.integers(20, 80, 48),
            "patient": np.resize(["ann", "bob"], 48),
        }
    )
    y = pd.Series(np.sin(frame["dose"]) + (frame["sex"] == "f"), name="level")
    given = {} if task else {"tasks": frame["patient"]}
    inputs = frame if task else frame.drop(columns="patient")
    model = SparseGPRegressor(task=task, optimizer=None, posterior="active", random_state=0)
    model.fit(inputs, y, **given)
    rows = frame["patient"] == "bob"
    display = plots.PredictionDisplay.from_estimator(
        model, inputs[rows], y[rows], task="bob", feature="dose", n_points=5
    )
    grid = frame[rows].iloc[:5].assign(dose=display.x, sex="f", age=frame["age"][rows].median())
    grid = grid.assign(day=frame["day"][rows].median())[list(inputs.columns)]
    expected = model.predict(grid, **({} if task else {"tasks": ["bob"] * 5}))
    np.testing.assert_allclose(display.mean, expected)
    assert set(display.active) <= set(frame["dose"][rows])
    at = display.ax_.get_xlabel()
    assert at.startswith("dose\nat sex = f, day = 2025-01-2")
    assert "00:00" not in at
    assert "patient" not in at
    assert plots.TaskSimilarityDisplay.from_estimator(model, inputs).matrix.shape == (2, 2)
    with pytest.raises(ValueError, match="input 'sex' is not a number"):
        plots.PredictionDisplay.from_estimator(model, inputs[rows], task="bob", feature="sex")
    labels = np.where(frame["dose"] > 2, "high", "low")
    model = SparseGPClassifier(task=task, optimizer=None, random_state=0).fit(inputs, labels, **given)
    display = plots.DecisionDisplay.from_estimator(
        model, inputs, labels, task="ann", features=("dose", "age"), n_points=4
    )
    assert display.proba.shape == (4, 4, 2)
    assert "sex = f" in display.ax_.get_xlabel()


def test_dates_and_the_rows_of_the_task():
    """Along a date the axis has dates; of a frame with all tasks the rows of the one shown are drawn."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": np.resize(["a", "b"], 60), "size": rng.uniform(0, 1, 60)})
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(60), unit="D")
    y = np.sin(np.arange(60) / 9.0) + 5.0 * (frame["shop"] == "b") + 0.05 * rng.normal(size=60)
    model = SparseGPRegressor(task="shop", random_state=0).fit(frame, y)
    display = plots.PredictionDisplay.from_estimator(model, frame, y, task="b", feature="day", margin=0.0)
    assert display.X.tolist() == frame["day"][frame["shop"] == "b"].to_numpy("M8[ns]").tolist()
    assert (display.y > 3.0).all()
    assert str(display.x[0].astype("M8[D]")) == "2024-01-02"
    mean = np.interp(display.X.astype(float), display.x.astype(float), display.mean)
    assert np.abs(mean - display.y).max() < 0.5
    assert (
        plots.PredictionDisplay.from_estimator(model, frame, y, task="a", feature="size").x.dtype.kind == "f"
    )
    with pytest.raises(ValueError, match="'day' is not a number"):
        values_of(frame[["day"]], 0, ["day"])


def test_budget_and_gain(tasks_model):
    """Counts add up to the budget; gains are in order of inclusion."""
    model, _, _, tasks = tasks_model
    display = plots.BudgetDisplay.from_estimator(model)
    expected = [(tasks[model.active_] == name).sum() for name in "abc"]
    assert display.counts.tolist() == expected
    gain = plots.ActiveGainDisplay.from_estimator(model)
    np.testing.assert_array_equal(gain.gains[0], model.active_gain_)
    many = plots.BudgetDisplay(np.arange(100), [str(i) for i in range(100)]).plot()
    assert sum(patch.get_height() for patch in many.ax_.patches) == 100


def test_similarity(tasks_model):
    """Equal tasks correlate near 1, opposite ones near -1, and are ordered by likeness."""
    model, X, *_ = tasks_model
    display = plots.TaskSimilarityDisplay.from_estimator(model, X)
    assert display.matrix[0, 1] > 0.95
    assert display.matrix[0, 2] < -0.95
    np.testing.assert_allclose(np.diag(display.matrix), 1.0)
    labels = [t.get_text() for t in display.ax_.get_xticklabels()]
    assert labels.index("c") in (0, 2)


def test_similarity_of_constant_predictions():
    """A task whose prediction is constant is like nothing but itself, without a warning."""
    X = np.linspace(0, 1, 8)[:, None]
    model = SparseGPRegressor(posterior="active", optimizer=None).fit(X, X[:, 0], tasks=["a"] * 8)
    model.add_task(None, None, task="prior")
    matrix = plots.TaskSimilarityDisplay.from_estimator(model, X).matrix
    np.testing.assert_allclose(matrix, np.eye(2))


def test_kernel_parameters(tasks_model):
    """Values are the exponentials of theta, under names that tell them apart."""
    model, *_ = tasks_model
    display = plots.KernelParametersDisplay.from_estimator(model)
    np.testing.assert_allclose(display.values[0], np.exp(model.kernel_.theta))
    assert len(set(display.names)) == len(display.names) == display.values.shape[1]


def test_kernel_parameters_of_a_frame():
    """Length scales have the names of the encoded columns."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": np.arange(12.0), "kind": ["a", "b", "c"] * 4})
    model = SparseGPRegressor(RBF(np.ones(4)), optimizer=None).fit(frame, np.arange(12.0))
    names = plots.KernelParametersDisplay.from_estimator(model).names
    assert names == [f"length scale of {f}" for f in ("x", "kind=a", "kind=b", "kind=c")]


def test_kernel_parameters_over_tasks(tasks_model):
    """A model with a kernel for each task shows all of them."""
    _, X, y, tasks = tasks_model
    model = HierarchicalGPRegressor(optimizer=None).fit(X, y, tasks=tasks)
    display = plots.KernelParametersDisplay.from_estimator(model)
    assert len(display.values) == 3
    np.testing.assert_allclose(display.values[1], np.exp(model.kernels_["b"].theta))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decision(n_classes):
    """The map holds the model's probabilities; unlabelled rows are shown as such."""
    X, y = make_moons(60, noise=0.2, random_state=0)
    if n_classes == 3:
        X, y = make_blobs(60, centers=3, random_state=0)
    model = SparseGPClassifier(n_active=10, posterior="local", optimizer=None, random_state=0)
    model.fit(X, y)
    shown = np.where(np.arange(60) < 5, -1, y)
    display = plots.DecisionDisplay.from_estimator(model, X, shown, n_points=9)
    grid = np.column_stack([display.xx.ravel(), display.yy.ravel()])
    np.testing.assert_allclose(display.proba.reshape(81, -1), model.predict_proba(grid))
    texts = [t.get_text() for t in display.ax_.get_legend().get_texts()]
    assert texts == [*map(str, range(n_classes)), "unlabelled"]  # without a basis there are no active points


def test_decision_of_one_task():
    """Of a frame with the task column, the rows of the other tasks are neither drawn nor in the range."""
    X, y = make_moons(60, noise=0.2, random_state=0)
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(site=np.tile(["a", "b"], 30))
    frame.loc[frame["site"] == "b", "u"] += 100.0
    model = SparseGPClassifier(task="site", optimizer=None, random_state=0).fit(frame, y)
    display = plots.DecisionDisplay.from_estimator(model, frame, y, task="a", n_points=5)
    np.testing.assert_array_equal(display.X, X[::2])
    np.testing.assert_array_equal(display.y, y[::2])
    assert display.xx.max() < 10.0


@pytest.mark.parametrize("noise", ["poisson", "gamma"])
def test_coverage_of_skewed_targets(noise):
    """Intervals are those of the noise: two standard deviations of a small count say nothing of it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (800, 1))
    mean = np.exp(np.sin(X[:, 0]) - 1.0)
    y = rng.poisson(mean) if noise == "poisson" else rng.gamma(0.7, mean / 0.7)
    y = np.where(np.arange(800) == 700, np.nan, y)
    model = SparseGPRegressor(noise=noise, random_state=0).fit(X[:300], y[:300])
    display = plots.CoverageDisplay.from_estimator(model, X[300:], y[300:])
    assert display.n_rows == 499
    assert np.abs(display.coverage - display.levels).max() < 0.08


def test_coverage_counts():
    """Coverage is the share of targets within the interval; NaN targets do not count."""
    y = np.array([0.0, 0.5, 3.0, np.nan])
    display = plots.CoverageDisplay.from_predictions(y, np.zeros(4), np.ones(4))
    assert display.n_rows == 3
    at = dict(zip(display.levels.round(2), display.coverage, strict=True))
    assert at[0.05] == pytest.approx(1 / 3)
    assert at[0.5] == pytest.approx(2 / 3)
    assert at[0.95] == pytest.approx(2 / 3)


def test_coverage_of_tasks():
    """A task that is noisier than predicted is seen among the others."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(list("abcd"), 200)
    y = rng.standard_normal(800) * np.where(tasks == "d", 4.0, 1.0)
    display = plots.CoverageDisplay.from_predictions(y, np.zeros(800), np.ones(800), tasks=tasks)
    at_90 = {task: shares[np.isclose(display.levels, 0.9)][0] for task, shares in display.by_task.items()}
    assert min(at_90[task] for task in "abc") > 0.8
    assert at_90["d"] < 0.5
    np.testing.assert_allclose(np.mean(list(display.by_task.values()), axis=0), display.coverage)
    assert "80 % of tasks" in [t.get_text() for t in display.ax_.get_legend().get_texts()]


def test_coverage_of_a_model(tasks_model):
    """Held-out targets of a well-specified model are covered as promised, within chance."""
    model, *_ = tasks_model
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 6, (300, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300)
    display = plots.CoverageDisplay.from_estimator(model, X, y, tasks=["a"] * 300)
    assert np.abs(display.coverage - display.levels).max() < 0.15


def test_calibration_bins():
    """Bins have equal numbers of rows and hold their mean probability and frequency."""
    display = plots.CalibrationDisplay.from_predictions(np.arange(40) >= 20, np.arange(40) / 40)
    np.testing.assert_array_equal(display.counts, [10, 10, 10, 10])
    np.testing.assert_array_equal(display.observed, [0, 0, 1, 1])
    np.testing.assert_allclose(display.predicted, [4.5 / 40, 14.5 / 40, 24.5 / 40, 34.5 / 40])


def test_calibration_of_a_classifier():
    """With two classes the second one counts; with more, every class of every row."""
    X, y = make_blobs(60, centers=3, random_state=0)
    for keep, n_rows in ((y < 2, (y < 2).sum()), (y < 3, 180)):
        model = SparseGPClassifier(optimizer=None, random_state=0).fit(X[keep], y[keep])
        display = plots.CalibrationDisplay.from_estimator(model, X[keep], y[keep])
        assert display.counts.sum() == n_rows


def test_latent_space_of_many_groups():
    """More groups than colours: the smallest are grey."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), np.arange(1, 13))
    display = plots.LatentSpaceDisplay(rng.standard_normal((78, 3)), groups, (2, 0)).plot()
    texts = [t.get_text() for t in display.ax_.get_legend().get_texts()]
    assert texts == ["4 others", *map(str, range(4, 12))]
    assert display.ax_.get_xlabel() == "latent dimension 3"


def test_nothing_to_draw():
    """A model without active points says so."""

    class Other(SparseGPRegressor):
        tasks_ = None

    with pytest.raises(TypeError, match="keeps no active points"):
        plots.BudgetDisplay.from_estimator(Other())


def test_shortened():
    """Long names keep both ends."""
    assert shortened("short") == "short"
    assert shortened("school number 12345", 12) == "school …2345"


def test_names_are_the_users():
    """Axes have the names of columns and target, and the values of inputs that are not shown are stated."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"dose": rng.uniform(0, 6, 30), "age": rng.uniform(20, 60, 30), "site": ["a", "b"] * 15}
    )
    y = pd.Series(np.sin(frame["dose"]), name="response")
    model = SparseGPRegressor(task="site", optimizer=None).fit(frame, y)
    X = frame[["dose", "age"]]
    ax = plots.PredictionDisplay.from_estimator(model, X, y, task="b", feature="age").ax_
    assert ax.get_xlabel() == f"age\nat dose = {X['dose'].median():.3g}"
    assert ax.get_ylabel() == "response"
    ax = plots.PredictionDisplay.from_estimator(model, X.to_numpy(), y.to_numpy(), task="b", target="z").ax_
    assert ax.get_xlabel().startswith("dose\n")
    assert ax.get_ylabel() == "z"
    with pytest.raises(ValueError, match=r"no input 'days'. Inputs: 'dose', 'age'"):
        plots.PredictionDisplay.from_estimator(model, X, y, task="b", feature="days")
    classifier = SparseGPClassifier(optimizer=None).fit(X.to_numpy(), y > 0)
    ax = plots.DecisionDisplay.from_estimator(classifier, X, y > 0, n_points=5, features=("age", "dose")).ax_
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "dose")


def test_parameters_have_readable_names(tasks_model):
    """No underscores or brackets; parts are told apart, also where tasks share a function."""
    _, X, y, tasks = tasks_model
    for coupling in ("kernel", "function"):
        model = SparseGPRegressor(coupling=coupling, n_active=20, n_rounds=1, optimizer=None, random_state=0)
        model.fit(X, y, tasks=tasks)
        names = plots.KernelParametersDisplay.from_estimator(model, feature_names=["dose", "age"]).names
        assert len(set(names)) == len(names)
        assert not any(set("_[]") & set(name) for name in names)
        assert any(name.startswith("variance of the rough part") for name in names)
    assert any(name.endswith("common to tasks") for name in names)


def test_legends_cover_no_data(tasks_model):
    """Legends are outside the axes."""
    model, X, y, tasks = tasks_model
    rows = tasks == "b"
    classifier = SparseGPClassifier(optimizer=None, random_state=0).fit(X, y > 0)
    for display in (
        plots.PredictionDisplay.from_estimator(model, X[rows], y[rows], task="b"),
        plots.CoverageDisplay.from_estimator(model, X, y, tasks=tasks),
        plots.CalibrationDisplay.from_estimator(classifier, X, y > 0),
        plots.DecisionDisplay.from_estimator(classifier, X, y > 0, n_points=5),
        plots.LatentSpaceDisplay(X, tasks).plot(),
    ):
        display.figure_.canvas.draw()
        legend, axes = display.ax_.get_legend().get_window_extent(), display.ax_.get_window_extent()
        assert not (legend.overlaps(axes.padded(-1)))
        assert display.figure_.bbox.padded(2).contains(*legend.max)


def test_displays_of_another_kind_of_model():
    """A Display for classes refuses a model of numbers, and names the one to use; so do all others."""
    X = np.linspace(0.0, 6.0, 24).reshape(12, 2)
    y, label = np.sin(X[:, 0]), X[:, 0] > 3.0
    numbers = SparseGPRegressor(optimizer=None).fit(X, y)
    classes = SparseGPClassifier(optimizer=None).fit(X, label)
    for draw, model, target, found in (
        (plots.DecisionDisplay, numbers, y, "is for classes, .* predicts numbers. Use PredictionDisplay"),
        (plots.CalibrationDisplay, numbers, y, "is for classes, .* predicts numbers. Use CoverageDisplay"),
        (plots.PredictionDisplay, classes, label, "is for numbers, .* predicts classes. Use DecisionDisplay"),
        (plots.CoverageDisplay, classes, label, "is for numbers, .* predicts classes. Use CalibrationDispl"),
    ):
        with pytest.raises(TypeError, match=found):
            draw.from_estimator(model, X, target)
    with pytest.raises(TypeError, match="SparseGPClassifier has no latent space"):
        plots.LatentSpaceDisplay.from_estimator(classes, X)


def test_displays_without_labels_or_options():
    """No legend where there is nothing to name; a model whose deviation always has the noise has coverage."""
    X = np.random.default_rng(0).normal(size=(24, 2))
    classes = SparseGPClassifier(optimizer=None).fit(X, X[:, 0] > 0.0)
    assert plots.DecisionDisplay.from_estimator(classes, X, n_points=5).ax_.get_legend() is None
    latent = SharedLatentGPRegressor(1, tol=0.1, random_state=0).fit(X, X[:, 0])
    mean, std = latent.predict(X, return_std=True)
    display = plots.CoverageDisplay.from_estimator(latent, X, X[:, 0])
    expected = plots.CoverageDisplay.from_predictions(X[:, 0], mean, std)
    np.testing.assert_array_equal(display.coverage, expected.coverage)
