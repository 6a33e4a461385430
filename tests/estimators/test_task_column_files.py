"""TaskColumn around a pipeline: new tasks, new rows, and files, where all parts are known to be safe."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from gleangp import SharedLatentGPRegressor, SparseGPClassifier, SparseGPRegressor, TaskColumn, load, save
from gleangp.exceptions import InputError, ModelFileError, TaskError
from gleangp.io.files import content_hash
from tests.two_fits import assert_same_answers

N = 40
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "who": np.tile(["ann", "bob"], N // 2),
        "x": RNG.normal(size=N),
        "kind": RNG.choice(["u", "v", "w"], N),
        "size": RNG.choice(["s", "m", "l"], N),
        "z": RNG.uniform(5, 9, N),
    }
)
Y = np.sin(X["x"].to_numpy()) + (X["kind"] == "u").to_numpy()
X.loc[::6, "x"] = np.nan
NUMBERS = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
COLUMNS = make_column_transformer(
    (NUMBERS, ["x"]),
    (OneHotEncoder(handle_unknown="ignore", min_frequency=2, sparse_output=False), ["kind"]),
    (
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.float32),
        slice("size", "size"),
    ),
    remainder="passthrough",
)
FIXED = {"coupling": "kernel", "optimizer": None, "random_state": 0}  # files do not depend on learning
GP = SparseGPRegressor(n_active=12, **FIXED)


def piped(*steps, last=GP):
    return TaskColumn(make_pipeline(*map(clone, steps), clone(last)), task="who")


MODELS = {
    "columns": piped(COLUMNS, MinMaxScaler()),
    "pandas between": piped(clone(COLUMNS).set_output(transform="pandas")),
    "a frame": TaskColumn(clone(GP), task="who"),
    "one step": piped(),
    "passed": TaskColumn(make_pipeline("passthrough", clone(GP)), task="who"),
    "classifier": piped(COLUMNS, last=SparseGPClassifier(n_active=10, **FIXED)),
}


def target(model):
    return np.where(Y > 0.5, "up", "down") if sklearn.base.is_classifier(model) else Y


@pytest.mark.parametrize("name", list(MODELS))
def test_saved_and_loaded(name, tmp_path):
    """The loaded model predicts the same, goes on learning, and can be fitted again."""
    model = clone(MODELS[name]).fit(X, target(MODELS[name]))
    save(model, tmp_path / "m.glean")
    same = load(tmp_path / "m.glean")
    assert_array_equal(same.predict(X), model.predict(X))
    if "columns" in name:
        assert str(same.estimator) == str(model.estimator)
    few = X[:8].assign(who="cid")
    for m in (model, same):
        m.add_task(few, target(m)[:8], "cid")
    assert_array_equal(same.predict(few), model.predict(few))
    assert_same_answers(same.fit(X, target(same)).predict(X), clone(model).fit(X, target(model)).predict(X))


@pytest.mark.parametrize("name", ["columns", "a frame", "one step", "passed"])
def test_new_tasks_and_rows(name):
    """What the last step learns is what it would from the transformed rows; earlier steps stay."""
    model = clone(MODELS[name]).fit(X, Y)
    inputs = X.drop(columns="who")
    inner = model.estimator_
    last = inner if name == "a frame" else inner[-1]
    Z = inner[:-1].transform(inputs) if name == "columns" else inputs
    expected = clone(GP).fit(Z, Y, tasks=X["who"]).add_task(Z[:9], Y[:9], "cid").add_task(None, None, "dan")
    expected.partial_fit(Z[20:], Y[20:] + 1.0, tasks=X["who"][20:])
    assert model.add_task(X[:9].assign(who="cid"), Y[:9], "cid") is model
    model.add_task(None, None, "dan").add_task(inputs[:9], Y[:9], "eve")  # without the task column
    assert model.partial_fit(X[20:], Y[20:] + 1.0) is model
    assert last.tasks_.tolist() == ["ann", "bob", "cid", "dan", "eve"]
    for task in expected.tasks_:
        assert_same_answers(model.predict(X.assign(who=task)), expected.predict(Z, tasks=[task] * N))
    assert_array_equal(model.predict(X.assign(who="eve")), model.predict(X.assign(who="cid")))


def test_first_partial_fit_is_fit():
    """On a new estimator."""
    model = clone(MODELS["columns"])
    assert_same_answers(clone(model).partial_fit(X, Y).predict(X), model.fit(X, Y).predict(X))


def test_new_rows_that_cannot_be():
    """Rows of another task, a column less, a heading twice; a last step without the method."""
    model = clone(MODELS["columns"]).fit(X, Y)
    with pytest.raises(TaskError, match="task='cid', but the task column of its rows has 'ann'"):
        model.add_task(X[:4], Y[:4], "cid")
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(X.drop(columns="x"), Y)
    with pytest.raises(InputError, match="2 columns with the heading 'x'"):
        model.predict(X.rename(columns={"z": "x"}))
    assert not hasattr(TaskColumn(SharedLatentGPRegressor(), task="who"), "partial_fit")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            PCA(2),
            r"\['steps'\]\[0\]\[1\], a sklearn\.decomposition\._pca\.PCA: model files hold.*StandardScaler",
        ),
        (FunctionTransformer(np.tanh), r"func.*a numpy\.ufunc"),
        (make_column_transformer((PCA(1), ["x"])), r"a sklearn\.decomposition\._pca\.PCA"),
        (make_column_transformer((StandardScaler(), make_column_selector("x"))), r"make_column_selector"),
    ],
    ids=["other", "function", "inside", "selector"],
)
def test_unknown_parts(step, message, tmp_path):
    """They are named, and nothing is written."""
    model = TaskColumn(make_pipeline(step, clone(GP)), task="who")
    with pytest.raises(ModelFileError, match=message):
        save(model, tmp_path / "m.glean")
    assert list(tmp_path.iterdir()) == []


def changed(path, change):
    """Write the file again with another manifest."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(parts["model.json"])
    change(manifest)
    manifest["sha256"] = content_hash(manifest, list(parts.values())[1:])
    parts["model.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)


def state_of(manifest, name):
    return next(o["state"] for o in manifest["objects"] if o["class"] == name)


def with_cache(manifest):
    state_of(manifest, "Pipeline")["parameters"]["dict"].append(["memory", "cache"])


def without_estimator(manifest):
    state_of(manifest, "TaskColumn")["fitted"]["dict"].append(["estimator_", 3])


def with_type(tag):
    def change(manifest):
        state_of(manifest, "StandardScaler")["fitted"]["dict"].append(["mean_", tag])

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_cache, r"Pipeline has memory='cache'"),
        (with_type({"type": "V1000000000"}), r"has the type 'V1000000000'"),
        (with_type({"type": "O"}), r"has the type 'O'"),
        (with_type({"dtype": "f8,f8"}), r"has the type 'f8,f8'"),
        (with_type({"slice": [1]}), r"tag 'slice', or not what it needs"),
        (without_estimator, r"a TaskColumn of a int"),
    ],
    ids=["cache", "void", "object", "structure", "slice", "estimator"],
)
def test_hostile_files(change, message, tmp_path):
    """Parts that no save writes are refused."""
    save(piped(StandardScaler()).fit(X[["who", "z"]], Y), tmp_path / "m.glean")
    changed(tmp_path / "m.glean", change)
    with pytest.raises(ModelFileError, match=message):
        load(tmp_path / "m.glean")


def test_caches_are_not_saved(tmp_path):
    """A pipeline with a cache is refused."""
    model = TaskColumn(make_pipeline(StandardScaler(), GP, memory=str(tmp_path)), task="who")
    with pytest.raises(ModelFileError, match="Pipeline has memory="):
        save(model, tmp_path / "m.glean")


def test_another_scikit_learn(tmp_path):
    """Its transformers may differ, so there is a warning; files without them are silent."""
    save(piped(StandardScaler()).fit(X[["who", "z"]], Y), tmp_path / "m.glean")
    changed(tmp_path / "m.glean", lambda manifest: manifest.update(sklearn="0.24.1"))
    with pytest.warns(UserWarning, match=r"scikit-learn 0\.24\.1, .* Its Pipeline, StandardScaler may"):
        load(tmp_path / "m.glean")
    save(clone(GP).fit(X[["z"]], Y), tmp_path / "m.glean")
    changed(tmp_path / "m.glean", lambda manifest: manifest.update(sklearn="0.24.1"))
    load(tmp_path / "m.glean")


def test_a_pipeline_alone(tmp_path):
    """Pipelines of these parts can be saved without a TaskColumn, too."""
    model = make_pipeline(StandardScaler(), clone(GP)).fit(X[["z"]], Y)
    save(model, tmp_path / "m.glean")
    assert_array_equal(load(tmp_path / "m.glean").predict(X[["z"]]), model.predict(X[["z"]]))
