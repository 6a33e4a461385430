"""Model files: what is loaded is what was saved; anything damaged is a ModelFileError."""

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pytest
from packaging.version import Version
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process import kernels as sk

import gleangp
from gleangp import (
    ArcSine,
    ResidualSelector,
    ScaledInputs,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
    TaskColumn,
    load,
    rotations,
    save,
    translations,
)
from gleangp.exceptions import ModelFileError
from gleangp.io import classes, replacing
from gleangp.io.files import content_hash
from gleangp.models.priors import Gamma, LogNormal
from gleangp.noise import Gaussian
from tests.processes import python

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def data():
    """Three tasks of two inputs: inputs, numbers, three classes, task names."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (45, 2))
    tasks = np.repeat(["a", "b", "ü <script>"], 15)
    y = np.sin(X[:, 0]) + (tasks == "b")
    return X, y, np.where(y < 0, "low", np.where(y < 0.8, "mid", "high")), tasks


@pytest.fixture(scope="module")
def regressor(data):
    """A regressor of three tasks with a fixed kernel: its file has each kind of part once or twice."""
    X, y, _, tasks = data
    kernel = sk.ConstantKernel() * sk.RBF()
    model = SparseGPRegressor(kernel, coupling="function", n_active=0.3, optimizer=None, random_state=0)
    return model.fit(X, y, tasks=tasks)


@pytest.fixture(scope="module")
def averaged(data):
    """One that averages over draws of what it learnt, which are all in its file."""
    X, y, _, tasks = data
    return SparseGPRegressor(n_active=0.3, random_state=0).fit(X, y, tasks=tasks)


def save_bytes(model, tmp_path):
    """The file as bytes."""
    save(model, tmp_path / "model.glean")
    return (tmp_path / "model.glean").read_bytes()


def load_bytes(data):
    """The model of a file in memory."""
    return load(io.BytesIO(data))


def rewritten(data, change, *, hashed=True):
    """The file with its manifest changed and everything else, checksums and hash included, right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        members = {name: old.read(name) for name in old.namelist()}
        manifest = json.loads(members.pop("model.json"))
        changed = change(manifest)
        if hashed:
            manifest["sha256"] = content_hash(manifest, list(members.values()))
        new.writestr("model.json", json.dumps(changed if isinstance(changed, list) else manifest))
        for name, content in members.items():
            new.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["regressor", "averaged"])
def test_regressor_round_trip(kind, request, data, tmp_path):
    """Predictions, deviations and attributes are equal to the last bit; learning goes on."""
    X, y, _, tasks = data
    regressor = request.getfixturevalue(kind)
    loaded = load_bytes(save_bytes(regressor, tmp_path))
    for a, b in zip(
        loaded.predict(X, tasks=tasks, return_std=True),
        regressor.predict(X, tasks=tasks, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert set(vars(loaded)) == set(vars(regressor))
    assert loaded.kernel_ == regressor.kernel_
    assert loaded.noise_ == regressor.noise_
    np.testing.assert_array_equal(loaded.active_, regressor.active_)
    loaded.add_task(X[:5], y[:5], task="new")
    loaded.partial_fit(X[5:9], y[5:9], tasks=["new"] * 4)
    assert np.isfinite(loaded.predict(X[:2], tasks=["new", "a"])).all()
    assert repr(clone(loaded)) == repr(regressor)


@pytest.mark.parametrize("classes_kept", [["low", "mid"], ["low", "mid", "high"]], ids=["two", "three"])
@pytest.mark.parametrize("posterior", ["active", "local"])
def test_classifier_round_trip(data, tmp_path, classes_kept, posterior):
    """Probabilities are equal to the last bit, for two classes and for three."""
    X, _, y, tasks = data
    keep = np.isin(y, classes_kept)
    model = SparseGPClassifier(n_active=10, posterior=posterior, n_rounds=1, optimizer=None, random_state=0)
    model.fit(X[keep], y[keep], tasks=tasks[keep])
    loaded = load_bytes(save_bytes(model, tmp_path))
    np.testing.assert_array_equal(loaded.predict_proba(X, tasks=tasks), model.predict_proba(X, tasks=tasks))
    np.testing.assert_array_equal(loaded.predict(X, tasks=tasks), model.predict(X, tasks=tasks))


def test_frames_and_task_columns(data, tmp_path):
    """Feature names, object arrays of task names and the wrapped estimator of TaskColumn survive."""
    pd = pytest.importorskip("pandas")
    X, y, _, tasks = data
    frame = pd.DataFrame(X, columns=["east", "north"]).assign(school=tasks)
    for model in (
        SparseGPRegressor(task="school", optimizer=None),
        TaskColumn(SparseGPRegressor(optimizer=None), task="school"),
    ):
        model.fit(frame, y)
        loaded = load_bytes(save_bytes(model, tmp_path))
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        assert list(loaded.feature_names_in_) == ["east", "north", "school"]


KERNELS = [
    sk.ConstantKernel(2.0, "fixed") * sk.RBF([1.0, 2.0], (1e-2, 1e2)) + sk.WhiteKernel(0.1),
    sk.Matern(0.7, nu=np.inf) ** 2,
    sk.RationalQuadratic() + sk.ExpSineSquared(1.2, 3.4) * sk.DotProduct(0.3),
    sk.PairwiseKernel(metric="laplacian", gamma=0.4),
    sk.CompoundKernel([sk.RBF(1.0), sk.RBF(2.0)]),
    ScaledInputs(ArcSine() + 0.1 * sk.DotProduct(), scales=[1.0, 0.5], scales_bounds="fixed"),
    ScaledInputs(sk.DotProduct(), scales=[1.0, 0.5], center=[3.0, -1.0]),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_kernels(kernel, tmp_path):
    """Every kernel comes back equal, bounds and fixed parameters included."""
    model = SparseGPRegressor(kernel, priors={"k": LogNormal(np.array([1.0, 2.0])), "l": Gamma(2.0)})
    loaded = load_bytes(save_bytes(model, tmp_path))
    assert loaded.kernel == kernel
    for a, b in zip(loaded.kernel.hyperparameters, kernel.hyperparameters, strict=True):
        assert a.fixed == b.fixed
        assert np.array_equal(a.bounds, b.bounds)
    assert loaded.priors["l"] == Gamma(2.0)
    np.testing.assert_array_equal(loaded.priors["k"].median, [1.0, 2.0])


def test_names_in_files():
    """A file names classes that were registered, each under one name."""
    for cls, name in classes._NAMES.items():
        assert classes.find_class(name) is cls
    with pytest.raises(ValueError, match="two classes for model files have the name 'Probit'"):
        classes.register(Probit=Gamma)


LOADER = """
import sys
for path in sys.argv[1:]:
    for name in [name for name in sys.modules if name.split(".")[0] == "gleangp"]:
        del sys.modules[name]
    from gleangp import load
    load(path)
"""


def test_loading_needs_no_other_import():
    """The classes of a file are found where nothing of gleangp was imported but `load`."""
    names = ("table_v1", "latent_regressor_v1", "hierarchical_v1", "ordinal_v1")
    python("-W", "ignore", "-c", LOADER, *(GOLDEN / f"{name}.glean" for name in names))


def test_every_public_estimator_is_listed():
    """An estimator that is public can be saved."""
    for name in gleangp.__all__:
        value = getattr(gleangp, name)
        if isinstance(value, type) and issubclass(value, BaseEstimator | sk.Kernel):
            assert classes.find_class(name) is value
    for name in ("save", "__version__", "exceptions", "print"):
        with pytest.raises(ModelFileError, match="not a part of a model"):
            classes.find_class(name)


def test_parameters_of_all_kinds(tmp_path):
    """Plain values keep their type: NumPy scalars, infinities, tuples, dicts, objects."""
    priors = {"a": (1, 2.5, None), "b": [float("inf"), float("-inf")], 3: np.int32(4), "s": np.bool_(True)}
    priors |= {None: 1, 1.5: 2, np.float64(2.5): 3, np.int64(-7): 4, 2**63 - 1: 5, np.str_("t"): 6}
    model = SparseGPRegressor(priors=priors, selector=ResidualSelector("variance"), n_active=np.int64(3))
    loaded = load_bytes(save_bytes(model, tmp_path))
    assert loaded.priors == priors
    assert type(loaded.priors[3]) is np.int32
    assert type(loaded.n_active) is np.int64
    assert loaded.selector.weight == "variance"


def test_invariances(tmp_path):
    """Those of images are in the file with their arguments, and more is learnt with them after loading."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 6)), np.tile(["a", "b"], 12)
    moves = [*translations((3, 2), order="F", fill="edge"), *rotations((3, 2), 5, fill=np.float64(0.5))]
    model = SparseGPClassifier(sk.RBF(), invariances=moves, n_active=8, optimizer=None, random_state=0)
    model.fit(X, y)
    loaded = load_bytes(save_bytes(model, tmp_path))
    assert loaded.invariances == moves
    assert repr(loaded.fit(X, y).active_virtual_) == repr(model.active_virtual_)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    wrong = rewritten(save_bytes(model, tmp_path), _with_infinite_degrees)
    with pytest.raises(ModelFileError, match="finite angles"):
        load_bytes(wrong)


def _with_infinite_degrees(manifest):
    for part in manifest["objects"]:
        if part["class"] == "Rotation":
            part["state"]["degrees"] = {"float": "inf"}


def test_equal_models_give_equal_files(regressor, tmp_path):
    """The same bytes, today and tomorrow; an existing file is replaced."""
    assert save_bytes(regressor, tmp_path) == save_bytes(pickle.loads(pickle.dumps(regressor)), tmp_path)


def test_what_cannot_be_saved(tmp_path):
    """Code and foreign objects are refused with their place in the model, and no file is left."""
    path = tmp_path / "model.glean"

    class Mine(sk.RBF):
        pass

    for model, message in (
        (SparseGPRegressor(Mine()), r"cannot save SparseGPRegressor\.parameters\['kernel'\], a .*Mine"),
        (SparseGPRegressor(random_state=np.random.default_rng(0)), r"Set an int or None"),
        (SparseGPRegressor(priors={"a": print}), r"and no code"),
        (SparseGPClassifier(invariances=[np.negative]), r"parameters\['invariances'\]\[0\], .*and no code"),
        (sk.RBF, r"not an estimator of gleangp"),
        ("text", r"not an estimator of gleangp"),
    ):
        with pytest.raises(ModelFileError, match=message):
            save(model, path)
        assert list(tmp_path.iterdir()) == []


def test_missing_folder(regressor, tmp_path):
    """A folder that is not there is said so, as is a file."""
    with pytest.raises(FileNotFoundError, match=r"is not a folder"):
        save(regressor, tmp_path / "no" / "model.glean")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "no.glean")


def test_writing_is_all_or_nothing(tmp_path):
    """An error while writing leaves the old file and no other; permissions stay."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half" * (1 // 0))
    assert path.read_text() == "old"
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed(regressor, tmp_path):
    """The target of a symbolic link gets the new model and the link stays, also where the target is new."""
    (tmp_path / "models").mkdir()
    link, target = tmp_path / "latest.glean", tmp_path / "models" / "first.glean"
    link.symlink_to(Path("models") / "first.glean")
    for _ in range(2):
        target.unlink(missing_ok=True)
        save(regressor, link)
        assert link.is_symlink()
        assert target.is_file()
        assert not target.is_symlink()
    target.write_text("old")
    save(regressor, link)
    assert load(target).kernel_ == regressor.kernel_
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["first.glean", "latest.glean", "models"]


def test_only_regular_files_are_replaced(regressor, tmp_path):
    """A folder, a pipe and a link to itself stay what they are."""
    folder, pipe, loop = tmp_path / "folder", tmp_path / "pipe", tmp_path / "loop"
    folder.mkdir()
    loop.symlink_to(loop)
    paths = [folder, loop]
    if hasattr(os, "mkfifo"):
        os.mkfifo(pipe)
        link = tmp_path / "link"
        link.symlink_to(pipe)
        paths += [pipe, link]
    for path in paths:
        before = os.lstat(path).st_mode
        with pytest.raises(OSError, match=r"cannot write .* regular file"):
            save(regressor, path)
        assert os.lstat(path).st_mode == before
    assert len(list(tmp_path.iterdir())) == len(paths)


WRITER = """
import signal, sys, time
# As in a terminal, also where the tests run under nohup or in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.path.insert(0, sys.argv[1])
from gleangp.io import replacing
with replacing(sys.argv[2]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    for _ in range(600):  # a signal just before a sleep waits for its end
        time.sleep(0.1)
"""


def start_writer(path):
    """A process that is in the middle of writing a file."""
    source = str(Path(gleangp.__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", WRITER, source, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    return process


def end_writer(process, number):
    """End it by a signal, and see that the signal did it."""
    process.send_signal(number)
    assert process.wait(30) == -number
    process.stdout.close()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    "name", ["SIGTERM", *(pytest.param(n, marks=pytest.mark.slow) for n in ("SIGHUP", "SIGINT"))]
)
def test_signals_leave_nothing_behind(tmp_path, name):
    """A process that is ended while it writes leaves the old file alone."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    end_writer(start_writer(path), getattr(signal, name))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="locks of POSIX")
def test_stale_files_are_removed(tmp_path):
    """The next writer removes what a killed one left, and nothing of a living one or of other files."""
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    mine = tmp_path / ".a.txt.12345678"
    mine.write_text("mine")
    living, killed, elsewhere = start_writer(path), start_writer(path), start_writer(other)
    for process in (killed, elsewhere):
        end_writer(process, signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 4
    with replacing(path) as temporary:
        temporary.write_text("new")
        with replacing(path) as inner:  # of this process, and at work: both stay
            inner.write_text("newer")
        assert path.read_text() == "newer"
    assert path.read_text() == "new"
    left = sorted(p.name for p in tmp_path.iterdir() if p not in (path, mine))
    assert [name[:7] for name in left] == [".a.txt.", ".b.txt."]
    end_writer(living, signal.SIGTERM)
    with replacing(other) as temporary:
        temporary.write_text("b")
    assert sorted(tmp_path.iterdir()) == sorted([mine, path, other])


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_handlers_of_the_program_stay(tmp_path):
    """A handler that does not end the process does not end the writing; ours is gone afterwards."""
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with replacing(tmp_path / "a.txt") as temporary:
            temporary.write_text("whole")
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
    assert (tmp_path / "a.txt").read_text() == "whole"
    with replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("again")
    assert signal.getsignal(signal.SIGTERM) is before


CHANGES = {
    "newer format": (lambda m: m.update(format_version=3), r"version 3.*Install a newer gleangp"),
    "no version": (lambda m: m.pop("format_version"), r"version None"),
    "other format": (lambda m: m.update(format="x"), r"not a gleangp model"),
    "list": (lambda m: [m], r"not a gleangp model"),
    "no objects": (lambda m: m.__delitem__("objects"), r"not a list"),
    "class of Python": (lambda m: m["objects"][0].update({"class": "Popen"}), r"'Popen', which is not"),
    "dotted class": (lambda m: m["objects"][0].update({"class": "os.system"}), r"'os.system'"),
    "number too large": (lambda m: m.update(model={"object": 999}), r"part 999"),
    "boolean number": (lambda m: m.update(model={"object": True}), r"part True"),
    "negative number": (lambda m: m.update(model={"array": -1}), r"part -1"),
    "not an estimator": (lambda m: m.update(model=3), r"holds a int"),
    "two tags": (lambda m: m.update(model={"tuple": [], "dict": []}), r"tags \['dict', 'tuple'\]"),
    "unknown tag": (lambda m: m.update(model={"eval": "1"}), r"unknown tag 'eval'"),
    "odd float": (lambda m: m.update(model={"float": "1e5"}), r"'1e5'"),
    "odd scalar": (lambda m: m.update(model={"scalar": ["O", 1]}), r"type 'O'"),
    "huge scalar": (lambda m: m.update(model={"scalar": ["<U99999999", "a"]}), r"type '<U99999999'"),
    "short objects": (lambda m: m.update(model={"objects": [[10**9], [1]]}), r"shape \[1000000000\]"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_manifest(name, regressor, tmp_path):
    """A manifest that says something else is refused with the reason."""
    change, message = CHANGES[name]
    data = rewritten(save_bytes(regressor, tmp_path), change)
    with pytest.raises(ModelFileError, match=message):
        load_bytes(data)


def test_an_edit_is_told_from_a_save(regressor, tmp_path):
    """Any change without the hash made right is refused; files of version 1 need none."""
    data = save_bytes(regressor, tmp_path)

    def edit(manifest):
        manifest["gleangp"] = "0.0"

    assert load_bytes(rewritten(data, edit)).kernel_ == regressor.kernel_
    for change in (edit, lambda m: m.pop("sha256"), lambda m: m.update(sha256=None)):
        with pytest.raises(ModelFileError, match="not what was saved"):
            load_bytes(rewritten(data, change, hashed=False))

    def older(manifest):
        del manifest["sha256"]
        manifest["format_version"] = 1

    assert load_bytes(rewritten(data, older, hashed=False)).kernel_ == regressor.kernel_


@pytest.mark.parametrize("kind", ["regressor", "latent"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_numbers_that_are_none(kind, regressor, data, tmp_path):
    """NaN in any array of the state is refused, but for arrays that say how learning went."""
    X, y, _, tasks = data
    if kind == "latent":
        model = SharedLatentGPRegressor(1, hidden_units=3, max_iter=5, random_state=0).fit(X, y, tasks)
    else:
        model = regressor
    old = zipfile.ZipFile(io.BytesIO(save_bytes(model, tmp_path)))
    names = old.namelist()[1:]
    n_refused = n_tried = 0
    for name in names:
        array = np.load(io.BytesIO(old.read(name)))
        if array.dtype.kind != "f" or array.size == 0:
            continue
        array.flat[-1] = np.nan
        buffer = io.BytesIO()
        np.save(buffer, array)
        members = {**{n: old.read(n) for n in names}, name: buffer.getvalue()}
        manifest = json.loads(old.read("model.json"))
        manifest["sha256"] = content_hash(manifest, list(members.values()))
        n_tried += 1
        try:
            again = load_bytes(zip_of([("model.json", json.dumps(manifest)), *members.items()]))
        except ModelFileError:
            n_refused += 1
        else:
            assert np.isfinite(again.predict(X, tasks=tasks, return_std=True)).all()
    assert n_refused > 0.7 * n_tried


def test_deep_nesting(regressor, tmp_path):
    """Neither JSON nor the tree can exhaust the stack."""
    data = save_bytes(regressor, tmp_path)
    for depth in (100, 2000, 100_000):
        nested = b"[" * depth + b"]" * depth
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            for info in old.infolist():
                content = old.read(info)
                if info.filename == "model.json":
                    content = content.replace(b'"model":', b'"model":' + nested + b',"was":')
                    content = content.replace(b'"format_version":2', b'"format_version":1')
                    content = content.replace(b'"sha256":', b'"hash":')  # which version 1 does not have
                new.writestr(info.filename, content)
        with pytest.raises(ModelFileError, match=r"nested deeper|recursion|lists and objects"):
            load_bytes(out.getvalue())


def with_kernel(data, kernels):
    """The file of a regressor with a kernel of the file replaced by the last of these."""

    def change(manifest):
        objects = manifest["objects"]
        manifest["objects"] = kernels + [objects[-1]]
        pairs = objects[-1]["state"]["parameters"]["dict"]
        next(pair for pair in pairs if pair[0] == "kernel")[1] = {"object": len(kernels) - 1}
        manifest["model"] = {"object": len(kernels)}

    return rewritten(data, change)


def sums(pairs):
    """An RBF kernel, then for each pair the sum of two earlier kernels."""
    rbf = {"class": "RBF", "state": {"length_scale": 1.0, "length_scale_bounds": "fixed"}}
    return [rbf] + [{"class": "Sum", "state": {"k1": {"object": i}, "k2": {"object": j}}} for i, j in pairs]


def test_shared_objects_cannot_explode(tmp_path):
    """Sums of a kernel with itself, and chains of references, are refused where they are too large."""
    data = save_bytes(SparseGPRegressor(sk.RBF()), tmp_path)
    small = load_bytes(with_kernel(data, sums([(i, i) for i in range(8)])))
    assert len(repr(small.kernel).split("+")) == 2**8
    for pairs, message in (
        ([(i, i) for i in range(40)], r"consists of \d+ objects in \d+ levels"),
        ([(i, 0) for i in range(1500)], r"in 201 levels; at most \d+ in 200"),
    ):
        with pytest.raises(ModelFileError, match=message):
            load_bytes(with_kernel(data, sums(pairs)))
    kernel = sk.RBF()
    for _ in range(40):
        kernel = sk.Sum(kernel, kernel)
    with pytest.raises(ModelFileError, match="consists of"):
        save(SparseGPRegressor(kernel), tmp_path / "new.glean")
    assert [p.name for p in tmp_path.iterdir()] == ["model.glean"]


def test_long_sums(tmp_path):
    """A hundred and fifty different kernels are no attack."""
    kernel = sum((sk.RBF(i + 1.0) for i in range(150)), start=sk.WhiteKernel())
    assert load_bytes(save_bytes(SparseGPRegressor(kernel), tmp_path)).kernel == kernel


@pytest.mark.parametrize(
    "key",
    [2**63, -(2**63), {"tuple": [1]}, {"objects": [[0], []]}, [1]],
    ids=repr,
)
def test_keys(key, regressor, tmp_path):
    """Keys whose hashes can be made equal are refused, as is what cannot be hashed."""
    data = save_bytes(regressor, tmp_path)
    pairs = [[key, None]]
    with pytest.raises(ModelFileError, match=r"a key in it is a"):
        load_bytes(rewritten(data, lambda m: m.update(model={"dict": pairs})))


def test_keys_that_collide_take_no_time(regressor, tmp_path):
    """A megabyte of integers of one hash is refused at once."""
    pairs = [[i * (2**61 - 1), 0] for i in range(1, 40_000)]
    data = rewritten(save_bytes(regressor, tmp_path), lambda m: m.update(model={"dict": pairs}))
    start = time.perf_counter()
    with pytest.raises(ModelFileError, match=r"a key in it is a|lists and objects"):
        load_bytes(data)
    assert time.perf_counter() - start < 5


def test_keys_that_cannot_be_saved(tmp_path):
    """What could not be loaded is not saved."""
    for key in ((1, 2), 2**63, b"x"):
        with pytest.raises(ModelFileError, match="is not None, text or a number"):
            save(SparseGPRegressor(priors={"a": {key: 1}}), tmp_path / "m.glean")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", [b"{}", b"[]", b'{"":0}', b'"\\"",{}'], ids=bytes.decode)
def test_memory_of_many_small_parts(part):
    """Very many small objects are refused before they are built; what is in quotes is not counted."""
    text = b"[" + b",".join([part] * 300_000) + b"]"
    data = zip_of([("model.json", text)])
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="lists and objects"):
        load_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(data)
    with pytest.raises(ModelFileError, match="not a gleangp model"):
        load_bytes(zip_of([("model.json", json.dumps(text.decode() * 2).encode())]))


def test_quotes_are_counted_in_linear_time():
    """Text without an end, full of escaped quotes, is scanned once."""
    start = time.perf_counter()
    with pytest.raises(ModelFileError):
        load_bytes(zip_of([("model.json", b'"' + rb"\"" * 1_000_000)]))
    assert time.perf_counter() - start < 5


def zip_of(members, **options):
    """A zip with these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content, *how in members:
            archive.writestr(name, content, *how, **options)
    return out.getvalue()


def npy(header, data=b""):
    """A `.npy` file with a header of one's own."""
    text = header.encode().ljust(118 - 10 + 10) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


CONTAINERS = {
    "path tricks": (zip_of([("../../evil", b"x")]), r"'\.\./\.\./evil', which no model file has"),
    "absolute path": (zip_of([("/etc/passwd", b"x")]), r"which no model file has"),
    "pickle": (zip_of([("model.pkl", b"x")]), r"which no model file has"),
    "empty": (zip_of([]), r"no member 'model.json'"),
    "bomb": (
        zip_of([("model.json", b" " * 10_000_000)], compress_type=zipfile.ZIP_DEFLATED),
        r"'model.json' is compressed",
    ),
    "bomb of numbers": (
        zip_of([("model.json", b"{}"), ("arrays/0.npy", b"\0" * 10_000_000, zipfile.ZIP_DEFLATED)]),
        r"more than 20 times its size",
    ),
    "gap": (zip_of([("model.json", b"{}"), ("arrays/1.npy", b"")]), r"numbers have gaps"),
    "not JSON": (zip_of([("model.json", b"{")]), r"cannot read"),
    "not UTF-8": (zip_of([("model.json", b"\xff")]), r"cannot read"),
    "NaN in JSON": (zip_of([("model.json", b"NaN")]), r"the number NaN"),
    "long number": (zip_of([("model.json", b"1" * 100_000)]), r"cannot read"),
    "object array": (
        zip_of(
            [
                ("model.json", b"{}"),
                ("arrays/0.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8)),
            ]
        ),
        r"the type object",
    ),
    "oversized array": (
        zip_of(
            [
                ("model.json", b"{}"),
                ("arrays/0.npy", npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**15},), }}")),
            ]
        ),
        r"an array has the shape|declares the shape",
    ),
    "wrong size": (
        zip_of(
            [
                ("model.json", b"{}"),
                ("arrays/0.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", b"\0" * 8)),
            ]
        ),
        r"declares the shape \(3,\), but has 8 bytes",
    ),
    "nothing": (b"", r"not a zip file"),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_bad_containers(name):
    """A zip that no writer of ours made is refused with the reason."""
    data, message = CONTAINERS[name]
    with pytest.raises(ModelFileError, match=message):
        load_bytes(data)


def test_file_of_many_rows(tmp_path):
    """At most rows x (features + 2) numbers, and what the basis takes; equal numbers take no place."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3))
    model = SparseGPRegressor(n_active=20, optimizer=None, random_state=0).fit(X, np.sin(X[:, 0]))
    data = save_bytes(model, tmp_path)
    basis = 2000 * 3 + 20 * 20 + 20 * 3  # with rows from which the units of inputs are computed
    assert len(data) < 8 * (5000 * (3 + 2) + basis) + 5000
    np.testing.assert_array_equal(load_bytes(data).predict(X[:50]), model.predict(X[:50]))


def test_file_of_large_tasks(tmp_path):
    """What follows from the rows of a task is not stored; predictions, also after new rows, are the same."""
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(3600, 3)), np.repeat(np.arange(4), 900)
    model = SparseGPRegressor(n_active=50, optimizer=None, random_state=0).fit(
        X, np.sin(X[:, 0]), tasks=tasks
    )
    assert len(model._model.best.posterior.own) == 4
    data = save_bytes(model, tmp_path)
    basis = 2000 * 3 + 50 * 50 + 5 * 50 * 3
    assert len(data) < 8 * (3600 * (3 + 2) + basis) + 10_000
    again = load_bytes(data)
    for _ in range(2):
        for one, two in zip(
            *(m.predict(X[::50], tasks[::50], return_std=True) for m in (model, again)), strict=True
        ):
            np.testing.assert_array_equal(one, two)
        for m in (model, again):
            m.partial_fit(X[:20] + 0.1, np.cos(X[:20, 0]), tasks=tasks[:20])


def test_arrays_that_would_unpack_to_too_much_are_stored(tmp_path):
    """The writer keeps to the limit of the reader."""
    X = np.repeat([[0.0], [1.0]], 20_000, axis=0)
    model = SparseGPRegressor(n_active=2, optimizer=None, random_state=0).fit(X, X[:, 0])
    data = save_bytes(model, tmp_path)
    assert len(data) > 40_000 * 8
    np.testing.assert_array_equal(load_bytes(data).predict(X[:2]), model.predict(X[:2]))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_member_twice():
    """Which of two members of one name counts is not left to chance."""
    with pytest.raises(ModelFileError, match="twice"):
        load_bytes(zip_of([("model.json", b"{}"), ("model.json", b"{}")]))


CHECKED = ("LocalModel", "LocalPosterior", "Draw", "Knowledge", "Term", "InputMap", "TargetUnits")


def test_wrong_shapes(regressor, tmp_path):
    """Arrays exchanged within a file, checksums right, do not make a model."""
    n_refused = 0

    def swap(manifest):
        text = json.dumps(manifest)
        for i in range(3):
            text = text.replace(f'{{"array": {i}}}', f'{{"array": {i + 3}}}', 1)
        manifest["objects"] = json.loads(text)["objects"]

    with pytest.raises(ModelFileError):
        load_bytes(rewritten(save_bytes(regressor, tmp_path), swap))
    data = save_bytes(regressor, tmp_path)
    manifest = json.loads(zipfile.ZipFile(io.BytesIO(data)).read("model.json"))
    for number in range(len(manifest["objects"])):
        cls = classes.find_class(manifest["objects"][number]["class"])
        if cls.__name__ in CHECKED:
            for key in (f.name for f in fields(cls) if f.default is MISSING):

                def drop(m, number=number, key=key):
                    del m["objects"][number]["state"][key]

                with pytest.raises(ModelFileError):
                    load_bytes(rewritten(data, drop))
                n_refused += 1
    assert n_refused > 15


def damaged(data, rng):
    """The bytes with one kind of damage, drawn at random."""
    kind = rng.integers(6)
    data = bytearray(data)
    at = int(rng.integers(len(data)))
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        stop = min(len(data), at + int(rng.integers(1, 200)))
        data[at:stop] = rng.bytes(stop - at)
    elif kind == 3:
        del data[at : at + int(rng.integers(1, 200))]
    elif kind == 4:
        data[at:at] = rng.bytes(int(rng.integers(1, 200)))
    else:
        other = int(rng.integers(len(data)))
        data[at : at + 50], data[other : other + 50] = data[other : other + 50], data[at : at + 50]
    return bytes(data)


def mutated(data, rng):
    """The file with one leaf or branch of its manifest replaced, checksums right."""
    values = [None, True, -1, 10**30, 1e300, "x", [], {}, {"array": 0}, {"object": 0}, {"tuple": [1]}]

    def change(manifest):
        node, key = manifest, None
        for _ in range(12):
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            parent, key = node, keys[int(rng.integers(len(keys)))]
            node = parent[key]
            if not isinstance(node, dict | list) or not node or rng.random() < 0.1:
                break
        if rng.random() < 0.3 and isinstance(parent, dict):
            del parent[key]
        else:
            parent[key] = values[int(rng.integers(len(values)))]

    return rewritten(data, change)


def fuzz(data, rounds, seed):
    """Load damaged files; count those refused. Anything but a model or a ModelFileError fails."""
    rng = np.random.default_rng(seed)
    refused = 0
    for i in range(rounds):
        broken = damaged(data, rng) if i % 3 else mutated(data, rng)
        try:
            load_bytes(broken)
        except ModelFileError:
            refused += 1
    return refused


def test_damaged_files(regressor, tmp_path):
    """Files damaged at random are refused, or are as good as new."""
    assert fuzz(save_bytes(regressor, tmp_path), 200, seed=0) > 150


@pytest.mark.slow
def test_thousands_of_damaged_files(regressor, tmp_path):
    """No crash, no hang, no growth of memory in 3000 damaged files."""
    resource = pytest.importorskip("resource")
    data = save_bytes(regressor, tmp_path)
    fuzz(data, 200, seed=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert fuzz(data, 3000, seed=2) > 2400
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_random_bytes_are_refused():
    """Noise is no model."""
    rng = np.random.default_rng(3)
    for size in (1, 10, 100, 10_000):
        with pytest.raises(ModelFileError):
            load_bytes(rng.bytes(size))
        with pytest.raises(ModelFileError):
            load_bytes(b"PK\x03\x04" + rng.bytes(size))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.glean")), ids=lambda p: p.stem)
def test_kept_files_load_for_ever(path):
    """A model written by an earlier version loads and predicts what it predicted then."""
    model = load(path)
    expected = json.loads(path.with_suffix(".json").read_text())
    assert Version(gleangp.__version__) >= Version(expected["gleangp"])
    if "table" in expected:  # written by the command line
        pd = pytest.importorskip("pandas")
        predicted = model.predict(pd.read_csv(io.StringIO(expected["table"])))
        before = pd.read_csv(io.StringIO(expected["predicted"]))
        # Columns may be added, never taken away or changed.
        pd.testing.assert_frame_equal(predicted[list(before)], before, rtol=1e-7, check_dtype=False)
        return
    X, tasks = np.array(expected["X"]), expected["tasks"]
    if "proba" in expected:
        np.testing.assert_allclose(model.predict_proba(X, tasks=tasks), expected["proba"], rtol=1e-9)
    else:
        mean, std = model.predict(X, tasks=tasks, return_std=True)
        np.testing.assert_allclose(mean, expected["mean"], rtol=1e-9)
        np.testing.assert_allclose(std, expected["std"], rtol=1e-7)


def test_parameters_of_the_development_version():
    """A file of version 0.1 loads without what is gone, and the model can be fitted again."""
    model = load(GOLDEN / "coupled_regressor_v1.glean")
    assert model.posterior == "local"
    assert "move_basis" not in model.get_params()
    assert model.fit(np.arange(12.0)[:, None], np.arange(12.0)).tasks_ is None


def test_files_are_kept():
    """There is something to load in the test above, of both versions, also of a scikit-learn before 1.9."""
    versions = {json.loads(path.read_text())["gleangp"] for path in GOLDEN.glob("*.json")}
    assert {"0.1.0", "0.2.0"} <= versions
    assert len(list(GOLDEN.glob("*.glean"))) >= 12
    assert json.loads((GOLDEN / "older_sklearn_v1.json").read_text())["scikit-learn"].startswith("1.6.")


def test_noise_is_not_confused(tmp_path):
    """Noise models with an array per row keep it."""
    model = SparseGPRegressor(noise_variance=np.array([0.1, 0.2, 0.3]), kernel=sk.RBF(), optimizer=None)
    model.fit(np.arange(3.0)[:, None], [0.0, 1.0, 0.5])
    loaded = load_bytes(save_bytes(model, tmp_path))
    np.testing.assert_array_equal(loaded.noise_variance, [0.1, 0.2, 0.3])
    assert isinstance(loaded.noise_, Gaussian)
    assert os.path.getsize(tmp_path / "model.glean") < 20_000
