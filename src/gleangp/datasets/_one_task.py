"""Data sets of one task."""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp.datasets import _describe
from gleangp.datasets._bunch import Columns, loader, make_bunch
from gleangp.datasets._convert import HABERMAN_COLUMNS, MPG_COLUMNS
from gleangp.datasets._places import locate
from gleangp.datasets._tables import read_table

_HABERMAN = Columns(
    "haberman/haberman.csv", _describe.HABERMAN, HABERMAN_COLUMNS[:-1], HABERMAN_COLUMNS[-1:], classes=True
)
_MPG = Columns("auto_mpg/auto_mpg.csv", _describe.AUTO_MPG, MPG_COLUMNS[1:], MPG_COLUMNS[:1])
_CRESCENT = Columns(
    "crescent/crescent_semisup.csv", _describe.CRESCENT, ("x1", "x2"), ("label",), classes=True
)
_PROTEIN = Columns("protein/protein.csv.gz", _describe.PROTEIN, [f"f{i}" for i in range(1, 10)], ("rmsd",))


@loader
def load_haberman(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Survival of 306 patients five years after breast-cancer surgery, from three numbers.

    Returns
    -------
    Bunch
        `data` (306, 3), `target` (1 lived five years or longer, 2 did not), `tasks` None,
        `feature_names`, `target_names`, `frame`, `DESCR` with the citation.

    Examples
    --------
    >>> from gleangp.datasets import load_haberman
    >>> load_haberman().data.shape  # doctest: +SKIP
    (306, 3)
    """
    return _HABERMAN.load(as_frame, return_X_y)


@loader
def load_iris(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Three species of iris from four measurements: scikit-learn's copy, in the manner of this module.

    Returns
    -------
    Bunch
        `data` (150, 4), `target` the names of the species; see `load_haberman`.

    Examples
    --------
    >>> from gleangp.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> X.shape, str(y[0])
    ((150, 4), 'setosa')
    """
    from sklearn.datasets import load_iris as bundled

    iris = bundled()
    return make_bunch(
        iris.data,
        iris.target_names[iris.target],
        None,
        feature_names=["sepal_length", "sepal_width", "petal_length", "petal_width"],
        target_names=["species"],
        description=_describe.IRIS,
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


@loader
def load_auto_mpg(*, complete: bool = True, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Miles per gallon of cars from seven numbers.

    Parameters
    ----------
    complete : bool, default=True
        Leave out the six cars without horsepower; otherwise theirs is NaN.

    Returns
    -------
    Bunch
        `data` (392 or 398, 7), `target` miles per gallon; see `load_haberman`.

    Examples
    --------
    >>> from gleangp.datasets import load_auto_mpg
    >>> load_auto_mpg().data.shape  # doctest: +SKIP
    (392, 7)
    """
    table = _MPG.read()
    known = np.isfinite(table["horsepower"])
    return _MPG.bunch(table, as_frame, return_X_y, kept=known | (not complete))


@loader
def load_crescent(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Two interlocking crescents of 400 points, 37 of them labelled.

    Returns
    -------
    Bunch
        `data` (400, 2), `target` -1, 1, or 0 for no label; see `load_haberman`.

    Examples
    --------
    >>> from gleangp.datasets import load_crescent
    >>> load_crescent().data.shape  # doctest: +SKIP
    (400, 2)
    """
    return _CRESCENT.load(as_frame, return_X_y)


@loader
def load_kin40k(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Forward kinematics of a robot arm: 40 000 rows, of which the first 10 000 are for training.

    Returns
    -------
    Bunch
        `data` (40000, 8), `target` the distance of the arm's end, `n_train` 10000; see `load_haberman`.

    Examples
    --------
    >>> from gleangp.datasets import load_kin40k
    >>> load_kin40k().data.shape  # doctest: +SKIP
    (40000, 8)
    """
    table = read_table(locate("kin40k/kin40k.npz"))
    return make_bunch(
        np.vstack([table["X_train"], table["X_test"]]),
        np.concatenate([table["y_train"], table["y_test"]]),
        None,
        feature_names=[f"x{i}" for i in range(8)],
        target_names=["distance"],
        description=_describe.KIN40K,
        as_frame=as_frame,
        return_X_y=return_X_y,
        n_train=len(table["y_train"]),
    )


@loader
def load_protein(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Error of decoys of protein structures, from nine physicochemical properties.

    Returns
    -------
    Bunch
        `data` (45730, 9), `target` the root mean square deviation; see `load_haberman`.

    Examples
    --------
    >>> from gleangp.datasets import load_protein
    >>> load_protein().data.shape  # doctest: +SKIP
    (45730, 9)
    """
    return _PROTEIN.load(as_frame, return_X_y)
