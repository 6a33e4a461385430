"""What the Python blocks of a page print and draw, put on the page; and the notebook of a page.

`conf.py` uses it while the site is built, so results on the site are never older than the code.
`python docs/page_results.py` writes the notebook of the tutorial.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^]]*)\]\((?!http)[^)]*\)|\{\w+\}`([^`<]*?) ?<[^`]*>`")  # to other pages of the site


def shows_results(text: str) -> bool:
    """Whether a page says that it shows what its blocks print and draw."""
    return text.startswith("<!-- results -->\n")


def with_results(text: str, name: str) -> str:
    """Run the blocks of a page in order; the text with output and pictures below each block."""
    import matplotlib.pyplot as plt

    folder = DOCS / "generated" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    scope: dict[str, Any] = {}

    def run(match: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(DOCS / "data"):
            exec(compile(match[1], f"{name}, line {text[: match.start()].count(chr(10)) + 1}", "exec"), scope)
        shown = match[0]
        if printed.getvalue():
            shown += f"\n```text\n{printed.getvalue()}```\n"
        for number in plt.get_fignums():
            picture = folder / f"{name.replace('/', '-')}-{match.start()}-{number}.png"
            plt.figure(number).savefig(picture, dpi=120, bbox_inches="tight")
            shown += f"\n![Drawn by the code above](/generated/pictures/{picture.name})\n"
        plt.close("all")
        return shown

    return BLOCK.sub(run, text)


def notebook(text: str) -> str:
    """The page as a Jupyter notebook without outputs; links to other pages become text."""
    parts = BLOCK.split(text.removeprefix("<!-- results -->\n"))  # text and code in turn
    cells: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        is_code = number % 2 == 1
        source = part.strip() if is_code else LINK.sub(lambda m: m[1] or m[2], part).strip()
        if source:
            cell = {"cell_type": "code" if is_code else "markdown", "id": f"cell-{number}", "metadata": {}}
            cell |= {"execution_count": None, "outputs": []} if is_code else {}
            cells.append({**cell, "source": source.splitlines(keepends=True)})
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    book = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1) + "\n"


if __name__ == "__main__":
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    (DOCS / "tutorial.ipynb").write_text(notebook(page), encoding="utf-8")
