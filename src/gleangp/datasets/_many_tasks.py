"""Data sets of many tasks, or of many outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp.datasets import _describe
from gleangp.datasets._bunch import Columns, loader, make_bunch
from gleangp.datasets._convert import SARCOS_COLUMNS, SCHOOL_COLUMNS, SLUMP_COLUMNS
from gleangp.datasets._places import locate
from gleangp.datasets._tables import Table, read_table
from gleangp.exceptions import DatasetError

_LANDMINE = Columns(
    "landmine/landmine.csv.gz",
    _describe.LANDMINE,
    [f"x{i}" for i in range(9)],
    ("label",),
    "task",
    classes=True,
)
_SARCOS = Columns("sarcos/sarcos_test.csv.gz", _describe.SARCOS, SARCOS_COLUMNS[:-7], SARCOS_COLUMNS[-7:])
_SLUMP = Columns("concrete_slump/concrete_slump.csv", _describe.SLUMP, SLUMP_COLUMNS[:-3], SLUMP_COLUMNS[-3:])
_VOWELS = Columns(
    "vowel/vowel.csv.gz", _describe.VOWELS, [f"x{i}" for i in range(10)], ("vowel",), "speaker", classes=True
)


@loader
def load_landmine(*, all_tasks: bool = False, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Is it a mine? Nine features of radar images from many minefields, each a task.

    Parameters
    ----------
    all_tasks : bool, default=False
        Give all 29 minefields instead of the 19 that the papers use.

    Returns
    -------
    Bunch
        `data` (9674 or 14820, 9), `target` (1 mine, 0 clutter; 6 % are mines), `tasks` (1 to 29),
        `feature_names`, `target_names`, `frame`, `DESCR` with the citation.

    Examples
    --------
    >>> from gleangp.datasets import load_landmine
    >>> load_landmine().data.shape  # doctest: +SKIP
    (9674, 9)
    """
    table = _LANDMINE.read()
    kept = (table["in19"] == 1) | all_tasks
    return _LANDMINE.bunch(table, as_frame, return_X_y, kept, target_names=["mine"])


@loader
def load_school(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Exam scores of 15 362 students of 139 schools, each school a task.

    Parameters
    ----------
    as_frame : bool, default=False
        Give pandas objects, with categories as text. Arrays have one column of 0 and 1 for each category.

    Returns
    -------
    Bunch
        `data` (15362, 28), or (15362, 8) as a frame, `target` the exam score, `tasks` the school (1 to
        139); see `load_landmine`.

    Examples
    --------
    >>> from gleangp.datasets import load_school
    >>> load_school().data.shape  # doctest: +SKIP
    (15362, 28)
    """
    table = read_table(locate("school/school.csv.gz"))
    raw = {name: table[name] for name in SCHOOL_COLUMNS[2:]}
    raw["year"] = raw["year"].astype(int)
    columns, names = [], []
    for name, values in raw.items():
        if name.endswith("percent"):
            columns.append(values)
            names.append(name)
            continue
        for category in np.unique(values):
            columns.append((values == category).astype(float))
            names.append(f"{name}={category}")
    return make_bunch(
        np.column_stack(columns),
        table["exam_score"],
        table["school"].astype(int),
        feature_names=names,
        target_names=["exam_score"],
        description=_describe.SCHOOL,
        as_frame=as_frame,
        return_X_y=return_X_y,
        raw=raw,
    )


@loader
def load_sarcos(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Seven joint torques of a robot arm from positions, velocities and accelerations: the test file.

    `stack_outputs` makes seven tasks of the seven outputs.

    Returns
    -------
    Bunch
        `data` (4449, 21), `target` (4449, 7), `tasks` None; see `load_landmine`.

    Examples
    --------
    >>> from gleangp.datasets import load_sarcos
    >>> load_sarcos().data.shape  # doctest: +SKIP
    (4449, 21)
    """
    return _SARCOS.load(as_frame, return_X_y)


@loader
def load_slump(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Slump, flow and strength of 103 concretes from seven ingredients.

    `stack_outputs` makes three tasks of the three outputs.

    Returns
    -------
    Bunch
        `data` (103, 7), `target` (103, 3), `tasks` None; see `load_landmine`.

    Examples
    --------
    >>> from gleangp.datasets import load_slump
    >>> load_slump().data.shape  # doctest: +SKIP
    (103, 7)
    """
    return _SLUMP.load(as_frame, return_X_y)


@loader
def load_vowels(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Eleven vowels spoken by fifteen people, each speaker a task.

    Returns
    -------
    Bunch
        `data` (990, 10), `target` the vowel (0 to 10), `tasks` the speaker (0 to 14), `words` the eleven
        words; see `load_landmine`.

    Examples
    --------
    >>> from gleangp.datasets import load_vowels
    >>> load_vowels().data.shape  # doctest: +SKIP
    (990, 10)
    """
    table = _VOWELS.read()
    words = [str(table["word"][table["vowel"] == v][0]) for v in range(11)]
    return _VOWELS.bunch(table, as_frame, return_X_y, words=words)


@loader
def load_usps(*, scaling: str = "saturated", as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Handwritten digits of 16 x 16 pixels: 7291 rows for training, then 2007 for testing.

    Parameters
    ----------
    scaling : {"saturated", "smooth"}, default="saturated"
        Grey levels from -1 to 1, of which two versions are in circulation. "saturated" is that of the
        Elements of Statistical Learning; "smooth" is that of the toolbox of Lawrence et al. 2005.

    Returns
    -------
    Bunch
        `data` (9298, 256), `target` the digit, `tasks` None, `n_train` 7291; see `load_landmine`.

    Examples
    --------
    >>> from gleangp.datasets import load_usps
    >>> load_usps().data.shape  # doctest: +SKIP
    (9298, 256)
    """
    if scaling not in ("saturated", "smooth"):
        raise DatasetError(f"scaling={scaling!r} is not known. It is 'saturated' or 'smooth'.")
    path = locate("usps/usps.npz")
    table = read_table(path)
    return make_bunch(
        _grey_levels(table, scaling, str(path)),
        np.concatenate([table["y_train"], table["y_test"]]).astype(int),
        None,
        feature_names=[f"pixel{i}" for i in range(256)],
        target_names=["digit"],
        description=_describe.USPS,
        as_frame=as_frame,
        return_X_y=return_X_y,
        n_train=len(table["y_train"]),
    )


def _grey_levels(table: Table, scaling: str, path: str) -> np.ndarray:
    if scaling == "saturated":
        return np.vstack([table["X_train"], table["X_test"]]).astype(np.float64)
    if "X_train_smooth" not in table:
        raise DatasetError(
            f"{path!r} holds the saturated grey levels only, as downloads do. Put a file with the arrays "
            "X_train_smooth and X_test_smooth into the folder GLEANGP_DATA, or use scaling='saturated'."
        )
    return np.vstack([table["X_train_smooth"], table["X_test_smooth"]]) / 127.5 - 1.0
