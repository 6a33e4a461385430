"""The served page: its answers are the model's, it talks to its own page alone, and it works by clicking."""

import csv
import http.client
import io
import json
from threading import Thread
from urllib.parse import unquote

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from gleangp import SparseGPClassifier, SparseGPRegressor  # noqa: E402
from gleangp.cli._encoding import TableEncoding  # noqa: E402
from gleangp.cli._table_model import TableModel  # noqa: E402
from gleangp.serve import make_server, server  # noqa: E402
from gleangp.serve.answers import Answers  # noqa: E402
from gleangp.serve.page import render  # noqa: E402
from gleangp.serve.server import is_own_name  # noqa: E402

EVIL = "<script>window.harmed = true</script>"
PHONE = {"width": 390, "height": 844}


def make_frame():
    """Three schools, one named like code; a number, a category, a boolean."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "school": np.tile(["a", "b", EVIL], 20),
            "hours": rng.uniform(0, 6, 60),
            "kind": rng.choice(["day", "night"], 60),
            "tutor": rng.choice([True, False], 60),
        }
    )
    frame["score"] = np.sin(frame["hours"]) + (frame["kind"] == "day") + 0.1 * rng.standard_normal(60)
    return frame


def make_model(classify=False):
    """As `gleangp fit` writes it."""
    frame = make_frame()
    X, tasks, y = frame[["hours", "kind", "tutor"]], frame["school"], frame["score"].to_numpy()
    fixed = {"optimizer": None, "random_state": 0}
    if classify:
        model = SparseGPClassifier(**fixed).fit(X, np.where(y > 0.5, "high", "low"), tasks=tasks)
    else:
        model = SparseGPRegressor(**fixed).fit(X, y, tasks=tasks)
    return TableModel(model, TableEncoding("score", "school"), {"ranges": {"hours": [0.0, 3.0, 6.0]}})


@pytest.fixture(scope="module", params=[False, True], ids=["numbers", "classes"])
def served(request):
    """A model and the port at which it is served."""
    model = make_model(request.param)
    with make_server(model, "scores.glean") as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield model, running.server_address[1]
        running.shutdown()


def ask(port, method, path, body=None, **headers):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def ask_json(port, path, value):
    """Status and value of an answer in JSON."""
    status, _, body = ask(port, "POST", path, json.dumps(value), Content_Type="application/json")
    return status, json.loads(body)


ROW = {"school": "b", "hours": 2.0, "kind": "day", "tutor": "true"}


def test_model(served):
    """The description has the inputs with their kinds and ranges."""
    _, port = served
    status, headers, body = ask(port, "GET", "/api/model")
    found = json.loads(body)
    assert status == 200
    assert found["tasks"] == [EVIL, "a", "b"]
    assert found["inputs"][0] == {"name": "hours", "kind": "number", "low": 0.0, "middle": 3.0, "high": 6.0}
    assert found["inputs"][1]["categories"] == ["day", "night"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_page_without_tasks_does_not_mention_them():
    """The word is there only if the model has tasks."""
    facts = {"task": None, "inputs": [], "curves": [], "classes": None, "target": "y"}
    assert "rows that the model keeps" in render(facts, "m.glean")
    assert "rows of the task that" in render({**facts, "task": "school", "tasks": ["a"]}, "m.glean")


def test_predict(served):
    """Predictions are the model's; a wrong row is an error that names the column."""
    model, port = served
    status, found = ask_json(port, "/api/predict", {"rows": [ROW, {**ROW, "school": "a"}]})
    assert status == 200
    expected = model.predict(pd.DataFrame([ROW, {**ROW, "school": "a"}])).to_dict("records")
    for ours, theirs in zip(found["predictions"], expected, strict=True):
        assert ours == pytest.approx(theirs)
    status, found = ask_json(port, "/api/predict", {"rows": [{**ROW, "kind": "noon"}]})
    assert status == 400
    assert "'noon'" in found["error"]
    for wrong in ({}, {"rows": 3}, {"rows": [3]}, [1]):
        assert ask_json(port, "/api/predict", wrong)[0] == 400
    assert ask(port, "POST", "/api/predict", "no json", Content_Type="application/json")[0] == 400


def test_curve(served):
    """The curve goes through the prediction; the nearest rows are of the task."""
    _, port = served
    status, found = ask_json(port, "/api/curve", {"row": ROW, "along": "hours"})
    assert status == 200
    score = found["prediction"]["score"]
    key = f"p({score})" if isinstance(score, str) else "score"
    assert np.interp(2.0, found["x"], found["mean"]) == pytest.approx(found["prediction"][key], abs=0.02)
    assert found["svg"].startswith("<svg")
    frame = make_frame()
    hours = frame.loc[frame["school"] == "b", "hours"].to_numpy()
    assert found["nearest"]
    assert all(np.abs(hours - n["hours"]).min() < 1e-9 for n in found["nearest"])
    distances = [n["distance"] for n in found["nearest"]]
    assert distances == sorted(distances)
    for along in ("kind", "tutor"):
        assert ask_json(port, "/api/curve", {"row": ROW, "along": along})[0] == 200
    status, found = ask_json(port, "/api/curve", {"row": ROW, "along": "days"})
    assert status == 400
    assert "'days'" in found["error"]


def test_table(served):
    """A CSV comes back with its own columns and the predictions."""
    model, port = served
    frame = make_frame().drop(columns="score").assign(key=np.arange(60))
    status, headers, body = ask(
        port, "POST", "/api/table", frame.to_csv(index=False), Content_Type="text/csv"
    )
    assert status == 200
    assert headers["Content-Type"].startswith("text/csv")
    found = pd.read_csv(io.BytesIO(body))
    assert found["key"].tolist() == list(range(60))
    expected = model.predict(frame)["score"]
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found["predicted score"], expected, rtol=1e-8)
    else:
        assert found["predicted score"].tolist() == expected.tolist()
    status, _, body = ask(port, "POST", "/api/table", "hours\n1\n", Content_Type="text/csv")
    assert (status, "no column" in json.loads(body)["error"]) == (400, True)
    assert ask(port, "POST", "/api/table", "school,hours,kind,tutor\n", Content_Type="text/csv")[0] == 400


def test_other_sites_are_refused(served):
    """A name that is not the server's (DNS rebinding), and pages of other origins, get no answer."""
    _, port = served
    assert ask(port, "GET", "/", Host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        assert ask(port, "GET", "/api/model", Host=host)[0] == 403
    body = json.dumps({"rows": [ROW]})
    own = f"http://127.0.0.1:{port}"
    for origin, status in ((own, 200), ("http://evil.example", 403), ("null", 403)):
        given = {"Origin": origin, "Content_Type": "application/json"}
        assert ask(port, "POST", "/api/predict", body, **given)[0] == status


def test_names_of_the_server():
    """On loopback its own names alone; on other addresses also addresses, which cannot be rebound."""
    assert is_own_name("[::1]:8000", "127.0.0.1")
    assert not is_own_name("192.168.0.5:8000", "127.0.0.1")
    assert is_own_name("192.168.0.5:8000", "0.0.0.0")
    assert is_own_name("box.example:8000", "box.example")
    assert not is_own_name("evil.example:8000", "0.0.0.0")


def test_what_is_sent_is_limited(served, monkeypatch):
    """Too long, of another type, or without a length: refused before it is read."""
    _, port = served
    assert ask(port, "POST", "/api/predict", "{}", Content_Type="text/plain")[0] == 415
    monkeypatch.setattr(server, "MAX_UPLOAD", 10)
    assert ask(port, "POST", "/api/table", "x" * 11, Content_Type="text/csv")[0] == 413
    assert ask(port, "POST", "/api/table", Content_Type="text/csv", Content_Length="")[0] == 411
    assert ask(port, "GET", "/../etc/passwd")[0] == 404
    assert ask(port, "DELETE", "/")[0] == 501


def test_listens_on_loopback():
    """Without `host`, the address is loopback."""
    with make_server(make_model()) as running:
        assert running.server_address[0] == "127.0.0.1"


@pytest.fixture
def url(served):
    """Where the page is."""
    return f"http://127.0.0.1:{served[1]}/"


def test_page_by_clicking(open_url, url):
    """Moving an input changes prediction and picture; another task too; names that are code are text."""
    page = open_url(url)
    result = page.locator("#result")
    page.wait_for_function("() => document.getElementById('result').innerText !== ''")
    assert page.locator("#picture svg").count() == 1
    before = result.inner_text()
    page.locator("input[type=range]").fill("5.5")
    page.wait_for_function("b => document.getElementById('result').innerText !== b", arg=before)
    assert page.locator("input[name=hours]").input_value() == "5.5"
    assert "hours" in page.locator("#picture svg").get_attribute("aria-label")
    before = result.inner_text()
    page.select_option("#task", "b")
    page.wait_for_function("b => document.getElementById('result').innerText !== b", arg=before)
    page.select_option("#along", "kind")
    page.wait_for_function("() => document.querySelectorAll('#levels tbody tr').length === 2")
    assert page.locator("#near tbody tr").count() == 5
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.scripts.length") == 1
    page.locator("input[name=hours]").fill("")
    page.wait_for_function("() => document.getElementById('problem').innerText.includes('hours')")
    assert [p for p in page.problems if "400" not in p] == []


def test_upload_by_clicking(open_url, url, tmp_path):
    """A chosen file comes back as a download; a wrong one is explained."""
    page = open_url(url)
    path = tmp_path / "new.csv"
    make_frame().drop(columns="score").to_csv(path, index=False)
    with page.expect_download() as waiting:
        page.set_input_files("#file", path)
    assert waiting.value.suggested_filename == "new-predicted.csv"
    with open(waiting.value.path(), newline="") as file:
        assert len(list(csv.reader(file))) == 61
    assert page.locator("#uploaded").inner_text() == "Saved 60 rows with predictions."
    path.write_text("hours\n1\n")
    page.set_input_files("#file", path)
    page.wait_for_function("() => document.getElementById('uploaded').innerText.includes('no column')")
    path.write_bytes(b"x" * (server.MAX_UPLOAD + 1))
    page.set_input_files("#file", path)
    page.wait_for_function("() => document.getElementById('uploaded').innerText.includes('20 MB')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(open_url, url, scheme):
    """The page does not scroll sideways, and every control has a label."""
    page = open_url(url, viewport=PHONE, is_mobile=True, color_scheme=scheme)
    page.wait_for_function("() => document.querySelector('#picture svg')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(
        "[...document.querySelectorAll('input,select')].every(i => i.labels.length || i.ariaLabel)"
    )


def test_columns_that_are_constant_within_a_task_and_counts():
    """Distances are in units of all tasks; the band of counts does not go below zero."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat(["a", "b"], 15), "weight": np.repeat([79.6, 61.3], 15)})
    frame["time"], frame["days"] = np.tile(np.arange(15) / 7.0, 2), rng.uniform(1, 3, 30)
    frame["seen"] = rng.poisson(0.5 * frame["days"]).astype(float)
    model = SparseGPRegressor(noise="poisson", optimizer=None, random_state=0)
    model.fit(frame[["weight", "time"]], frame["seen"], frame["who"], exposure=frame["days"])
    answers = Answers(TableModel(model, TableEncoding("seen", "who", exposure="days"), {}))
    found = answers.curve({"who": "a", "weight": 79.6, "time": 0.0}, "time")
    assert found["nearest"][0]["distance"] < 1e-6
    assert found["nearest"][0]["time"] == 0.0
    assert max(row["distance"] for row in found["nearest"]) < 5.0
    assert min(found["low"]) >= 0.0
    assert found["words"].startswith("seen for days = 1: ")


def test_the_first_curve_is_of_the_largest_effect():
    """Numbers come before other inputs, whatever the order of the columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"kind": rng.choice(["u", "v"], 60), "none": rng.uniform(0, 9, 60)})
    frame["some"] = rng.uniform(0, 6, 60)
    frame["y"] = np.sin(frame["some"]) + 0.1 * rng.standard_normal(60)
    model = SparseGPRegressor(random_state=0).fit(frame[["kind", "none", "some"]], frame["y"])
    assert Answers(TableModel(model, TableEncoding("y", None), {})).describe()["curves"] == [
        "some",
        "none",
        "kind",
    ]


def test_dates():
    """A date is asked for as a date; its curve is over days, and nearest rows have theirs."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"day": pd.date_range("2024-01-30", periods=61).strftime("%Y-%m-%d")})
    frame["x"], frame["y"] = rng.uniform(0, 1, 61), np.sin(np.arange(61) / 9.0)
    model = SparseGPRegressor(random_state=0).fit(frame[["day", "x"]], frame["y"])
    answers = Answers(TableModel(model, TableEncoding("y", None), {}))
    facts = answers.describe()
    day = {"name": "day", "kind": "date", "low": "2024-01-30", "middle": "2024-02-29", "high": "2024-03-30"}
    assert facts["inputs"][0] == day
    assert facts["curves"] == ["day", "x"]
    found = answers.curve({"day": "2024-02-08", "x": 0.5}, "day")
    assert (found["x"][0], found["x"][-1]) == ("2024-01-30", "2024-03-30")
    assert found["nearest"][0]["day"] in frame["day"].to_numpy()
    assert ">2024-03</text>" in found["svg"]
    assert found["prediction"]["y"] == pytest.approx(1.0, abs=0.2)  # the ninth day
    assert 'type="date"' in render(facts, "m.glean")


def test_missing_cells_of_the_nearest_rows_are_empty():
    """A row without a number or a category does not show another one in its place."""
    frame = make_frame()
    frame.loc[::4, "hours"] = np.nan
    frame.loc[::4, "kind"] = None
    model = SparseGPRegressor(random_state=0)
    model.fit(frame[["hours", "kind", "tutor"]], frame["score"], tasks=frame["school"])
    row = {"school": "a", "hours": None, "kind": None, "tutor": "true"}
    nearest = Answers(TableModel(model, TableEncoding("score", "school"), {})).curve(row, "hours")["nearest"]
    assert (nearest[0]["hours"], nearest[0]["kind"]) == ("", "")
    assert any(isinstance(other["hours"], float) for other in nearest)


def test_an_uploaded_table_is_predicted_as_by_the_command(served):
    """A new task, a new category and a gap do not fail the file; the page says what became of them."""
    port = served[1]
    frame = make_frame().drop(columns="score").head(4)
    frame.loc[0, "school"], frame.loc[1, "kind"], frame.loc[2, "hours"] = "ünknown", "dusk", np.nan
    status, headers, body = ask(
        port, "POST", "/api/table", frame.to_csv(index=False).encode(), Content_Type="text/csv"
    )
    assert status == 200
    assert len(pd.read_csv(io.BytesIO(body))) == 4
    note = unquote(headers["X-Note"])
    assert "1 of 4 rows are of one task that the model does not know: 'ünknown'" in note
    assert "'dusk'" in note
    assert "'hours' has 1 missing values" in note
