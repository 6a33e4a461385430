"""Frames as people have them go straight into every estimator: text, booleans, dates and gaps."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_predict

from gleangp import (
    HierarchicalGPRegressor,
    SharedLatentGPClassifier,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
    TaskKFold,
    load,
    save,
)
from gleangp.data.tables import learn_columns
from gleangp.exceptions import InputError, InputWarning
from gleangp.models.priors import LogNormal
from tests.two_fits import assert_same_answers

N = 60
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "school": np.tile(["oak", "elm"], N // 2),
        "hours": RNG.uniform(0, 6, N),
        "kind": RNG.choice(["day", "night"], N),
        "tutor": RNG.choice([True, False], N),
        "since": pd.Timestamp("2024-01-31") + pd.to_timedelta(RNG.integers(0, 50, N), unit="D"),
    }
)
Y = np.sin(X["hours"].to_numpy()) + 2.0 * (X["kind"] == "day").to_numpy() + 0.02 * RNG.standard_normal(N)
X.loc[::7, "hours"] = np.nan
X.loc[3, "kind"] = None
FEATURES = ["hours", "hours=(missing)", "kind=day", "kind=night", "tutor", "since"]
NUMBERS = np.column_stack(
    [
        X["hours"].fillna(X["hours"].mean()),
        X["hours"].isna(),
        X["kind"] == "day",
        X["kind"] == "night",
        X["tutor"],
        (X["since"] - X["since"].min()).dt.days,
    ]
).astype(float)
GRADES = np.array(["low", "middle", "high"])[np.digitize(Y, [0.5, 1.5])]
FIXED = {"coupling": "kernel", "n_active": 15, "optimizer": None}  # columns do not depend on learning
MODELS = {
    "sparse": (SparseGPRegressor(**FIXED), Y),
    "classifier": (SparseGPClassifier(**FIXED), GRADES),
    "ordinal": (SparseGPOrdinal(categories=["low", "middle", "high"], **FIXED), GRADES),
    "hierarchical": (HierarchicalGPRegressor(optimizer=None), Y),
    "latent": (SharedLatentGPRegressor(1, hidden_units=3, max_iter=5), Y),
    "latent classifier": (SharedLatentGPClassifier(1, hidden_units=3, max_iter=5), GRADES),
}
every = pytest.mark.parametrize("name", list(MODELS))
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def assert_same(predicted, expected):
    """Classes are equal, and numbers but for the rounding of a mean."""
    if expected.dtype.kind == "f":
        assert_allclose(predicted, expected, rtol=1e-6)
    else:
        assert_array_equal(predicted, expected)


def fitted(name, frame=X):
    model, y = MODELS[name]
    return model.__class__(**{**model.get_params(), "task": "school", "random_state": 0}).fit(frame, y)


@quiet
@every
def test_a_frame_is_its_numbers(name, tmp_path):
    """A frame gives the model of its encoded columns, and the file keeps the encoding."""
    model, y = MODELS[name]
    tabular = fitted(name)
    plain = model.__class__(**{**model.get_params(), "random_state": 0}).fit(NUMBERS, y, tasks=X["school"])
    expected = plain.predict(NUMBERS[:9], tasks=X["school"][:9])
    predicted = tabular.predict(X[:9])
    assert_same(predicted, expected)
    assert tabular.n_features_in_ == 5
    assert tabular.feature_names_in_.tolist() == list(X)
    assert [n for c in tabular.columns_ for n in c.feature_names] == FEATURES
    assert [(c.name, c.kind, c.n_missing) for c in tabular.columns_] == [
        ("hours", "number", 9),
        ("kind", "category", 1),
        ("tutor", "boolean", 0),
        ("since", "date", 0),
    ]
    assert plain.columns_ is None
    save(tabular, tmp_path / "m.glean")
    for same in (load(tmp_path / "m.glean"), pickle.loads(pickle.dumps(tabular))):
        assert same.columns_ == tabular.columns_
        assert_array_equal(same.predict(X[:9]), predicted)
    tabular.set_params(task=None).fit(NUMBERS, y, tasks=X["school"])
    assert tabular.columns_ is None
    assert_array_equal(tabular.predict(NUMBERS[:9], tasks=X["school"][:9]), expected)


@quiet
@every
def test_new_rows_of_any_kind(name):
    """add_task, partial_fit and predict encode as fit did; what is new there is one warning."""
    model, y = fitted(name), MODELS[name][1]
    new = X[:9].assign(school="ash")
    model.add_task(new.drop(columns="school"), y[:9], "ash")
    model.add_task(new.assign(school="fir"), y[:9], "fir").add_task(None, None, "yew")
    assert_array_equal(model.predict(new), model.predict(new.assign(school="fir")))
    if hasattr(model, "partial_fit"):
        model.partial_fit(X[:9], y[:9])
    new = X[:3].assign(kind=["day", "dusk", "night"], tutor=[None, True, False], hours=[1.0, 2.0, 3.0])
    with pytest.warns(InputWarning, match=r"'kind' has the value 'dusk'.*'tutor' has 1 missing") as seen:
        predicted = model.predict(new)
    assert len(seen) == 1
    assert len(predicted) == 3
    with pytest.raises(InputError, match=r"'hours' has '<0.1' in row 1"):
        model.predict(new.assign(hours=[1.0, "<0.1", 2.0], tutor=True, kind="day"))


@quiet
@every
def test_polars_gives_the_same(name):
    """The same model from polars."""
    frame = pl.from_pandas(X)
    assert_same_answers(fitted(name, frame).predict(frame), fitted(name).predict(X))


@pytest.mark.slow
def test_categories_are_learnt_from():
    """The category and the gaps explain the target; cross-validation sees the frame."""
    model = SparseGPRegressor(task="school", random_state=0)
    rows = X["hours"].notna().to_numpy()
    assert model.fit(X, Y).score(X[rows], Y[rows]) > 0.95
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the one row without a kind
        answers = cross_val_predict(model, X, Y, cv=TaskKFold(3, task="school"))
    assert r2_score(Y[rows], answers[rows]) > 0.9
    mean, std = model.predict(X[:5], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_frames_of_numbers_are_as_arrays():
    """The same model, also with constants and huge integers."""
    numbers = np.column_stack([NUMBERS[:, 0], NUMBERS[:, 0] ** 2, np.full(N, 3.0), 2.0**70 * NUMBERS[:, 4]])
    frame = pd.DataFrame(numbers, columns=["x", "square", "c", "big"]).astype({"c": int})
    model = SparseGPRegressor(random_state=0).fit(frame, Y)
    plain = SparseGPRegressor(random_state=0).fit(numbers, Y)
    assert_same_answers(model.predict(frame), plain.predict(numbers))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        plain.predict(np.full((1, 4), np.nan))
    with pytest.warns(InputWarning, match="'c' has 1 missing values"):
        model.predict(frame[:1].assign(c=np.nan))


def test_lists_and_arrays_after_a_frame():
    """Without headings columns are taken by position, as scikit-learn does, and encoded."""
    inputs = X.drop(columns="school").fillna({"kind": "day"})
    model = SparseGPRegressor(random_state=0).fit(inputs, Y)
    rows = inputs[1:5]
    for given in (rows.to_numpy(), rows.to_numpy().tolist()):
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            assert_allclose(model.predict(given), model.predict(rows), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": [[1]] * N}, r"'kind' has a list in row 0"),
        ({"hours": [None] * N}, r"'hours' is empty"),
        ({"hours": ["<0.1"] + [1.0] * (N - 1)}, r"'hours' mixes types: row 0 has '<0.1'"),
        ({"kind": [f"pupil {i}" for i in range(N)]}, r"'kind' is text with 60 different values"),
    ],
    ids=["lists", "empty", "mixed", "names"],
)
def test_unusable_columns(change, message):
    """Named with the first bad cell; the estimator stays as it was."""
    model = SparseGPRegressor(task="school")
    with pytest.raises(InputError, match=message):
        model.fit(X.assign(**change), Y)
    assert not hasattr(model, "columns_")


def test_empty_frames_with_a_column_of_tasks():
    """They have no rows, which is said; a new task may have none."""
    model = SparseGPRegressor(task="school", **FIXED).fit(X, Y)
    for call in (model.predict, lambda rows: model.partial_fit(rows, []), lambda rows: model.fit(rows, [])):
        with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
            call(X[:0])
    assert model.add_task(X[:0], [], "ash").tasks_.tolist() == ["elm", "oak", "ash"]


@pytest.mark.parametrize("frame", [X[:0], X[[]]], ids=["rows", "columns"])
def test_empty_frames(frame):
    """scikit-learn's own message."""
    with pytest.raises(ValueError, match=r"0 (sample|feature)\(s\)"):
        SparseGPRegressor().fit(frame, Y[: len(frame)])


def test_columns_by_name():
    """Columns in another order are refused in predict, as everywhere, and found in add_task."""
    model = fitted("sparse")
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[::-1][list(X)[::-1]])
    one, other = X[:5].assign(school="ash"), X[:5].assign(school="fir")
    model.add_task(one, Y[:5], "ash").add_task(other[list(X)[::-1]], Y[:5], "fir")
    assert_array_equal(model.predict(one), model.predict(other))


def test_headings_that_are_there_twice():
    """Refused with their name."""
    twice = pd.DataFrame(NUMBERS[:, :3], columns=["x", "y", "x"])
    model = SparseGPRegressor(random_state=0)
    with pytest.raises(InputError, match=r"2 columns with the heading 'x'"):
        model.fit(twice, Y)
    with pytest.raises(InputError, match=r"2 columns with the heading 'x'"):
        model.fit(twice.set_axis(list("xyz"), axis=1), Y).predict(twice)


def test_damaged_file(tmp_path):
    """An encoding of other columns than the model has is refused."""
    model = fitted("sparse")
    model.columns_ = model.columns_[1:]
    save(model, tmp_path / "m.glean")
    with pytest.raises(ValueError, match="an encoding of 3 columns, not 4"):
        load(tmp_path / "m.glean")


def dated(kind, n=150, seed=0):
    """Rows of some years whose target repeats with the year, with the week, or not at all."""
    rng = np.random.default_rng(seed)
    days = np.sort(rng.choice(120 if kind == "week" else 4 * 365, n))
    waves = {"year": np.sin(2 * np.pi * days / 365.25), "week": 1.5 * (days % 7 > 4), "none": days / 1000.0}
    frame = pd.DataFrame({"day": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")})
    frame["x"] = rng.uniform(-1, 1, n)
    truth = waves[kind] + frame["x"].to_numpy()
    return frame, truth + 0.3 * rng.normal(size=n), truth


@pytest.mark.parametrize("kind", ["year", "week", "none"])
def test_dates_get_the_part_that_repeats(kind, tmp_path):
    """Sine and cosine of the year or week where the target repeats, and later dates are predicted by them."""
    frame, y, truth = dated(kind)
    model = SparseGPRegressor(random_state=0).fit(frame[:110], y[:110])
    assert model.columns_[0].periods == (() if kind == "none" else (kind,))
    error = np.sqrt(np.mean((model.predict(frame[110:]) - truth[110:]) ** 2))
    assert error < 0.3
    save(model, tmp_path / "m.glean")
    assert_allclose(load(tmp_path / "m.glean").predict(frame), model.predict(frame))


def test_dates_that_cannot_repeat_stay_days():
    """Less than two periods, few dates, constant targets."""
    frame, y, _ = dated("year")
    for rows, values in ((frame[:40], y[:40]), (frame[::15], y[::15]), (frame, np.zeros(150))):
        assert learn_columns(rows, values)[0].periods == ()
    assert learn_columns(frame)[0].periods == ()


@pytest.mark.parametrize("tasks", [None, "school"])
def test_a_category_has_one_length_scale(tasks):
    """The indicators of a category share it; every other feature has its own."""
    frame = X.drop(columns=[] if tasks else ["school"]).assign(soil=np.resize(["clay", "sand", "loam"], N))
    model = SparseGPRegressor(task=tasks, random_state=0).fit(frame, Y)
    names = [name for column in model.columns_ for name in column.feature_names]
    params = model.kernel_.get_params()
    lengths = [v for name, v in params.items() if name.endswith("length_scale") and np.size(v) == len(names)]
    assert len(lengths) == (2 if tasks else 1)  # of the common function, and of those of tasks
    for values in lengths:
        by_column = {}
        for name, value in zip(names, values, strict=True):
            by_column.setdefault(name if "missing" in name else name.split("=")[0], set()).add(value)
        assert all(len(same) == 1 for same in by_column.values())
        assert len(set().union(*by_column.values())) == len(by_column)


def test_a_prior_with_a_number_for_each_feature():
    """Length scales are then those of features, also of the indicators of a category."""
    frame = X[["hours", "kind"]].assign(soil=np.resize(["clay", "sand", "loam"], N)).dropna()
    prior = LogNormal(np.ones(6), 0.5)
    priors = {"k2__k2__length_scale": prior}
    model = SparseGPRegressor(priors=priors, random_state=0).fit(frame, Y[frame.index])
    lengths = model.kernel_.get_params()["k2__k2__length_scale"]
    assert len(set(lengths[3:])) > 1
