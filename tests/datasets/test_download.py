"""Downloads against a server on this machine: whole, wrong, cut short, absent, silent."""

import dataclasses
import gzip
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gleangp import datasets
from gleangp.datasets import _convert, _download, _known, _places
from gleangp.datasets._known import FILES, Address, DataFile
from gleangp.datasets._tables import fingerprint, read_table
from gleangp.exceptions import DatasetError

pytest.importorskip("pooch")
TEXT = b"age,operation_year,positive_nodes,survival_status\n30,64,1,1\n40,65,2,2\n"
NAME = "haberman/haberman.csv"


@pytest.fixture
def server():
    """An HTTP server: `server.answers[path]` is bytes, a status, "cut" + bytes, or a number of seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = self.server.answers.get(self.path.split("?")[0], 404)
            self.server.asked.append(self.path)
            if isinstance(answer, float):
                time.sleep(answer)
                return
            if isinstance(answer, int):
                self.send_error(answer)
                return
            cut = answer.startswith(b"cut")
            body = answer[3:] if cut else answer
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + (1000 if cut else 0)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.answers, found.asked = {}, []
    found.address = f"http://127.0.0.1:{found.server_port}"
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


@pytest.fixture
def public(server, monkeypatch, tmp_path):
    """The server as where files are published; no folder of data, no mirror, an empty cache."""
    monkeypatch.delenv("GLEANGP_DATA", raising=False)
    monkeypatch.delenv("GLEANGP_DATA_URL", raising=False)
    monkeypatch.setenv("GLEANGP_CACHE", str(tmp_path / "cache"))
    return server


@pytest.fixture
def mirror(public, monkeypatch):
    """The server as a mirror, and a two-row Haberman file that is the expected one."""
    monkeypatch.setenv("GLEANGP_DATA_URL", public.address)
    expected = dataclasses.replace(FILES[NAME], sha256=hashlib.sha256(TEXT).hexdigest())
    monkeypatch.setitem(_known.FILES, NAME, expected)
    monkeypatch.setattr(_download, "TIMEOUT", 0.5)
    return public


def test_good_file(mirror, tmp_path):
    """It is fetched once, read, and kept; the second load asks nobody."""
    mirror.answers[f"/{NAME}"] = TEXT
    np.testing.assert_array_equal(datasets.load_haberman().data, [[30, 64, 1], [40, 65, 2]])
    assert (tmp_path / "cache" / NAME).read_bytes() == TEXT
    datasets.load_haberman()
    assert len(mirror.asked) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (TEXT.replace(b"30", b"31"), "hash"),
        (b"cut" + TEXT, "IncompleteRead|Connection broken"),
        (404, "404"),
        (500, "500"),
        (1.5, "[Tt]imed out|RemoteDisconnected|aborted"),
    ],
    ids=["wrong checksum", "truncated", "absent", "server error", "silent"],
)
def test_bad_answers(mirror, tmp_path, answer, says):
    """The error says what happened and where to put the file; nothing is left in the cache."""
    mirror.answers[f"/{NAME}"] = answer
    with pytest.raises(DatasetError, match=f"(?s)could not be downloaded.*({says}).*Put it as"):
        datasets.load_haberman()
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("damage", [TEXT.replace(b"30", b"31"), TEXT[:-3], b"", b"PK\x03\x04", b"\x1f\x8b"])
def test_cached_file_is_checked_when_it_is_used(mirror, tmp_path, damage):
    """What was changed in the cache is fetched again, and refused where that cannot be done."""
    cached = tmp_path / "cache" / NAME
    cached.parent.mkdir(parents=True)
    cached.write_bytes(damage)
    with pytest.raises(DatasetError, match="is damaged in the cache"):
        datasets.load_haberman()
    mirror.answers[f"/{NAME}"] = TEXT
    np.testing.assert_array_equal(datasets.load_haberman().data, [[30, 64, 1], [40, 65, 2]])
    assert cached.read_bytes() == TEXT


@pytest.mark.parametrize(
    "answer", [TEXT[:-5], b"cut" + TEXT, 404], ids=["wrong checksum", "truncated", "absent"]
)
def test_good_file_survives(mirror, tmp_path, answer):
    """A download that fails leaves the file that was there as it was."""
    target = tmp_path / "cache" / NAME
    target.parent.mkdir(parents=True)
    target.write_bytes(b"good")
    mirror.answers[f"/{NAME}"] = answer
    with pytest.raises(Exception, match=r"."):
        _download.download(_known.FILES[NAME], target)
    assert target.read_bytes() == b"good"
    assert list(target.parent.iterdir()) == [target]


def test_converted_file_is_checked(public, monkeypatch):
    """A public file is kept if it says what is expected, in whatever form; else it is thrown away."""
    public.answers["/file"] = b"# a comment\n0 1:0.5 2:-1.25 \n-1 1:2 2:3 \n"
    table = {"x1": np.array([0.5, 2.0]), "x2": np.array([-1.25, 3.0]), "label": np.array([0.0, -1.0])}
    columns = ("x1", "x2", "label")
    file = DataFile(
        "toy/toy.csv.gz",
        "",
        fingerprint(table, columns),
        columns,
        Address(f"{public.address}/file", _convert.crescent),
    )
    monkeypatch.setitem(_known.FILES, file.path, file)
    path = _places.locate(file.path)
    assert gzip.decompress(path.read_bytes()) == b"x1,x2,label\n0.5,-1.25,0\n2,3,-1\n"
    path.unlink()
    public.answers["/file"] = b"0 1:0.5 2:-1.25 \n1 1:2 2:3 \n"
    with pytest.raises(DatasetError, match="not the data that was expected"):
        _places.locate(file.path)
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("name", ["landmine", "school", "sarcos", "slump", "crescent"])
def test_published_forms(name, real_data, public, monkeypatch, tmp_path):
    """From the published forms (MATLAB cells, UCI's text, SVMlight) the loaders' files come out again."""
    path = next(p for p in FILES if name in p)
    table = read_table(real_data / path)
    source = tmp_path / "published"
    _publish(name, table, source)
    public.answers["/file"] = source.read_bytes()
    origin = dataclasses.replace(FILES[path].origin, url=f"{public.address}/file")
    monkeypatch.setitem(_known.FILES, path, dataclasses.replace(FILES[path], origin=origin))
    loader = getattr(datasets, f"load_{name}")
    found = loader()
    monkeypatch.setenv("GLEANGP_DATA", str(real_data))
    np.testing.assert_allclose(found.data, loader().data, rtol=1e-12)
    np.testing.assert_array_equal(found.target, loader().target)


def _publish(name, table, target):
    """Write a table in the form in which the set is published."""
    from scipy.io import savemat

    if name == "slump":
        rows = zip(*(table[c] for c in _convert.SLUMP_COLUMNS), strict=True)
        lines = [",".join([str(i + 1), *map(repr, map(float, row))]) for i, row in enumerate(rows)]
        target.write_text("\n".join(["%No,Cement,...", *lines]) + "\n")
    elif name == "crescent":
        rows = zip(table["label"], table["x1"], table["x2"], strict=True)
        target.write_text("".join(f"{int(c)} 1:{float(a)!r} 2:{float(b)!r} \n" for c, a, b in rows))
    elif name == "sarcos":
        matrix = np.column_stack([table[c] for c in _convert.SARCOS_COLUMNS])
        with target.open("wb") as file:
            savemat(file, {"sarcos_inv_test": matrix})
    elif name == "landmine":
        X = np.column_stack([table[f"x{i}"] for i in range(9)])
        _cells(target, "feature", "label", X, table["label"], table["task"])
    else:

        def code(column, names):
            return (table[column][:, None] == np.array(names)).astype(float)

        X = np.hstack([
            code("year", [1985.0, 1986.0, 1987.0]), table["fsm_percent"][:, None],
            table["vr1_percent"][:, None], code("gender", ["female", "male"]),
            code("vr_band", ["VR3", "VR1", "VR2"]), code("ethnic_group", _convert.ETHNIC_GROUPS),
            code("school_gender", ["mixed", "male", "female"]),
            code("school_denomination", ["maintained", "church_of_england", "roman_catholic"]),
            np.ones((len(table["school"]), 1)),
        ])  # fmt: skip
        assert X.shape[1] == 28
        _cells(target, "X", "Y", X, table["exam_score"], table["school"])


def _cells(target, x_name, y_name, X, y, tasks):
    from scipy.io import savemat

    names = np.unique(tasks)
    cells = np.empty((2, 1, len(names)), dtype=object)
    for j, task in enumerate(names):
        cells[0, 0, j], cells[1, 0, j] = X[tasks == task], y[tasks == task][:, None]
    with target.open("wb") as file:
        savemat(file, {x_name: cells[0], y_name: cells[1]})


def test_openml(public, monkeypatch, tmp_path):
    """`fetch_openml` is asked for the set by its number, and what it gives is converted and checked."""
    pytest.importorskip("pandas")
    arff = "@relation toy\n" + "".join(
        f"@attribute {name} {kind}\n"
        for name, kind in (
            ("Age", "INTEGER"), ("Year", "{64,65}"), ("Nodes", "INTEGER"), ("Survival_status", "{1,2}")
        )
    ) + "@data\n30,64,1,1\n40,65,2,2\n"  # fmt: skip
    raw = arff.encode()
    features = [
        {"index": str(i), "name": n, "data_type": t, "is_target": str(i == 3).lower(),
         "is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
        for i, (n, t) in enumerate(
            [("Age", "numeric"), ("Year", "nominal"), ("Nodes", "numeric"), ("Survival_status", "nominal")]
        )
    ]  # fmt: skip
    public.answers |= {
        "/api/v1/json/data/43": json.dumps({"data_set_description": {
            "id": "43", "name": "haberman", "version": "1", "format": "ARFF", "status": "active",
            "file_id": "43", "url": f"{public.address}/download/43/haberman.arff",
            "default_target_attribute": "Survival_status", "description": "toy",
            "md5_checksum": hashlib.md5(raw, usedforsecurity=False).hexdigest(),
        }}).encode(),
        "/api/v1/json/data/features/43": json.dumps({"data_features": {"feature": features}}).encode(),
        "/api/v1/json/data/qualities/43": json.dumps({"data_qualities": {"quality": [
            {"name": "NumberOfInstances", "value": "2.0"}]}}).encode(),
        "/download/43/haberman.arff": raw,
        "/data/v1/download/43/haberman.arff": raw,
    }  # fmt: skip
    import sklearn.datasets._openml as openml

    for constant in ("_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        _, _, path = getattr(openml, constant).partition("/api/")
        monkeypatch.setattr(openml, constant, f"{public.address}/api/{path}")
    monkeypatch.setattr(_download, "TIMEOUT", 2.0)
    with pytest.raises(DatasetError, match="not the data that was expected"):
        datasets.load_haberman()  # two rows are not the real set
    assert not (tmp_path / "cache" / NAME).exists()
    columns = FILES[NAME].checked
    values = ([30.0, 40.0], [64.0, 65.0], [1.0, 2.0], [1.0, 2.0])
    table = {c: np.array(v) for c, v in zip(columns, values, strict=True)}
    toy = dataclasses.replace(FILES[NAME], content=fingerprint(table, columns))
    monkeypatch.setitem(_known.FILES, NAME, toy)
    np.testing.assert_array_equal(datasets.load_haberman().data, [[30, 64, 1], [40, 65, 2]])


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["vowels", "usps", "auto_mpg"])
def test_openml_forms(name, real_data):
    """Frames as OpenML gives them become the tables that are expected."""
    pd = pytest.importorskip("pandas")
    path = next(p for p in FILES if name[:5] in p)
    table = read_table(real_data / path)
    if name == "vowels":
        columns = ["uci_split", "speaker_name", "sex", *(f"x{i}" for i in range(10)), "word"]
        frame = pd.DataFrame({c: table[c] for c in columns})
    elif name == "usps":
        frame = pd.DataFrame(np.vstack([table["X_train"], table["X_test"]]))
        frame["class"] = (np.concatenate([table["y_train"], table["y_test"]]) + 1).astype(str)
    else:
        mpg, *inputs = FILES[path].checked
        frame = pd.DataFrame({c: table[c] for c in [*inputs, mpg]})
        frame["origin"] = frame["origin"].astype(int).astype(str).astype("category")
    converted = FILES[path].origin.convert(frame)
    assert fingerprint(converted, FILES[path].checked) == FILES[path].content
