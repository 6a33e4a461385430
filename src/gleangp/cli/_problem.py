"""A table as a problem: what is predicted from what, which rows have a target, what else is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gleangp.cli._constraints import constraints_at, read_constraints
from gleangp.cli._encoding import TableEncoding, learn_encoding, target_column, target_of, text_of
from gleangp.cli._tables import read_table
from gleangp.cli._usage import UsageError, first_names, note
from gleangp.data.tables import ColumnEncoding
from gleangp.exceptions import LabelError
from gleangp.noise import noise_from_name
from gleangp.report.inputs import as_cells, as_frame

COUNTS = ("poisson", "negative_binomial")
_MOST_CLASSES = 50
_WHY_ID = "names of the rows (--keep-id learns from them)"
_ID_NAMES = {"id", "index", "row.names", "rownames"}


@dataclass(frozen=True, eq=False)
class Problem:
    """A table: what all models are given."""

    encoding: TableEncoding
    X: Any  # frame (n, p) of the inputs, in which the type of a column says its kind; exposure or trials last
    y: np.ndarray  # (n,) numbers, NaN without a target; or class labels as text
    labeled: np.ndarray  # (n,) whether a row has a target
    tasks: np.ndarray | None  # (n,) as text
    classify: bool
    unlabeled: str | None = None  # the label of rows without one, for classes
    order: tuple[str, ...] | None = None  # of the classes
    constraints: Any = None  # Order or DifferenceOrder of row numbers
    source: str | None = None  # name of the file
    dropped: dict[str, str] = field(default_factory=dict)  # what was left out -> why
    noise: str | None = None  # as asked for
    row_numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, int))  # (n,) in the file, from 1

    @property
    def columns(self) -> tuple[ColumnEncoding, ...]:
        """What the columns of X are."""
        fields = (ColumnEncoding(name, "number") for name in self.encoding.fields.values())
        return (*self.encoding.columns, *fields)

    @property
    def measure(self) -> str:
        """What errors are: "labels", "counts" or "numbers"."""
        return "labels" if self.classify else "counts" if self.noise in COUNTS else "numbers"

    @property
    def n_tasks(self) -> int:
        """Number of tasks; one if there is no task column."""
        return 1 if self.tasks is None else len(np.unique(self.tasks))

    def at(self, rows: np.ndarray) -> Problem:
        """Some of the rows, and the constraints that are about them alone."""
        constraints = None
        if self.constraints is not None:
            constraints = constraints_at(self.constraints, rows, len(self.y))
        return replace(
            self,
            X=self.X.iloc[rows],
            y=self.y[rows],
            labeled=self.labeled[rows],
            tasks=None if self.tasks is None else self.tasks[rows],
            constraints=constraints,
            row_numbers=self.row_numbers[rows],
        )

    def labeled_only(self) -> Problem:
        """The rows that have a target."""
        return self if self.labeled.all() else self.at(np.flatnonzero(self.labeled))

    def say_left_out(self) -> None:
        """Count the rows without a target aloud, where they are not learnt from."""
        without = int((~self.labeled).sum())
        if without:
            note(f"{without} of {len(self.y)} rows have no target and are left out.")

    def fit_arguments(self) -> dict[str, Any]:
        """Keyword arguments of an estimator's `fit`."""
        given = {} if self.tasks is None else {"tasks": self.tasks}
        return given if self.constraints is None else {**given, "constraints": [self.constraints]}


# Longer than other functions: every option about the table is a parameter.
def read_problem(
    path: str,
    target: str,
    task: str | None,
    *,
    drop: list[str],
    impute: bool,
    classify: bool | None,
    unlabeled: str | None,
    order: str | None = None,
    ordinal: bool = False,
    constraints: str | None = None,
    row_id: str | None = None,
    keep_id: bool = False,
    text_encoding: str = "utf-8",
    noise: str | None = None,
    exposure: str | None = None,
    trials: str | None = None,
) -> Problem:
    """Read a table and decide what its columns are."""
    _needs_noise("exposure", exposure, noise, ("poisson", "negative_binomial"))
    _needs_noise("trials", trials, noise, ("binomial",))
    if noise is not None:
        try:
            of_classes = noise_from_name(noise).support == "label"
        except ValueError as error:
            raise UsageError(f"--noise: {error}") from None
        classify = of_classes if classify is None else classify
    if target == task:
        raise UsageError(f"--target and --task both name the column {target!r}. Name two columns.")
    frame = read_table(path, tuple(name for name in (task, row_id) if name is not None), text_encoding)
    frame = frame.reset_index(drop=True)
    others = {target, task, row_id, exposure, trials, *drop}
    ids = [] if keep_id else _left_out(frame, others, _names_rows, _WHY_ID)
    constants = _left_out(frame, {*others, *ids}, _is_constant, "the same in every row")
    roles = {"row_id": row_id, "exposure": exposure, "trials": trials}
    left_out = [*drop, *ids, *constants]
    encoding = learn_encoding(frame, target, task, drop=left_out, impute=impute, **roles)
    if classify is None:
        classify = ordinal or _has_classes(frame[target], unlabeled)
    if ordinal and not classify:
        raise ValueError("--model ordinal is for categories, not numbers. Leave --regression out.")
    if classify and unlabeled is None:
        frame = with_target(frame, target)
    y = target_of(frame, target, classify=classify, unlabeled=unlabeled)
    labeled, classes = _labels_of(y, target, classify, unlabeled)
    fields = {encoding.fields[field]: values for field, values in encoding.fields_of(frame).items()}
    problem = Problem(
        encoding,
        as_frame(encoding.columns, as_cells(encoding.columns, frame)).assign(**fields),
        y,
        labeled,
        encoding.tasks(frame),
        classify,
        unlabeled if classify else None,
        _order_of(classes, order, target) if ordinal else None,
        source="standard input" if path == "-" else Path(path).name,
        dropped=_dropped(frame, encoding, drop, constants),
        noise=noise,
        row_numbers=frame.index.to_numpy() + 1,
    )
    if constraints is None:
        return problem
    names = None if row_id is None else _row_names(frame[row_id], row_id)
    return replace(problem, constraints=read_constraints(constraints, names, len(frame), text_encoding))


def _labels_of(y: Any, target: str, classify: bool, unlabeled: str | None) -> tuple[Any, Any]:
    """Which rows have a target, and the different classes; none for numbers."""
    labeled = y != unlabeled if classify else ~np.isnan(y)
    if not labeled.any():
        raise LabelError(f"no row has a target in the column {target!r}.")
    classes = np.unique(y[labeled]) if classify else np.zeros(0)
    if len(classes) > _MOST_CLASSES:
        raise LabelError(
            f"the target {target!r} has {len(classes)} different values: too many for classes. If they are "
            "numbers, use --regression."
        )
    return labeled, classes


def _needs_noise(option: str, column: str | None, noise: str | None, needed: tuple[str, ...]) -> None:
    if column is not None and noise not in needed:
        raise UsageError(f"--{option} {column} is for counts: add --noise {' or --noise '.join(needed)}.")


def _left_out(frame: Any, others: set[str | None], useless: Callable[[Any], bool], why: str) -> list[str]:
    """Columns that are not learnt from, said aloud; none if there would be no other input."""
    inputs = [c for c in frame.columns if c not in others]
    found = [c for c in inputs if useless(frame[c])]
    if not found or len(found) == len(inputs):
        return []
    note(f"left out {first_names(found)}: {why}.")
    return found


def _is_constant(values: Any) -> bool:
    """Whether there is no difference between rows; missing and infinite cells are refused elsewhere."""
    if len(values) < 2 or values.isna().any() or values.nunique() > 1:
        return False
    return values.iloc[0] not in (np.inf, -np.inf)


def _names_rows(values: Any) -> bool:
    """Whether a column counts the rows, or is called an id and differs in every row."""
    if values.dtype.kind == "f" or len(values) < 3:
        return False
    if str(values.name).lower() in _ID_NAMES and values.is_unique:
        return True
    counts = values.dtype.kind in "iu" and values.iloc[0] in (0, 1)
    return bool(counts and (np.diff(values.to_numpy()) == 1).all())


def _has_classes(values: Any, unlabeled: str | None) -> bool:
    """Whether a target is classes: text, or the numbers 0 and 1, which is said aloud."""
    if values.dtype.kind not in "iuf":
        return True
    found = {str(v).removesuffix(".0") for v in values.dropna().unique()} - {unlabeled}
    if found != {"0", "1"}:
        return False
    note(f"the target {values.name!r} is 0 or 1 in every row: taken as classes. If not, use --regression.")
    return True


def with_target(frame: Any, target: str) -> Any:
    """The rows that have a class; the others are counted aloud."""
    gone = target_column(frame, target).isna()
    if gone.all():
        raise LabelError(f"no row has a target in the column {target!r}.")
    if gone.any():
        note(
            f"{int(gone.sum())} of {len(frame)} rows have no target and are left out. To learn from them, "
            "give them a value of their own and name it with --unlabeled."
        )
    return frame[~gone]


def _dropped(frame: Any, encoding: TableEncoding, drop: list[str], constants: list[str]) -> dict[str, str]:
    """Columns that are not used, and why."""
    used = {encoding.target, encoding.task, *encoding.fields.values(), *(c.name for c in encoding.columns)}
    why: dict[Any, str] = dict.fromkeys(drop, "left out with --drop")
    why |= dict.fromkeys(constants, "the same in every row")
    left = [str(c) for c in frame.columns if c not in used]
    return {f"column {name}": why.get(name, "names of the rows") for name in left}


def _row_names(values: Any, column: str) -> np.ndarray:
    names = text_of(values, column)
    twice, counts = np.unique(names, return_counts=True)
    if counts.max() > 1:
        raise ValueError(f"--id {column} names rows, but {twice[counts.argmax()]!r} is there more than once.")
    return names


def _order_of(classes: np.ndarray, order: str | None, target: str) -> tuple[str, ...]:
    """The categories in their order: as given, or by size if they are numbers."""
    if order is not None:
        return tuple(part.strip() for part in order.split(","))
    try:
        return tuple(sorted(classes.tolist(), key=float))
    except ValueError:
        raise LabelError(
            f"the categories of {target!r} are text: {', '.join(map(repr, classes.tolist()))}. Give their "
            "order with --order, lowest first, with commas between them."
        ) from None
