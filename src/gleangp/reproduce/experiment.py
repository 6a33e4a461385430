"""What an experiment is: plain declarations, no behaviour."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Column:
    """One measure."""

    name: str
    better: int = -1  # -1: smaller is better; 1: larger; 0: neither, only closeness to the paper counts
    digits: int = 2


@dataclass(frozen=True)
class Printed:
    """A number of a paper, with its standard deviation where that is printed."""

    mean: float
    spread: float | None = None


def printed(columns: Sequence[str], **methods: Sequence[float]) -> dict[tuple[str, str, str], Printed]:
    """A paper's table without settings: of every method, mean and standard deviation in each column."""
    return {
        ("", method, column): Printed(*numbers[2 * j : 2 * j + 2])
        for method, numbers in methods.items()
        for j, column in enumerate(columns)
    }


@dataclass(frozen=True)
class Context:
    """What one computation may depend on."""

    experiment: str
    setting: str
    run: int
    seed: int
    options: Mapping[str, Any]
    prepared: Any = None  # what `Experiment.prepare` gave

    def rng(self, *more: int) -> np.random.Generator:
        """A generator of this run, the same for all methods and settings."""
        return np.random.default_rng([zlib.crc32(self.experiment.encode()), self.seed, self.run, *more])


@dataclass(frozen=True)
class Outcome:
    """What a method gives: numbers by column, and what the plots show (plain lists)."""

    values: dict[str, float]
    shown: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """One way to solve the problem of a run.

    Attributes
    ----------
    run : callable (problem, context) -> Outcome
    role : {"paper", "default", "other"}
        A method of the paper in the paper's setting; what we recommend; anything to compare with.
    settings : str
        In words or as the repr of an estimator. A change of it makes results be computed again.
    n_runs : int, optional
        At most so many runs, the first ones: for slow methods that are in no paper.
    """

    name: str
    run: Callable[[Any, Context], Outcome]
    role: str = "other"
    settings: str = ""
    n_runs: int | None = None


@dataclass(frozen=True)
class Quick:
    """What the reduced form of an experiment leaves."""

    n_runs: int = 1
    settings: tuple[str, ...] | None = None  # None: all
    methods: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Attributes
    ----------
    source, shows : str
        Where it is printed, and what it is about.
    problem : callable (context) -> anything
        The data and split of one run, which all methods get.
    settings : tuple of str
        What varies down the table (active points, shares of labels); ("",) if nothing does.
    once : tuple of str
        Settings in which nothing is random: one run is enough.
    same_problem : bool
        The problem of a run is the same in all settings, and need not be made again for each.
    paper : mapping (setting, method, column) -> Printed
    prepare : callable (context) -> JSON, optional
        Computed once before all methods, such as kernels that several of them are given.
    draw : callable (Results) -> mapping from name to matplotlib figure
    notes : tuple of str
        Where the protocol departs from the paper, and what should be known.
    test_share : float, optional
        Test rows for each training row, where runs are random splits of one set of rows.
    version : int
        Raised when the protocol changes, so that old results are not taken for new ones.
    """

    name: str
    source: str
    shows: str
    problem: Callable[[Context], Any]
    methods: tuple[Method, ...]
    columns: tuple[Column, ...]
    n_runs: int
    settings: tuple[str, ...] = ("",)
    setting_name: str = ""
    once: tuple[str, ...] = ()
    same_problem: bool = False
    paper: Mapping[tuple[str, str, str], Printed] = field(default_factory=dict)
    quick: Quick = field(default_factory=Quick)
    options: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Context], Any] | None = None
    draw: Callable[[Any], dict[str, Any]] | None = None
    notes: tuple[str, ...] = ()
    test_share: float | None = None
    version: int = 1

    def __post_init__(self) -> None:
        names = [m.name for m in self.methods]
        if len(set(names)) < len(names):
            raise ValueError(f"experiment {self.name!r} has two methods of one name: {names}.")
        for m in self.methods:
            if m.n_runs is not None and (m.role == "paper" or m.n_runs < 1):
                raise ValueError(
                    f"method {m.name!r} of experiment {self.name!r} has n_runs={m.n_runs}: at least one "
                    "run is needed, and a method of the paper has the paper's number."
                )
        for setting, method, column in self.paper:
            known = setting in self.settings, method in names, column in [c.name for c in self.columns]
            if not all(known):
                raise ValueError(
                    f"the paper's number of {(setting, method, column)} in experiment {self.name!r} "
                    "belongs to no setting, method or column of it."
                )

    def method(self, name: str) -> Method:
        """The method of that name."""
        return next(m for m in self.methods if m.name == name)

    @property
    def default(self) -> Method | None:
        """What we recommend, if the experiment has it."""
        return next((m for m in self.methods if m.role == "default"), None)
