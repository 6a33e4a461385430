"""Documentation and docstrings are easy to read: short paragraphs, short cells, plain words."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gleangp
from gleangp import datasets, plots

ROOT = Path(__file__).parents[2]
WORDS, CELL, CODE = 120, 160, 88

# Data do not act, and what is written is no diary.
PHRASES = [
    r"(rows?|tasks?|points?|data|evidence|labels?) (speaks?|knows?|says?|tells?|asks?|wants?)",
    r"speaks? (for|through)",
    r"knows? (themselves|itself)",
    r"hardly knows?",
    r"is asked (of|for)",
    r"whom it asks|who gets in",
    r"the paper's way",
    r"honest(ly)?",
    r"says? why",
    r"trails",
    r"(is|are) dear",
    r"is survived",
    r"as it is given",
    r"most rounds of",
    r"lost: on",
    r"ran out",
    r"taken for convergence",
    r"what few rows taught",
    r"quiet pairs?|own turn",
]
FORBIDDEN = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)


def parts(text: str) -> Iterator[tuple[str, int, str]]:
    """Paragraphs, table cells and lines of code of a Markdown page, each with its line number."""
    paragraph: list[str] = []
    start, fence = 1, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        opening = re.match(r"\s*(`{3,}|~{3,}|\$\$)", line)
        if fence:
            if opening and opening.group(1).startswith(fence):
                fence = ""
            elif fence != "$$":
                yield "code", number, line
            continue
        stands_alone = not line.strip() or line.startswith(("#", "|", "    ")) or opening
        item = re.match(r"\s*([-*+]|\d+\.|:) ", line)
        if paragraph and (stands_alone or item):
            yield "paragraph", start, " ".join(paragraph)
            paragraph = []
        if opening:
            fence = opening.group(1)
        elif line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield "cell", number, cell.strip()
        elif line.startswith("    ") and not item:
            yield "code", number, line
        elif line.strip():
            start = start if paragraph else number
            paragraph.append(line.strip())


def faults(text: str) -> list[str]:
    """What makes a page hard to read, with line numbers."""
    found = []
    for kind, number, part in parts(text):
        if kind == "paragraph" and len(part.split()) > WORDS:
            found.append(f"{number}: a paragraph of {len(part.split())} words")
        if kind == "cell" and len(part) > CELL:
            found.append(f"{number}: a table cell of {len(part)} characters")
        if kind == "code" and len(part) > CODE:
            found.append(f"{number}: a line of code of {len(part)} characters")
        if kind != "code" and (phrase := FORBIDDEN.search(part)):
            found.append(f"{number}: {phrase.group()!r}")
    return found


PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    if not {"gallery", "generated", "_build"} & set(page.parts)
)


@pytest.mark.parametrize("page", PAGES)
def test_pages(page):
    """No long paragraph, cell or line of code, and no forbidden phrase."""
    assert faults((ROOT / page).read_text(encoding="utf-8")) == []


def public_docstrings() -> dict[str, str]:
    """Docstrings of the public functions and classes, and of the methods that are theirs."""
    homes = {"": gleangp, "noise.": gleangp.noise, "plots.": plots, "datasets.": datasets}
    found = {}
    for prefix, home in homes.items():
        for name in home.__all__:
            value = getattr(home, name)
            if not callable(value):
                continue
            found[prefix + name] = inspect.getdoc(value) or ""
            members = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
            for method, function in members:
                if function.__module__.startswith("gleangp") and not method.startswith("_"):
                    found[f"{prefix}{name}.{method}"] = inspect.getdoc(function) or ""
    return found


DOCSTRINGS = public_docstrings()


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_docstrings(name):
    """No forbidden phrase, no paragraph of more than 120 words, no long line of code."""
    text = DOCSTRINGS[name]
    assert [match.group() for match in FORBIDDEN.finditer(text)] == []
    paragraphs = re.split(r"\n\s*\n|\n(?=\w[\w, ]* : )", text)  # of a list of parameters, each is one
    assert max(len(p.split()) for p in paragraphs) <= WORDS
    code = re.findall(r"^\s*(?:>>>|\.\.\.) .*", text, re.MULTILINE)
    assert [line for line in code if len(line.strip()) > CODE] == []


def test_code():
    """No forbidden phrase in comments, docstrings and messages of package, examples and benchmarks."""
    files = [path for part in ("src", "examples", "benchmarks") for path in (ROOT / part).rglob("*.py")]
    assert len(files) > 100
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := FORBIDDEN.search(line))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "word " * 121,
        "| a | " + "x" * 161 + " |",
        "```python\n" + "x" * 89 + "\n```",
        "All rows speak through the active points.",
        "Evidence says function.",
        "- " + "word " * 121,
    ],
    ids=["paragraph", "cell", "code", "speak", "says", "item"],
)
def test_faults_are_found(text):
    """Each of these has one fault, and is found with the line it is in."""
    assert len(faults("A short line.\n\n" + text)) == 1
    assert faults("A short line.\n\n" + text)[0].startswith(("3:", "4:"))


def test_short_things_pass():
    """Two paragraphs, two items or a heading and its text are not taken together."""
    half = "word " * 70
    assert faults(f"{half}\n\n{half}\n# Heading\n{half}\n- {half}\n- {half}\n\n| {half[:160]} | b |\n") == []
