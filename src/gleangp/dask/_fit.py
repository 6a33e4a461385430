"""`gleangp.dask.fit`: learn from a Dask DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import numpy as np
from distributed import Client, get_client
from sklearn.base import is_regressor
from sklearn.utils.validation import validate_data

from gleangp._compat import with_callbacks
from gleangp.dask._huge import parts_of_task
from gleangp.dask._partitions import Columns
from gleangp.dask._rows import ClusterRows, join_names, read_facts
from gleangp.estimators._one_step import in_one_step
from gleangp.estimators._ordinal import SparseGPOrdinal
from gleangp.estimators._sparse_classifier import SparseGPClassifier
from gleangp.estimators._sparse_regressor import SparseGPRegressor
from gleangp.exceptions import ClusterError, GleanError, LabelError, TaskError
from gleangp.labels import encode_classes
from gleangp.selection.selectors import RandomSelector

_KNOWN = (SparseGPRegressor, SparseGPClassifier, SparseGPOrdinal)


def fit(estimator: Any, ddf: Any, target: Any, task: Any = None, *, client: Client | None = None) -> Any:
    """Fit a sparse estimator on a Dask DataFrame, with rows that stay on the cluster.

    The result is what `estimator.fit` gives with `posterior="projected"` on the same rows in memory, in the
    order of `ddf.compute()`: `active_` has row numbers through all partitions.

    Parameters
    ----------
    estimator : SparseGPRegressor, SparseGPClassifier or SparseGPOrdinal
        Fitted in place; unchanged if the fit fails. Tasks share the kernel alone, also with
        `coupling="auto"`. Other couplings, `invariances`, `noise_variance` per row, unlabelled rows of a
        classifier and selectors that weigh tasks against each other ("graph", `TaskRelevance`, swaps)
        are for data in memory.
    ddf : dask.dataframe.DataFrame
        Rows of all tasks, in any order; columns other than `target` and `task` are the features.
    target : str
        Column of the targets; NaN where a row has none.
    task : str, default=None
        Column of the tasks. The estimator's own `task=` column is used if it names one, and is then part of
        what `predict` expects. None in both: one task.
    client : distributed.Client, default=None
        None: the current one.

    Returns
    -------
    estimator
        Fitted.

    Raises
    ------
    LabelError, TaskError
        Rows that cannot be learnt from, with their partitions.
    ClusterError
        No cluster, a connection to it that was lost, or workers that died again and again.

    See Also
    --------
    predict : Predictions for a Dask DataFrame.

    Notes
    -----
    Whole tasks move to one worker each, and each worker must have memory for its share of the rows. A
    worker that dies is survived: what it had is made again from the partitions, and the result is the same.
    Read from files (Parquet) rather than from the client's memory, or the data must travel once more.

    One task with more than 100 000 rows, and more than 60 million rows times active points, is split over the
    workers: parts choose points and a second selection chooses from their union (two rounds; in memory the
    same parts are used). Classes and categories keep their sites with the workers; the posterior comes from
    sums over parts. The result is the same as in memory to rounding, not bit for bit. The basis of such a
    task does not move (`move_basis` of a regressor).

    Examples
    --------
    >>> import gleangp.dask
    >>> from distributed import Client                                      # doctest: +SKIP
    >>> client = Client()                                                   # doctest: +SKIP
    >>> model = gleangp.dask.fit(                                           # doctest: +SKIP
    ...     gleangp.SparseGPRegressor(), ddf, target="score", task="school")
    """
    client = _client(client)
    own_column = getattr(estimator, "task", None)
    _check_estimator(estimator)
    if task is not None and own_column is not None and task != own_column:
        raise TaskError(
            f"task={task!r} was asked for, but the estimator has task={own_column!r}. Give one of them."
        )
    column = own_column if task is None else task
    features = _features(ddf, target, column)
    inputs = [c for c in ddf.columns if c != target] if own_column is not None else features
    with in_one_step(estimator) as draft, _connected(client):
        _fit_draft(draft, ddf, target, column, features, inputs, client)
    return estimator


@with_callbacks
def _fit_draft(
    draft: Any, ddf: Any, target: Any, column: Any, features: Any, inputs: Any, client: Client
) -> None:
    """Fit the copy of an estimator that becomes its state."""
    validate_data(draft, ddf[inputs]._meta, reset=True, skip_check_array=True)
    draft.columns_ = None  # columns of numbers alone
    numbers = is_regressor(draft)
    unlabeled = None if numbers else draft.unlabeled
    columns = Columns(tuple(features), target, column, not numbers, unlabeled)
    read, facts = read_facts(client, list(ddf.to_delayed()), columns)
    draft.tasks_ = None if column is None else join_names([f.tasks for f in facts], "tasks")
    classes = codes = None
    if not numbers:
        classes = join_names([f.classes for f in facts], "labels")
        codes = _encode(draft, classes)
        _refuse_unlabeled(draft, facts)
    n_parts = 0
    if column is None or len(draft.tasks_) == 1:
        n_labeled = sum(f.n_labeled for f in facts)
        n_parts = parts_of_task(n_labeled, draft._count_active([n_labeled], warn=False))
    if n_parts and getattr(draft, "move_basis", False) is True:
        raise ValueError(
            f"move_basis=True: a task of {n_labeled} rows lies in parts on the workers, and its basis "
            "stays at the active points. Leave move_basis='auto', or fit on data in memory."
        )
    rows: Any = ClusterRows(client, read, columns, facts, draft.tasks_, classes, codes, n_parts)
    del read  # the partitions are not kept once their rows are with their tasks
    draft._fit_rows(rows, (None, None, None))  # callbacks get no rows: these are elsewhere


def _client(client: Client | None) -> Client:
    if client is not None:
        return client
    try:
        return get_client()
    except ValueError as error:
        raise ClusterError(
            "there is no Dask client. Start one, for example distributed.Client(), or give client=."
        ) from error


@contextmanager
def _connected(client: Client) -> Iterator[None]:
    """Whatever Dask raises because the scheduler is gone is one kind of error."""
    try:
        yield
    except GleanError:
        raise
    except Exception as error:
        if client.status == "running" and not isinstance(error, CancelledError):
            raise
        raise ClusterError(
            "the connection to the Dask scheduler was lost, or the fit was cancelled there. Start the "
            f"cluster and its client again, then fit. Dask reports: {str(error) or type(error).__name__}"
        ) from error


def _features(ddf: Any, target: Any, task: Any) -> list[Any]:
    names = list(ddf.columns)
    for what, name in (("target", target), ("task", task)):
        if name is not None and names.count(name) != 1:
            raise (TaskError if what == "task" else LabelError)(
                f"{what}={name!r} names {names.count(name)} columns. One is expected; the columns are "
                f"{names}."
            )
    return [name for name in names if name not in (target, task)]


def _check_estimator(estimator: Any) -> None:
    name = type(estimator).__name__
    if not isinstance(estimator, _KNOWN):
        raise TypeError(
            f"gleangp.dask.fit was given {name}. It knows {', '.join(k.__name__ for k in _KNOWN)}; other "
            "estimators fit on data in memory."
        )
    for parameter, allowed in (("coupling", ("kernel", "auto")), ("invariances", (None,))):
        value = getattr(estimator, parameter)
        if value not in allowed:
            raise ValueError(
                f"{parameter}={value!r}: on a cluster tasks share the kernel alone and rows stay where they "
                f"are. Set {parameter}={allowed[0]!r}, or fit on data in memory."
            )
    if np.size(getattr(estimator, "noise_variance", 0.0)) != 1:
        raise ValueError(
            "noise_variance is given per row, which cannot follow rows that are shuffled. Give one number "
            "or None."
        )
    estimator._validate_params()
    selector = estimator._chosen_selector()
    if not (getattr(selector, "task_by_task", False) or isinstance(selector, RandomSelector)):
        raise ValueError(
            f"selector={selector!r} weighs tasks or all rows against each other. On a cluster use "
            "'residual', 'entropy' or 'information' (without swaps), or 'random'."
        )


def _encode(estimator: Any, classes: np.ndarray) -> np.ndarray:
    """Sets `classes_`; the code of each label that occurs."""
    everything = np.ones(len(classes), dtype=bool)
    if isinstance(estimator, SparseGPOrdinal):
        estimator.classes_, codes = estimator._ordered_categories(classes, everything)
    else:
        estimator.classes_, codes = encode_classes(classes, everything, estimator.unlabeled)
    return codes


def _refuse_unlabeled(estimator: Any, facts: list) -> None:
    missing = sum(f.n_rows - f.n_labeled for f in facts)
    if missing and isinstance(estimator, SparseGPClassifier):
        raise LabelError(
            f"{missing} rows have no label (unlabeled={estimator.unlabeled!r}). A model of unlabelled rows "
            "needs all rows in memory; on a cluster leave them out."
        )
