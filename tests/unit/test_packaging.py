"""What is released: its bounds, the files in it, and the command that makes it."""

import importlib.util
import os
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TESTED = ("cli", "dask", "data", "plot", "test")  # extras of which the oldest versions are tried
NOT_RUN = {"import-linter", "mypy", "numpydoc", "ruff"}  # tools that the oldest job does not start
BROUGHT = {"click", "pyparsing"}  # needed by what we need


def read_oldest():
    """The versions of constraints/oldest.txt by name."""
    lines = (ROOT / "constraints" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name: Version(version) for name, version in pairs}


def test_oldest_versions_are_the_lower_bounds():
    """The constraints have every lower bound of the core and of the tested extras, and nothing else."""
    texts = [
        *PROJECT["dependencies"],
        *(t for extra in TESTED for t in PROJECT["optional-dependencies"][extra]),
    ]
    bounds = {}
    for requirement in map(Requirement, texts):
        if requirement.name not in {"gleangp", *NOT_RUN}:
            (bound,) = requirement.specifier
            assert bound.operator == ">="
            bounds[canonicalize_name(requirement.name)] = Version(bound.version)
    oldest = read_oldest()
    assert bounds == {name: version for name, version in oldest.items() if name not in BROUGHT}
    assert set(oldest) >= BROUGHT


def test_readme_names_the_bounds():
    """The README names the oldest Python and scikit-learn."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"scikit-learn {read_oldest()['scikit-learn']} or later" in readme
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')} or later" in readme


@pytest.fixture(scope="module")
def dist():
    """The folder in which .ci/run has built wheel and sdist."""
    if "GLEANGP_DIST" not in os.environ:
        pytest.skip("GLEANGP_DIST does not name a folder with wheel and sdist; .ci/run builds them")
    return Path(os.environ["GLEANGP_DIST"])


def test_wheel_holds_the_package_alone(dist):
    """Every module of the package, its mark of types, the metadata; no tests, no data."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if ".dist-info/" not in name}
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in (source / "gleangp").rglob("*.py")}
    assert package == modules | {"gleangp/py.typed"}
    assert not any(part.startswith("test") for name in package for part in name.split("/"))
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < 2_000_000


def test_sdist_can_be_built_from(dist):
    """The source archive has what the build reads, and no data of experiments."""
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src/gleangp/_version.py",
        "src/gleangp/py.typed",
    }
    assert not any(name.endswith((".csv", ".npz", ".npy", ".json", ".glean", ".png")) for name in names)
    assert sdist.stat().st_size < 2_000_000


@pytest.fixture
def dev(tmp_path, monkeypatch):
    """dev.py at work in a small repository of its own."""
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "a")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "a@b.c")
    for name in ("CHANGELOG.md", "CITATION.cff", "src/gleangp/_version.py", "changelog.d/README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8").split("## [0.")[0]  # no versions yet
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name, text in {"b.added": "New b.", "a.added": "New a.", "c.fixed": r"No \1 more."}.items():
        (tmp_path / "changelog.d" / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return module


def test_release_with_one_command(dev, tmp_path, monkeypatch):
    """Version, day and notes are where they belong, in one commit with its tag; the tree is clean."""
    monkeypatch.setattr(dev, "build", lambda folder: None)  # .ci/run builds
    dev.main(["release", "7.8.9"])
    assert '__version__ = "7.8.9"' in (tmp_path / "src/gleangp/_version.py").read_text()
    assert re.search(
        r"^version: 7\.8\.9\ndate-released: \d{4}-", (tmp_path / "CITATION.cff").read_text(), re.M
    )
    changelog = (tmp_path / "CHANGELOG.md").read_text()
    section = re.search(r"## \[Unreleased\]\n\n## \[7\.8\.9\] - \S{10}\n\n(.*?)(?=\n## |\Z)", changelog, re.S)
    assert section[1].strip() == "### New\n\n- New a.\n- New b.\n\n### Fixed\n\n- No \\1 more."
    assert [path.name for path in (tmp_path / "changelog.d").iterdir()] == ["README.md"]
    assert dev.git("status", "--porcelain") == ""
    assert dev.git("rev-parse", "v7.8.9^{commit}") == dev.git("rev-parse", "HEAD")
    assert dev.git("log", "-1", "--format=%s").strip() == "MNT release 7.8.9"
    dev.main(["release", "7.9.0"])  # without notes, over the date of the one before
    assert (tmp_path / "CITATION.cff").read_text().count("date-released") == 1


def test_notes_that_come_late(dev, tmp_path):
    """`--prepare` may be repeated: notes join those of the version, edits are kept, nothing is tagged."""
    dev.main(["release", "7.8.9", "--prepare"])
    changelog = tmp_path / "CHANGELOG.md"
    before = changelog.read_text()
    edited = before.replace("- New a.", "- A new a,\n  in two lines.").replace(
        "### New", "One sentence.\n\n### New"
    )
    changelog.write_text(edited)
    (tmp_path / "changelog.d" / "late.fixed.md").write_text("Late.\n")
    (tmp_path / "changelog.d" / "fast.improved.md").write_text("Fast.\n")
    for command in (["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    dev.main(["release", "7.8.9", "--prepare"])
    wanted = edited.replace("- No \\1 more.", "- No \\1 more.\n- Late.")
    assert changelog.read_text() == wanted.replace("### Fixed", "### Better\n\n- Fast.\n\n### Fixed")
    assert dev.git("tag") == ""


def test_release_refuses(dev, tmp_path):
    """A number that is none, a tag that exists, changes that are not committed."""
    with pytest.raises(SystemExit, match="'next' is not a version"):
        dev.main(["release", "next"])
    subprocess.run(["git", "tag", "v1.2.3"], cwd=tmp_path, check=True)
    with pytest.raises(SystemExit, match=r"There is a tag v1\.2\.3 already"):
        dev.main(["release", "1.2.3"])
    (tmp_path / "new.txt").write_text("")
    with pytest.raises(SystemExit, match="not committed"):
        dev.main(["release", "1.2.4"])


def test_arguments_go_to_pytest(dev, monkeypatch):
    """Without arguments the slow tests are left out; a failure is the exit code."""
    seen = []
    monkeypatch.setattr(dev, "python", lambda *arguments: seen.append(arguments[2:]))
    dev.main(["test"])
    dev.main(["test", "-m", "slow", "tests/unit"])
    assert seen == [("-m", "not slow"), ("-m", "slow", "tests/unit")]
    with pytest.raises(SystemExit):
        dev.main(["lint", "src"])
    monkeypatch.undo()
    with pytest.raises(SystemExit) as failure:
        dev.python("-c", "raise SystemExit(3)")
    assert failure.value.code == 3
