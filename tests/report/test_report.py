"""The report: self-contained, escaped, and its numbers are those of the model."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from gleangp import SparseGPClassifier, SparseGPRegressor, report
from gleangp.report.facts import gather, in_words
from gleangp.report.page import render

EVIL = "<script>alert('x')</script>\"&"


class Tags(HTMLParser):
    """Checks that tags nest and collects what would load something."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.scripts = [], [], 0

    def handle_starttag(self, tag, attrs):
        """Note the tag and what it points to."""
        self.scripts += tag == "script"
        self.loads += [v for k, v in attrs if k in ("src", "href") and not v.startswith("data:")]
        if tag not in ("meta", "link", "line", "circle", "rect", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Close the innermost tag."""
        if tag not in ("line", "circle", "rect", "polyline"):
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def data():
    """Five tasks, one with a name that is code and one with two rows only."""
    rng = np.random.default_rng(0)
    tasks = np.array(["a", "b", "c", EVIL] * 20 + ["tiny"] * 2)
    X = rng.uniform(0, 6, (len(tasks), 2))
    y = np.sin(X[:, 0]) + (tasks == "b") + 0.1 * rng.standard_normal(len(tasks))
    return X, y, tasks


def parse(text):
    """The parsed page, of which every tag is closed."""
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    return tags


def test_regression_report(data, tmp_path):
    """One file that loads nothing, with every task in its table and no tag from the data."""
    X, y, tasks = data
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    path = tmp_path / "r.html"
    report.write(model, X, y, tasks, path, feature_names=["hours", EVIL], target_name=EVIL)
    text = path.read_text(encoding="utf-8")
    tags = parse(text)
    assert tags.scripts == 1
    assert tags.loads == []
    assert not re.search(r"https?:", text)
    assert "alert('x')" not in re.sub(r"&#x27;|&quot;", "", text)
    assert text.count("<tr>") == 1 + 5
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classification_report(data, tmp_path, n_classes):
    """Classes work, with and without tasks."""
    X, y, tasks = data
    labels = np.digitize(y, [0.3, 1.0][: n_classes - 1])
    for given in (tasks, None):
        options = {} if given is None else {"tasks": given}
        model = SparseGPClassifier(n_active=20, n_rounds=1, random_state=0).fit(X, labels, **options)
        report.write(model, X, labels, given, tmp_path / "c.html")
        tags = parse((tmp_path / "c.html").read_text(encoding="utf-8"))
        assert (tags.scripts, tags.loads) == (1, [])


def test_facts(data):
    """Held-out errors beat the average here; relevance and active points are the model's."""
    X, y, tasks = data
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    facts = gather(model, X, y, tasks, feature_names=None, target_name="y")
    assert facts.n_held_out == 4 * 4  # two rows of the tiny task are left to learn from
    assert 0.05 < facts.error < 0.3
    assert facts.error < facts.error_average
    assert facts.error < facts.error_pooled
    assert facts.n_active == len(model.active_)
    assert [t.rows for t in facts.tasks] == [20, 20, 20, 20, 2]
    assert facts.relevance[0] == 1.0
    assert facts.relevance[1] < 0.6  # the own functions of tasks look at all inputs alike
    assert ((facts.observed >= 0) & (facts.observed <= 1)).all()


def test_advice_follows_the_numbers(data):
    """What to do next is said when the numbers say so."""
    X, y, tasks = data
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    page = render(gather(model, X, y, tasks, feature_names=None, target_name="y"))
    assert "Tasks with fewer than five rows gain most from more labels: tiny." in page
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(len(y))
    model = SparseGPRegressor(random_state=0).fit(X, noise)
    page = render(gather(model, X, noise, None, feature_names=None, target_name="y"))
    assert "<h2>Tasks</h2>" not in page
    assert "What to do next" in page


def test_kernel_in_words():
    """Parts of a sum are sentences; the shortest length scales are named first."""
    kernel = 4.0 * RBF([3.0, 0.5]) + ConstantKernel(9.0) + WhiteKernel(0.25) + Matern(2.0)
    first, offset, noise, rough = in_words(kernel, ["hours", "age"])
    assert first.startswith("A smooth function that changes fastest along age (0.5), hours (3)")
    assert "standard deviation is 2." in first
    assert "deviation 3" in offset
    assert "deviation 0.5" in noise
    assert "rough" in rough
    assert "about 2" in rough


def test_content_security_policy(data, tmp_path):
    """The page allows its own script by its hash, and nothing from elsewhere."""
    X, y, tasks = data
    model = SparseGPRegressor(optimizer=None, random_state=0).fit(X, y, tasks=tasks)
    report.write(model, X, y, tasks, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script>")
