"""The five commands of a contributor: `python dev.py setup`, `test`, `lint`, `docs` or `release VERSION`.

Plain Python, so that they work wherever gleangp does. What follows `test` goes to pytest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent
# Kind of a note in changelog.d -> heading in the changelog.
KINDS = {
    "added": "New",
    "improved": "Better",
    "changed": "Changed",
    "deprecated": "Deprecated",
    "removed": "Removed",
    "fixed": "Fixed",
    "security": "Security",
}


def run(*command: str | Path) -> None:
    """Print a command, run it from the root, and leave with its code if it fails."""
    print("+", *command, flush=True)
    code = subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode
    if code:
        sys.exit(code)


def python(*arguments: str | Path) -> None:
    """Run this Python with these arguments."""
    run(sys.executable, *arguments)


def setup() -> None:
    """Install gleangp from this folder, with what tests, documentation and releases need."""
    python("-m", "pip", "install", "--editable", ".[test,docs]", "build", "twine")


def test(arguments: Sequence[str]) -> None:
    """Run the quick tests, or what the arguments ask for."""
    python("-m", "pytest", *(arguments or ["-m", "not slow"]))


def lint() -> None:
    """Check the style, that imports point downwards, and the types."""
    python("-m", "ruff", "check")
    python("-m", "ruff", "format", "--check")
    python("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
    python("-m", "mypy")


def docs() -> None:
    """Build the documentation in build/docs; a warning is an error."""
    python("-m", "sphinx", "-q", "-W", "docs", "build/docs")


def build(folder: Path) -> None:
    """Write wheel and sdist to the folder, and check them."""
    python("-m", "build", "--outdir", folder)
    files = sorted(folder.iterdir())
    python("-m", "twine", "check", "--strict", *files)


def release(version: str, *, only_prepare: bool = False) -> None:
    """Everything of a release that happens here: version, changelog, build, commit and tag."""
    if git("status", "--porcelain"):
        sys.exit("There are changes that are not committed. Commit or stash them first.")
    prepare(version, date.today().isoformat())
    if only_prepare:
        print("Look at it with `git diff`, edit CHANGELOG.md, and commit.")
        return
    build(ROOT / "dist" / version)
    run("git", "add", "--all", "CHANGELOG.md", "CITATION.cff", "changelog.d", "src/gleangp/_version.py")
    if git("status", "--porcelain"):
        run("git", "commit", "--quiet", "--message", f"MNT release {version}")
    run("git", "tag", "--annotate", f"v{version}", "--message", f"gleangp {version}")
    print(f"Look at it with `git show`, then publish it: git push origin HEAD v{version}")


def prepare(version: str, day: str) -> None:
    """Write the version and the day where they belong, and fold the notes of changelog.d in the changelog."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version):
        sys.exit(f"{version!r} is not a version. Give one like 0.3.0 or 0.3.0rc1.")
    if f"v{version}" in git("tag").split():
        sys.exit(f"There is a tag v{version} already. Give the next version.")
    replace("src/gleangp/_version.py", r'__version__ = ".*"', f'__version__ = "{version}"')
    cited = f"version: {version}\ndate-released: {day}\n"
    replace("CITATION.cff", r"(?m)^version: .*\n(date-released: .*\n)?", cited)
    files = {kind: sorted((ROOT / "changelog.d").glob(f"*.{kind}.md")) for kind in KINDS}
    notes = {KINDS[kind]: [f.read_text(encoding="utf-8").strip() for f in files[kind]] for kind in KINDS}
    path = ROOT / "CHANGELOG.md"
    path.write_text(folded(path.read_text(encoding="utf-8"), version, day, notes), encoding="utf-8")
    for file in (file for of_kind in files.values() for file in of_kind):
        file.unlink()


def folded(changelog: str, version: str, day: str, notes: dict[str, list[str]]) -> str:
    """The changelog with the notes below the heading of the version, which may have some already."""
    first, *sections = re.split(r"(?m)^(?=## \[)", changelog)
    at = next((k for k, text in enumerate(sections) if text.startswith(f"## [{version}]")), None)
    if at is None:
        at = 1  # below "Unreleased"
        sections.insert(at, "")
    intro, *parts = re.split(r"(?m)^### (.*)\n", sections[at])
    lists = {heading: text.strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)}
    for heading in KINDS.values():
        more = "\n".join(f"- {note}" for note in notes.get(heading, []))
        lists[heading] = "\n".join(filter(None, (lists.pop(heading, ""), more)))
    text = "\n".join([f"## [{version}] - {day}", *intro.splitlines()[1:]]).strip()
    text += "".join(f"\n\n### {heading}\n\n{items}" for heading, items in lists.items() if items)
    sections[at] = text
    return "\n\n".join(part.strip() for part in (first, *sections)) + "\n"


def replace(name: str, pattern: str, new: str) -> None:
    """Replace the one place of a file that matches."""
    path = ROOT / name
    text, n_places = re.subn(pattern, lambda _: new, path.read_text(encoding="utf-8"))
    if n_places != 1:
        sys.exit(f"{name} has {n_places} places that match {pattern!r}, not one.")
    path.write_text(text, encoding="utf-8")


def git(*arguments: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python dev.py", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for function in (setup, test, lint, docs, release):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        if function is release:
            command.add_argument("version")
            command.add_argument("--prepare", action="store_true", help="version and changelog only")
    asked, rest = parser.parse_known_args(arguments)
    if rest and asked.command != "test":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if asked.command == "test":
        test(rest)
    elif asked.command == "release":
        release(asked.version, only_prepare=asked.prepare)
    else:
        globals()[asked.command]()


if __name__ == "__main__":
    main()
