"""What holds under hostile files, odd numbers, threads, kills and long runs.

The table is in `docs/explanation/promises.md`.

    python -m benchmarks.trust [--quick] [part ...]

Parts: mutants, fits, threads, kills, coverage, soak. All of them take some hours; --quick takes minutes.
Each is also a command of its own, which prints the seed of what went wrong: `mutants`, `random_fits`,
`threads`, `kills` and `soak` of `python -m tests.endurance.`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.endurance import kills as killing
from tests.endurance import mutants as mutating
from tests.endurance import random_fits, threads
from tests.endurance.soak import soak

from benchmarks.common import Row, show_parts
from benchmarks.default_checks import noise


def mutants(quick: bool) -> Iterator[Row]:
    """Edited files that load and then misbehave."""
    count = 500 if quick else 20_000
    ended = mutating.mutants(count, report=print)
    bad = count - ended["refused"] - ended["finite"]
    text = f"{bad} of {count} ({ended['refused']} refused, {ended['finite']} finite)"
    yield Row("structure-aware mutants of model files that load and then misbehave", text, "0", bad == 0)


def fits(quick: bool) -> Iterator[Row]:
    """Random fits that end badly."""
    count = 100 if quick else 5000
    ended = random_fits.random_fits(count, report=print)
    bad = {how: ended[how] for how in ("not finite", "foreign", "slow", "not saved")}
    what = "random fits, scales 1e-300 to 1e300: not finite, foreign errors, over 60 s, not loaded again"
    text = f"{', '.join(map(str, bad.values()))} of {count} ({ended['refused']} refused)"
    yield Row(what, text, "0", not any(bad.values()))


def added(quick: bool) -> Iterator[Row]:
    """Tasks that are lost where threads add them."""
    found = [threads.add_from_threads(case, 5 if quick else threads.N_EACH)[1:] for case in threads.CASES]
    count = threads.N_THREADS * (5 if quick else threads.N_EACH)
    lost, mixed = (max(column) for column in zip(*found, strict=True))
    text = f"{lost}, {mixed} of {count} in each of {len(found)} estimators"
    what = "eight threads x add_task: tasks lost, predictions of a half state"
    yield Row(what, text, "0, 0", lost == mixed == 0)


def kills(quick: bool) -> Iterator[Row]:
    """Files that are damaged or left behind."""
    ended = killing.kills(20 if quick else 100)
    text = f"{ended['damaged']}, {ended['left']} of {ended['kills']}"
    holds = ended["damaged"] == ended["left"] == 0
    yield Row("SIGKILL / SIGTERM during save: damaged files, files left behind", text, "0, 0", holds)


def soaked(quick: bool) -> Iterator[Row]:
    """Growth of memory."""
    minutes = 1.0 if quick else 30.0
    turns, counts, growth = soak(minutes)
    text = f"{growth / 1e6:+.1f} MB in {turns} turns, {minutes:.0f} minutes"
    yield Row(f"soak of {len(counts)} estimators: growth of resident memory", text, "< 5 MB", growth < 5e6)


PARTS = {
    "mutants": mutants,
    "fits": fits,
    "threads": added,
    "kills": kills,
    "coverage": noise,
    "soak": soaked,
}

if __name__ == "__main__":
    show_parts(__doc__, PARTS)
