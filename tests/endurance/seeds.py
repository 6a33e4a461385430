"""What the fuzzers share: a case for every seed, how each ended, a command that prints what went wrong."""

from __future__ import annotations

import argparse
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FINE = ("finite", "refused")


def run_seeds(
    one: Callable[[int], tuple[str, str]],
    count: int,
    seed: int = 0,
    report: Callable[[str], Any] | None = None,
) -> Counter:
    """How so many cases ended; `report` is called with every one that is not fine."""
    ended: Counter = Counter()
    for number in range(seed, seed + count):
        how, what = one(number)
        ended[how] += 1
        if report is not None and how not in FINE:
            report(" ".join(f"seed {number}: {how}: {what}".split()))
    return ended


def text_of(error: Exception) -> str:
    """Type, place and message of an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {error}"


def command(doc: str | None, run: Callable[..., Counter], count: int, **given: Any) -> None:
    """Run with --count and --seed of the command line, and print how the cases ended."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(dict(run(options.count, options.seed, **given)))


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)
