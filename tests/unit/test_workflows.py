"""Files that only a code host reads: each parses, and the commands and paths in them exist."""

import re
import tomllib
from pathlib import Path

import pytest

from gleangp import __version__

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def parse(path):
    """A YAML file as Python, without YAML's idea that `on` is a boolean."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


def steps_of(workflow):
    """All steps of a workflow."""
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_files_are_there():
    """Tests, nightly, documentation and release; two forms."""
    assert [path.stem for path in WORKFLOWS] == ["docs", "nightly", "release", "tests"]
    assert len(FORMS) == 2
    assert parse(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_workflow_has_the_parts_it_needs(path):
    """Name, events, few rights; every job has a machine, needs jobs that exist, and steps of one kind."""
    workflow = parse(path)
    assert set(workflow) <= {"name", "on", "permissions", "concurrency", "env", "jobs"}
    assert workflow["name"] == path.stem
    assert workflow["on"]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest" or job["runs-on"] == "${{ matrix.os }}"
        assert job.get("needs", next(iter(workflow["jobs"]))) in workflow["jobs"]
        for name in re.findall(r"matrix\.(\w+)", str(job)):
            assert job["strategy"]["matrix"][name]
        for step in job["steps"]:
            assert len({"uses", "run"} & set(step)) == 1
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v1)", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_commands_of_workflows_exist(path):
    """Commands of dev.py, extras of the project, scripts of the tree and our own program."""
    extras, tasks = PROJECT["optional-dependencies"], (ROOT / "dev.py").read_text(encoding="utf-8")
    for command in (step["run"] for step in steps_of(parse(path)) if "run" in step):
        words = command.split()
        if words[:2] == ["python", "dev.py"]:
            assert f"\ndef {words[2]}(" in tasks
        elif words[0] == "gleangp":
            assert words == ["gleangp", "demo"]
        elif words[0] != "python":
            assert (ROOT / words[0]).is_file(), words[0]
        for group in re.findall(r"\[([\w,]+)\]\"", command):
            assert set(group.split(",")) <= set(extras)


def test_pythons_of_the_tests():
    """From the oldest Python that is allowed on, on three systems; classifiers are among them."""
    job = parse(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["tests"]
    pythons = job["strategy"]["matrix"]["python"]
    assert pythons[0] == PROJECT["requires-python"].removeprefix(">=")
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert set(named) <= set(pythons)
    assert len(job["strategy"]["matrix"]["os"]) == 3


def test_only_the_publishing_job_publishes():
    """Identity tokens are given to the two jobs that attest and publish, and no secret is read."""
    path = ROOT / ".github" / "workflows" / "release.yml"
    jobs = parse(path)["jobs"]
    assert {name for name, job in jobs.items() if "permissions" in job} == {"build", "publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "release"
    assert jobs["publish"]["needs"] == "try"
    assert jobs["try"]["needs"] == "build"
    assert not any("secrets." in p.read_text(encoding="utf-8") for p in WORKFLOWS)


@pytest.mark.parametrize("path", FORMS, ids=lambda p: p.stem)
def test_issue_forms(path):
    """A form has a name, a description and fields with an identifier and a label."""
    form = parse(path)
    assert form["name"]
    assert form["description"]
    identifiers = [field["id"] for field in form["body"]]
    assert len(set(identifiers)) == len(identifiers) > 0
    for field in form["body"]:
        assert field["type"] in {"textarea", "input", "dropdown", "checkboxes"}
        assert field["attributes"]["label"]


def test_citation():
    """What the format requires, and what the project says of itself elsewhere."""
    citation = parse(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert (ROOT / re.search(r"\((docs/\S+)\)", citation["message"])[1]).exists()


def test_hooks_before_a_commit():
    """ruff checks and formats, in the version that the hook names."""
    (repository,) = parse(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", repository["rev"])


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_pages_name_what_is_there(name):
    """Files and folders between backticks exist."""
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:tests|docs|src|changelog\.d|\.github|\.ci|constraints)/[\w./-]*)`", text)
    paths += re.findall(r"`([A-Z_]+\.(?:md|cff))`", text)
    for path in paths:
        assert (ROOT / path).exists(), path
    for command in re.findall(r"python dev\.py (\w+)", text):
        assert f"\ndef {command}(" in (ROOT / "dev.py").read_text(encoding="utf-8")
    if name == "CONTRIBUTING.md":
        folders = {p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and p.name != "__pycache__"}
        assert {f for f in folders if f"`tests/{f}/`" not in text} == set()
