"""From the forms in which the sets are published to the tables that loaders read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from gleangp.datasets._tables import Table

HABERMAN_COLUMNS = ("age", "operation_year", "positive_nodes", "survival_status")
MPG_COLUMNS = (
    "mpg", "cylinders", "displacement", "horsepower", "weight", "acceleration", "model_year", "origin",
)  # fmt: skip
SLUMP_COLUMNS = (
    "cement", "slag", "fly_ash", "water", "superplasticizer", "coarse_aggregate", "fine_aggregate",
    "slump_cm", "flow_cm", "strength_28d_mpa",
)  # fmt: skip
SARCOS_COLUMNS = tuple(f"{kind}{i}" for kind in ("pos", "vel", "acc", "torque") for i in range(1, 8))
SCHOOL_COLUMNS = (
    "school", "exam_score", "year", "fsm_percent", "vr1_percent", "school_gender", "school_denomination",
    "gender", "vr_band", "ethnic_group",
)  # fmt: skip
ETHNIC_GROUPS = (
    "ESWI", "African", "Arab", "Bangladeshi", "Caribbean", "Greek", "Indian", "Pakistani", "SE_Asian",
    "Turkish", "Other",
)  # fmt: skip
_USPS_TRAIN = 7291
_IN_19 = (*range(1, 11), *range(16, 25))  # the tasks whose rows are the 9674 of Zhu & Sun 2013


def _numbers(column: Any) -> np.ndarray:
    return np.asarray([np.nan if v in ("", "?", None) else float(v) for v in column])


def haberman(frame: Any) -> Table:
    """Four columns in the order of UCI."""
    return {name: _numbers(frame.iloc[:, j]) for j, name in enumerate(HABERMAN_COLUMNS)}


def auto_mpg(frame: Any) -> Table:
    """Seven inputs, then miles per gallon; the names of the cars are not there."""
    return {name: _numbers(frame.iloc[:, j]) for j, name in zip((7, *range(7)), MPG_COLUMNS, strict=True)}


def vowels(frame: Any) -> Table:
    """Split, speaker, sex, ten inputs, word; speakers and words are numbered as they appear."""
    columns = [frame.iloc[:, j].astype(str).to_numpy() for j in (1, 13)]
    speaker, word = (_by_appearance(column) for column in columns)
    table = {"speaker": speaker.astype(float), "vowel": word.astype(float), "word": columns[1]}
    return table | {f"x{i}": _numbers(frame.iloc[:, 3 + i]) for i in range(10)}


def usps(frame: Any) -> Table:
    """7291 training and 2007 test rows; labels are 1 to 10 there."""
    X = frame.iloc[:, :256].to_numpy(np.float32)
    y = (frame.iloc[:, 256].astype(float).to_numpy() - 1).astype(np.uint8)
    n = _USPS_TRAIN
    return {"X_train": X[:n], "X_test": X[n:], "y_train": y[:n], "y_test": y[n:]}


def slump(path: Path) -> Table:
    """UCI's file: one line of names, then the row's number and ten columns."""
    with path.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    values = np.array([[float(v) for v in row[1:]] for row in rows if row])
    return dict(zip(SLUMP_COLUMNS, values.T, strict=True))


def crescent(path: Path) -> Table:
    """SVMlight: label, then 1:value 2:value; a label of 0 is no label."""
    rows = [line.split() for line in path.read_text().splitlines() if line.strip() and line[0] != "#"]
    x1, x2 = (np.array([float(row[j].split(":")[1]) for row in rows]) for j in (1, 2))
    return {"x1": x1, "x2": x2, "label": np.array([float(row[0]) for row in rows])}


def landmine(path: Path) -> Table:
    """MATLAB cells of 29 tasks."""
    cells = _matlab(path)
    X = [np.asarray(x, dtype=float) for x in cells["feature"].ravel()]
    y = [np.asarray(v, dtype=float).ravel() for v in cells["label"].ravel()]
    task = np.repeat(np.arange(1.0, len(X) + 1), [len(x) for x in X])
    table = {"task": task, "in19": np.isin(task, _IN_19).astype(float), "label": np.concatenate(y)}
    return table | {f"x{i}": column for i, column in enumerate(np.vstack(X).T)}


def sarcos(path: Path) -> Table:
    """A MATLAB matrix of 21 inputs and seven torques."""
    return dict(zip(SARCOS_COLUMNS, _matlab(path)["sarcos_inv_test"].T, strict=True))


def school(path: Path) -> Table:
    """MATLAB cells of 139 schools, in the 28 columns of Argyriou, Evgeniou & Pontil 2008."""
    cells = _matlab(path)
    inputs = [np.asarray(x, dtype=float) for x in cells["X"].ravel()]
    X = np.vstack(inputs)

    def one_of(start: int, names: tuple[Any, ...]) -> np.ndarray:
        codes = X[:, start : start + len(names)]
        found = np.array(names)[codes.argmax(axis=1)]
        return found if codes.any(axis=1).all() else np.where(codes.any(axis=1), found, "unknown")

    return {
        "school": np.repeat(np.arange(1.0, len(inputs) + 1), [len(x) for x in inputs]),
        "exam_score": np.concatenate([np.asarray(y, dtype=float).ravel() for y in cells["Y"].ravel()]),
        "year": one_of(0, (1985.0, 1986.0, 1987.0)),
        "fsm_percent": X[:, 3],
        "vr1_percent": X[:, 4],
        "school_gender": one_of(21, ("mixed", "male", "female")),
        "school_denomination": one_of(24, ("maintained", "church_of_england", "roman_catholic")),
        "gender": one_of(5, ("female", "male")),
        "vr_band": one_of(7, ("VR3", "VR1", "VR2")),
        "ethnic_group": one_of(10, ETHNIC_GROUPS),
    }


def _matlab(path: Path) -> dict[str, np.ndarray]:
    from scipy.io import loadmat

    return loadmat(path)


def _by_appearance(values: np.ndarray) -> np.ndarray:
    """Codes 0, 1, ... in the order in which values first appear."""
    _, first, codes = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=int)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[codes]
