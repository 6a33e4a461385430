"""`gleangp.dask.fit`: learn from a Dask DataFrame."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from dask.dataframe.dispatch import concat
from distributed import Client
from sklearn.base import is_regressor

from gleangp._compat import validate_parameters
from gleangp.dask._cluster import BlocksOnCluster, connected, current_client, gather, submit
from gleangp.data.columns import as_column, missing_entries
from gleangp.data.labels import check_class_target, check_regression_target, split_unlabeled
from gleangp.data.tasks import encode_tasks
from gleangp.exceptions import GleanError, LabelError, TaskError
from gleangp.numerics.parallel import blocks_elsewhere

_SHOWN = 5  # partitions in an error message


def fit(
    estimator: Any,
    ddf: Any,
    target: Any,
    task: Any = None,
    *,
    client: Client | None = None,
    **columns: Any,
) -> Any:
    """Fit an estimator on a Dask DataFrame, with the work on many rows done by the workers.

    The result is what `estimator.fit` gives on the same rows in memory, in the order of `ddf.compute()`.

    Parameters
    ----------
    estimator : SparseGPRegressor, SparseGPClassifier, SparseGPOrdinal or another of gleangp's
        Fitted in place; unchanged if the fit fails. The others, and `posterior="active"`, fit on the client
        once the rows are there.
    ddf : dask.dataframe.DataFrame
        Rows of all tasks, in any order; columns that are not named below are the features.
    target : str
        Column of the targets.
    task : str, default=None
        Column of the tasks. The estimator's own `task=` column is used if it names one, and is then part of
        what `predict` expects. None in both: one task.
    client : distributed.Client, default=None
        None: the current one.
    **columns : str
        Columns of what `estimator.fit` takes for each row, such as `sample_weight="weight"`.

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
    A fitted model keeps its training rows, so the client has memory for all rows: rows times features. It
    learns the parameters from up to 15 000 of them. Workers then compute the posterior of all rows, block by
    block, and send sums over blocks. The client adds them in the same order as in memory: the result is the
    same bit for bit, if BLAS has one thread there too, and else to rounding.

    If a worker fails, others do its work again. The result is the same.

    Examples
    --------
    >>> import gleangp.dask
    >>> from distributed import Client                                      # doctest: +SKIP
    >>> client = Client()                                                   # doctest: +SKIP
    >>> model = gleangp.dask.fit(                                           # doctest: +SKIP
    ...     gleangp.SparseGPRegressor(), ddf, target="score", task="school")
    """
    client = current_client(client)
    own_task = _check_estimator(estimator, columns)
    if task is not None and own_task is not None and task != own_task:
        raise TaskError(
            f"task={task!r} was asked for, but the estimator has task={own_task!r}. Give one of them."
        )
    task = own_task if task is None else task
    used = {"target": target, "task": task, **columns}
    features = _features(list(ddf.columns), used)
    classes, unlabeled = not is_regressor(estimator), getattr(estimator, "unlabeled", None)
    needed = [*features, *(name for name in used.values() if name is not None)]
    with connected(client):
        frame = _bring(client, ddf, needed, features, target, task, classes, unlabeled)
        given = {name: frame[column].to_numpy() for name, column in columns.items()}
        if task is not None and own_task is None:
            given["tasks"] = frame[task]
        inputs = features if own_task is None else [c for c in ddf.columns if c in (*features, own_task)]
        with blocks_elsewhere(partial(BlocksOnCluster, client)):
            return estimator.fit(frame[inputs], frame[target], **given)


def _trouble(frame: Any, features: list[Any], target: Any, task: Any, classes: bool, unlabeled: Any) -> str:
    """What is wrong with a partition; "" if nothing is.

    `classes`: targets are labels and not numbers; `unlabeled` is the label that means "no label".
    """
    try:
        for name in features:
            column = frame[name]
            if column.dtype.kind == "f" and np.isinf(column.to_numpy(np.float64, na_value=np.nan)).any():
                raise ValueError(f"column {name!r} contains infinity. Finite numbers are expected.")
        if len(frame) and task is not None:
            encode_tasks(frame[task], len(frame))
        if len(frame) and classes:
            split_unlabeled(check_class_target(frame[target], len(frame)), unlabeled)
        elif not missing_entries(as_column(frame[target], "y", LabelError)).all():
            check_regression_target(frame[target], len(frame))
    except (GleanError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _bring(client: Client, ddf: Any, columns: list[Any], *given: Any) -> Any:
    """The rows of all partitions, in their order, if nothing is wrong with any; `given` is for `_trouble`."""
    parts = client.compute([part[columns] for part in ddf.to_delayed()])
    troubles = gather(client, [submit(client, _trouble, part, *given) for part in parts])
    bad = [(k, trouble) for k, trouble in enumerate(troubles) if trouble]
    if bad:
        listed = "\n".join(f"  partition {k}: {trouble}" for k, trouble in bad[:_SHOWN])
        more = f"\n  and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise LabelError(
            f"{len(bad)} of {len(parts)} partitions have rows that cannot be learnt from. Filter or repair "
            f"them in the Dask DataFrame.\n{listed}{more}"
        )
    frames = gather(client, parts)
    return concat([f for f in frames if len(f)] or frames[:1]).reset_index(drop=True)


def _check_estimator(estimator: Any, columns: dict[str, Any]) -> Any:
    """The task column of the estimator, if it can be fitted here."""
    can_fit = callable(getattr(estimator, "fit", None)) and not isinstance(estimator, type)
    known = set(signature(estimator.fit).parameters) if can_fit else set()
    if "tasks" not in known:
        raise TypeError(
            f"gleangp.dask.fit was given {estimator!r}, and expects an estimator of gleangp's. "
            "Other estimators fit on data in memory."
        )
    known -= {"X", "y", "tasks"}
    unknown = sorted(set(columns) - known)
    if unknown:
        raise TypeError(
            f"{type(estimator).__name__}.fit takes no {unknown[0]!r} of each row. It takes: "
            f"{', '.join(sorted(known)) or 'nothing more'}."
        )
    validate_parameters(estimator)
    return estimator.task


def _features(names: list[Any], used: dict[str, Any]) -> list[Any]:
    """The columns that are left for the features; those used otherwise must be there once."""
    for what, name in used.items():
        if name is not None and names.count(name) != 1:
            raise (TaskError if what == "task" else LabelError)(
                f"{what}={name!r} names {names.count(name)} columns. One is expected; the columns are "
                f"{names}."
            )
    return [name for name in names if name not in used.values()]
