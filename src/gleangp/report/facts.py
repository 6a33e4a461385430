"""What a report contains, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.base import is_classifier

from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import split_unlabeled
from gleangp.data.tables import ColumnEncoding
from gleangp.report.effects import InputEffect, Response, effects, response_of
from gleangp.report.held_out import HeldOutRows, error_of, hold_out, losses, measure_of, normal_scores, quiet
from gleangp.report.inputs import read_inputs
from gleangp.report.rivals import Rival, rivals
from gleangp.report.single_tasks import Curve, Distances, OddRow, curves, distances, noise_std, odd_rows
from gleangp.report.words import shares_text, variance_shares, what_is_shared, words_of

LEVELS = np.linspace(0.1, 0.9, 9)


@dataclass(frozen=True, eq=False)
class TaskFacts:
    """One line of the table of tasks."""

    name: str
    rows: int
    active: int
    held_out: int
    error: float  # held out: as of all rows; nan if no row was held out
    error_alone: float  # of a model of this task's rows alone; nan where none was fitted


@dataclass(frozen=True, eq=False)
class Calibration:
    """Stated and observed shares, and where 95 % of the observed lie if the stated are right."""

    stated: FloatArray
    observed: FloatArray
    low: FloatArray
    high: FloatArray
    # Of classes: the mean confidence, the share of labels that were right, and the deviation of their
    # difference by chance. Every row counts once in it, so it shows more than single shares do.
    overall: tuple[float, float, float] | None = None

    @property
    def misses(self) -> bool:
        """Whether all rows together are beyond chance, or more of the observed shares than one."""
        if self.overall is not None and abs(self.overall[0] - self.overall[1]) > 2 * self.overall[2]:
            return True
        return int(np.sum((self.observed < self.low) | (self.observed > self.high))) > 1


@dataclass(frozen=True, eq=False)
class ColumnFacts:
    """One input as it was read."""

    encoding: ColumnEncoding
    n_missing: int
    low: float  # nan of a category
    median: float
    high: float
    unique: int


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything on the page."""

    estimator: str
    classify: bool
    target: str
    source: str | None
    written: datetime
    y: np.ndarray
    task_of_row: IntArray
    n_unlabeled: int
    columns: list[ColumnFacts]
    dropped: dict[str, str]
    kernel: str
    kernel_words: list[str]
    shared: list[str]  # what tasks have in common, and why
    variance: str  # shares of it
    measure: str  # of errors: "labels", "counts" or "numbers"
    noise_std: list[float] | None
    log_evidence: float
    n_active: int
    held: HeldOutRows
    rivals: list[Rival]
    calibration: Calibration | None
    tasks: list[TaskFacts]
    response: Response
    inputs: list[InputEffect]
    curves: list[Curve]  # none if no input is a number
    distances: Distances | None
    odd: list[OddRow]
    transfer: list[dict[str, Any]] | None
    row_numbers: Sequence[int]  # of the rows in the file

    @property
    def rows(self) -> int:
        """Rows that were read."""
        return len(self.y)

    @property
    def many_tasks(self) -> bool:
        """Whether there are several."""
        return len(self.tasks) > 1


# Longer than other functions: it names every field of the facts once.
def gather(
    model: Any,
    X: Any,
    y: np.ndarray,
    tasks: np.ndarray | None,
    *,
    feature_names: Sequence[str] | None = None,
    target_name: str = "target",
    held_out: HeldOutRows | None = None,
    source: str | None = None,
    dropped: Mapping[str, str] | None = None,
    simpler: Mapping[str, np.ndarray] | None = None,
    encodings: Sequence[ColumnEncoding] | None = None,
    row_numbers: Sequence[int] | None = None,
) -> Facts:
    """Measure everything; `report.write` describes the arguments."""
    learnt = getattr(model, "columns_", None)
    inputs = read_inputs(X, encodings or learnt, feature_names)
    classify = is_classifier(model)
    labeled = split_unlabeled(y, getattr(model, "unlabeled", None)) if classify else ~np.isnan(y)
    unique, codes = np.unique(np.zeros(len(y), dtype=int) if tasks is None else tasks, return_inverse=True)
    names = None if tasks is None else unique
    held = hold_out(model, inputs, y, tasks, labeled) if held_out is None else held_out
    if classify and held.spread is not None and held.spread.shape[1:] != (len(model.classes_),):
        held = replace(held, spread=None)  # a class that the folds do not have
    scores = None if classify else normal_scores(held, inputs, y, tasks)
    others, alone = rivals(model, inputs, y, tasks, labeled, held, simpler or {})
    response = response_of(model, target_name, y[labeled])
    with quiet():
        found = effects(model, inputs, y, tasks, held, response)
        along = next((e.column for e in found if e.column.kind in ("number", "date")), None)
        drawn = []
        if along is not None:
            place = inputs.columns.index(along)
            drawn = curves(model, inputs, y, names, codes, labeled, response, place)
    active = _active_by_task(model, codes, len(unique))
    return Facts(
        estimator=type(model).__name__,
        classify=classify,
        target=target_name,
        source=source,
        written=datetime.now().astimezone(),
        y=y,
        task_of_row=codes,
        n_unlabeled=int((~labeled).sum()),
        columns=[_column_facts(c, cells) for c, cells in zip(inputs.columns, inputs.cells.T, strict=True)],
        dropped=dict(dropped or {}),
        kernel="; ".join(map(str, getattr(model.kernel_, "kernels", [model.kernel_]))),
        shared=what_is_shared(model) if len(unique) > 1 else [],
        variance=shares_text(variance_shares(model)),
        kernel_words=words_of(model, model.kernel_, _feature_words(learnt or inputs.columns)),
        noise_std=noise_std(model),
        log_evidence=float(model.log_evidence_ if hasattr(model, "log_evidence_") else -model.objective_),
        n_active=int(active.sum()),
        held=held,
        rivals=others,
        measure=measure_of(model),
        calibration=_calibration(model, y, held, scores),
        tasks=_task_facts(y, names, codes, active, held, alone, measure_of(model)),
        response=response,
        inputs=found,
        curves=drawn,
        distances=distances(model, inputs, names, response),
        odd=odd_rows(model, y, held, scores),
        transfer=_transfer(model),
        row_numbers=range(1, len(y) + 1) if row_numbers is None else row_numbers,
    )


def _task_facts(
    y: np.ndarray,
    names: np.ndarray | None,
    codes: IntArray,
    active: IntArray,
    held: HeldOutRows,
    alone: FloatArray,
    measure: str,
) -> list[TaskFacts]:
    loss = losses(y[held.rows], held.predicted, measure)
    of_task = codes[held.rows]
    sizes = np.bincount(codes)
    out = []
    for code, size in enumerate(sizes):
        at = of_task == code
        own = alone[at]
        own = own if np.isfinite(own).all() else own[:0]
        name = "all rows" if names is None else str(names[code])
        errors = error_of(loss[at], measure), error_of(own, measure)
        out.append(TaskFacts(name, int(size), int(active[code]), int(at.sum()), *errors))
    return out


def _calibration(
    model: Any, y: np.ndarray, held: HeldOutRows, scores: FloatArray | None
) -> Calibration | None:
    """Shares of central intervals, or of the predicted classes, with a band of two standard deviations."""
    if held.spread is None or len(held.rows) == 0:
        return None
    truth = y[held.rows]
    if scores is not None:
        needed = np.abs(2.0 * ndtr(scores) - 1.0)
        stated, observed = LEVELS, np.mean(needed[:, None] <= LEVELS, axis=0)
        counts: Any = len(truth)
        overall = None
    else:
        sure = held.spread.max(axis=1)
        hit = model.classes_[held.spread.argmax(axis=1)] == truth
        bins = np.array_split(np.argsort(sure, kind="stable"), max(1, min(8, len(truth) // 10)))
        stated = np.array([sure[b].mean() for b in bins])
        observed = np.array([hit[b].mean() for b in bins])
        counts = np.array([len(b) for b in bins])
        chance = np.sqrt(np.mean(sure * (1.0 - sure)) / len(sure))
        overall = float(sure.mean()), float(hit.mean()), float(chance)
    half = 2 * np.sqrt(stated * (1 - stated) / counts)
    low, high = np.maximum(stated - half, 0.0), np.minimum(stated + half, 1.0)
    return Calibration(stated, observed, low, high, overall)


def _active_by_task(model: Any, codes: IntArray, n_tasks: int) -> IntArray:
    rows = getattr(model, "active_", None)
    if rows is None:
        rows = model.basis_  # of a latent space
    rows = np.concatenate(rows) if isinstance(rows, list) else np.asarray(rows)
    return np.bincount(codes[np.unique(rows)], minlength=n_tasks)


def _column_facts(column: ColumnEncoding, cells: FloatArray) -> ColumnFacts:
    known = cells[np.isfinite(cells)]
    low = middle = high = float("nan")
    if column.kind != "category":
        low, middle, high = np.quantile(known, [0.0, 0.5, 1.0]).tolist()
    return ColumnFacts(column, len(cells) - len(known), low, middle, high, len(np.unique(known)))


def _feature_words(columns: Sequence[ColumnEncoding]) -> list[str]:
    """Names of the inputs of a kernel; the indicators of a category have its name."""
    return [c.name if c.kind == "category" else name for c in columns for name in c.feature_names]


def _transfer(model: Any) -> list[dict[str, Any]] | None:
    """Who helps whom, where the model can say: one mapping for each task."""
    try:
        found = model.transfer_report()
    except (AttributeError, ValueError):  # not for this kind of model
        return None
    if isinstance(found, dict):  # of a latent space: task -> numbers
        return [{"task": task, **numbers} for task, numbers in found.items()] or None
    return [vars(line) if is_dataclass(line) else dict(line) for line in found] or None
