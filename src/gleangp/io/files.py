"""`save` and `load`: fitted models in one file that any machine can read and that runs nothing."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from gleangp._version import __version__
from gleangp.exceptions import ModelFileError, warn_user
from gleangp.io.atomic import replacing
from gleangp.io.classes import is_from_sklearn, is_known
from gleangp.io.container import HASH, most_nodes, read_container, write_container
from gleangp.io.trees import Decoder, Encoder, check_extent

FORMAT = "gleangp-model"
FORMAT_VERSION = 2  # raised when an older library could no longer read the file; 2 has a hash


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file.

    Parameters
    ----------
    model : estimator
        An estimator of gleangp, or a `TaskColumn` or `Pipeline` of such an estimator and of scikit-learn's
        `ColumnTransformer`, `StandardScaler`, `MinMaxScaler`, `OneHotEncoder`, `OrdinalEncoder` and
        `SimpleImputer`.
    path : str or path
        Where to; a file that is there is replaced in one step. Of a symbolic link the target is replaced.
        A folder, device or pipe is an `OSError`. ".glean" is the customary suffix.

    See Also
    --------
    load : The way back.

    Notes
    -----
    The file is a zip of JSON and `.npy`; equal models give equal bytes. It holds no code, so kernels
    must be scikit-learn's or gleangp's own. Other estimators go through pickle or joblib, which work with
    every estimator here too. Files with transformers of scikit-learn are best read with the version that
    wrote them; `load` warns of another.

    A hidden temporary file lies beside the target while it is written. SIGTERM and SIGHUP remove it (unless
    the program handles them itself, or saves in another thread than the main one). What a killed process
    left is removed at the next save to the same path.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor, load, save
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> path = Path(tempfile.mkdtemp()) / "sine.glean"
    >>> save(model, path)
    >>> bool((load(path).predict(X) == model.predict(X)).all())
    True
    """
    if not isinstance(model, BaseEstimator) or not is_known(model):
        raise ModelFileError(
            f"cannot save {model!r}: not an estimator of gleangp. For other objects use pickle or joblib."
        )
    encoder = Encoder()
    tree = encoder.encode(model, type(model).__name__)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "gleangp": __version__,
        "sklearn": sklearn.__version__,
        "model": tree,
        "objects": encoder.objects,
    }
    with replacing(path) as temporary, open(temporary, "wb") as file:
        write_container(file, manifest, encoder.arrays)
        check_extent(encoder.objects, most_nodes(file.tell()))


def load(path: str | os.PathLike[str] | BinaryIO) -> Any:
    """Read an estimator from a file that `save` wrote.

    Parameters
    ----------
    path : str, path or binary file
        Where from.

    Returns
    -------
    estimator
        As it was when it was saved.

    Raises
    ------
    ModelFileError
        If the file is damaged or edited, of a newer format, or no model file at all.

    Notes
    -----
    Safe for files from others: nothing in the file is run, no array is larger than the file, and the number
    of objects, also with shared ones counted each time, is bounded by the size of the file. A hash of the
    content tells an edited file from a saved one. Shapes that must agree and numbers that must be finite or
    positive are checked, whatever the hash is.

    Examples
    --------
    >>> import io
    >>> from gleangp import load
    >>> load(io.BytesIO(b"something else"))
    Traceback (most recent call last):
    gleangp.exceptions.ModelFileError: cannot read this file as a model: File is not a zip file
    """
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            return _load(file, f"{Path(path).name!r}")
    return _load(path, "this file")


def _load(file: BinaryIO, name: str) -> Any:
    try:
        manifest, arrays, found = read_container(file)
        _check_version(manifest)
        if manifest.get(HASH, None if manifest["format_version"] > 1 else found) != found:
            raise ModelFileError("its content is not what was saved: the file was edited or damaged.")
        check_extent(manifest.get("objects"), most_nodes(file.seek(0, os.SEEK_END)))
        model = Decoder(manifest.get("objects"), arrays).decode(manifest.get("model"))
        if not isinstance(model, BaseEstimator):
            raise ModelFileError(f"it holds a {type(model).__name__}, not an estimator.")
        foreign = sorted({o["class"] for o in manifest["objects"] if is_from_sklearn(o["class"])})
        if foreign:
            _predict_one_row(model)
    except Exception as error:  # whatever a damaged file can provoke is one kind of error to the user
        reason = str(error) or type(error).__name__
        raise ModelFileError(f"cannot read {name} as a model: {reason}") from error
    if foreign and manifest.get("sklearn") != sklearn.__version__:
        warn_user(
            f"{name} was written with scikit-learn {manifest.get('sklearn')!s:.20}, and this is "
            f"{sklearn.__version__}. Its {', '.join(foreign)} may fail or give other results. Fit it again.",
            UserWarning,
        )
    return model


def _check_version(manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError("it is not a gleangp model.")
    version = manifest.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= FORMAT_VERSION:
        raise ModelFileError(
            f"its format is version {version!r}, written by gleangp {manifest.get('gleangp')!r}; this is "
            f"gleangp {__version__}, which reads versions 1 to {FORMAT_VERSION}. Install a newer gleangp."
        )


def _predict_one_row(model: Any) -> None:
    """Predict a row that a pipeline, or a `TaskColumn` of one, can take; raises if that cannot be.

    So it is seen whether transformers of scikit-learn are whole: they do not check their state themselves.
    Cells are the first category of a column of categories, what an imputer fills in, else zero.
    """
    inner = getattr(model, "estimator_", None) if hasattr(model, "estimator") else model
    if inner is None or not isinstance(inner, Pipeline) or not hasattr(inner[-1], "tasks_"):
        return  # not fitted, or no pipeline
    check_is_fitted(inner)
    headings = getattr(model, "feature_names_in_", None)
    names = list(range(model.n_features_in_)) if headings is None else list(headings)
    tasks = inner[-1].tasks_
    if inner is not model:
        names.remove(model.task if isinstance(model.task, str) else names[model.task])
    row = _row(_cells(inner, len(names)), None if headings is None else names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if inner is not model:  # what TaskColumn asks for before it predicts
            check_is_fitted(model)
            inner.get_metadata_routing()
        given = {} if tasks is None else {"tasks": tasks[:1]}
        answer = inner[-1].predict(inner[:-1].transform(row) if len(inner) > 1 else row, **given)
    if np.shape(answer) != (1,) or (np.asarray(answer).dtype.kind == "f" and not np.isfinite(answer).all()):
        raise ValueError("it does not predict a number for one row.")


def _row(cells: list[Any], names: list[Any] | None) -> Any:
    if names is None:
        row = np.empty((1, len(cells)), dtype=object)
        row[0] = cells
        return row if any(isinstance(cell, str) for cell in cells) else row.astype(np.float64)
    import pandas as pd

    return pd.DataFrame({name: [cell] for name, cell in zip(names, cells, strict=True)})


def _cells(step: Any, n_columns: int) -> list[Any]:
    """Cells of one row that a transformer can take."""
    if isinstance(step, Pipeline):
        return _cells(step.steps[0][1], n_columns)
    if hasattr(step, "transformers_"):
        cells: list[Any] = [0.0] * n_columns
        for name, part, _ in step.transformers_:
            at = step._transformer_to_input_indices.get(name, [])
            for i, cell in zip(at, _cells(part, len(at)), strict=True):
                cells[i] = cell
        return cells
    if hasattr(step, "categories_"):
        return [categories[0] for categories in step.categories_]
    if hasattr(step, "statistics_"):
        return list(step.statistics_)
    return [0.0] * n_columns
