"""Fits and predictions on a Dask cluster.

Needs `pip install gleangp[dask]`. Beside this, `n_jobs` of every estimator runs on a cluster through joblib's
backend (`joblib.parallel_config(backend="dask")`), with data that the client has.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray, IntArray
from gleangp.data.columns import as_column, missing_entries
from gleangp.data.labels import check_class_target, check_regression_target, split_unlabeled
from gleangp.data.tasks import encode_tasks
from gleangp.exceptions import ClusterError, GleanError, LabelError, TaskError
from gleangp.inference.block import Layout, Stack
from gleangp.inference.prior import BlockPrior, Term
from gleangp.numerics.parallel import blocks_elsewhere, in_worker

try:
    import pandas as pd
    from dask.dataframe.dispatch import concat
    from dask.delayed import delayed
    from distributed import Client, Future, get_client
    from distributed.scheduler import KilledWorker
except ImportError as error:
    raise ImportError(
        "gleangp.dask needs Dask with its dataframes and its distributed scheduler: "
        "pip install 'gleangp[dask]'."
    ) from error

__all__ = ["fit", "predict"]

_SHOWN = 5  # partitions in an error message
_PART_ROWS = 5000  # of consecutive stacks that one worker computes at a time
_AT_ONCE = 16  # parts whose results come to the client together


def fit(
    estimator: Any, ddf: Any, target: Any, task: Any = None, *, client: Client | None = None, **columns: Any
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

    Raises
    ------
    LabelError, TaskError
        Rows that cannot be learnt from, with their partitions.
    ClusterError
        No cluster, a connection to it that was lost, or workers that died again and again.

    Notes
    -----
    The client needs memory for all rows, which a fitted model keeps. It learns the parameters from up to
    15 000 of them. Workers compute the posterior of all rows, and the client adds up what they send, in the
    order in which it is added in memory. If a worker fails, others do its work again.

    Examples
    --------
    >>> import gleangp.dask
    >>> from distributed import Client                                      # doctest: +SKIP
    >>> client = Client()                                                   # doctest: +SKIP
    >>> model = gleangp.dask.fit(                                           # doctest: +SKIP
    ...     gleangp.SparseGPRegressor(), ddf, target="score", task="school")
    """
    try:
        client = get_client() if client is None else client
    except ValueError as error:
        found = "there is no Dask client. Start one, for example distributed.Client(), or give client=."
        raise ClusterError(found) from error
    _check_estimator(estimator, columns)
    own_task = estimator.task
    if task is not None and own_task is not None and task != own_task:
        raise TaskError(f"task={task!r} is given, but the estimator has task={own_task!r}. Give one of them.")
    task = own_task if task is None else task
    used = {"target": target, "task": task, **columns}
    names = list(ddf.columns)
    for what, name in used.items():
        if name is not None and names.count(name) != 1:
            raise (TaskError if what == "task" else LabelError)(
                f"{what}={name!r} names {names.count(name)} columns. One is expected; there are {names}."
            )
    features = [name for name in names if name not in used.values()]
    classes, unlabeled = not is_regressor(estimator), getattr(estimator, "unlabeled", None)
    needed = [*features, *(name for name in used.values() if name is not None)]
    with connected(client):
        frame = _bring(client, ddf, needed, features, target, task, classes, unlabeled)
        given = {name: frame[column].to_numpy() for name, column in columns.items()}
        if task is not None and own_task is None:
            given["tasks"] = frame[task]
        inputs = features if own_task is None else [c for c in names if c in (*features, own_task)]
        with blocks_elsewhere(partial(BlocksOnCluster, client)):
            return estimator.fit(frame[inputs], frame[target], **given)


def _trouble(frame: Any, features: list[Any], target: Any, task: Any, classes: bool, unlabeled: Any) -> str:
    """What is wrong with a partition, whose targets are `classes` or numbers; "" if nothing is."""
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


def _check_estimator(estimator: Any, columns: dict[str, Any]) -> None:
    """Raise if the estimator cannot be fitted here, or takes no such columns."""
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


def predict(
    estimator: Any,
    ddf: Any,
    task: Any = None,
    *,
    method: str = "predict",
    client: Client | None = None,
    **options: Any,
) -> Any:
    """Predictions of a fitted estimator, one row for every row of `ddf`.

    Parameters
    ----------
    estimator : fitted estimator
        Any of gleangp's, however it was fitted.
    ddf : dask.dataframe.DataFrame
        The features of `fit` (others are left out where the estimator knows the names), and the tasks.
    task : str, default=None
        Column of the tasks, for an estimator fitted with tasks that names no column of its own.
    method : str, default="predict"
        Which method to call, for example "predict_proba".
    client : distributed.Client, default=None
        To which the estimator is sent once. None: the current one, if there is one.
    **options
        For the method, for example `return_std=True`.

    Returns
    -------
    dask.dataframe.DataFrame
        Indexed as `ddf`: "prediction", and "std" if asked for; for a method with several values per row, one
        column for each class or quantile, "low" and "high", or "mean" and "var".

    Examples
    --------
    >>> import gleangp.dask
    >>> gleangp.dask.predict(model, ddf, return_std=True).compute()        # doctest: +SKIP
    """
    check_is_fitted(estimator)
    names = getattr(estimator, "feature_names_in_", None)
    features = [c for c in ddf.columns if c != task] if names is None else list(names)
    missing = [c for c in features if c not in list(ddf.columns)]
    if missing:
        found = f"the frame has no columns {missing}, which the estimator was fitted with"
        raise ValueError(f"{found}. Its columns are {list(ddf.columns)}.")
    columns = _columns_of(estimator, method, options)
    if options.get("return_cov"):
        raise ValueError("return_cov=True: partitions do not know of each other's rows. Use return_std.")
    dtype = estimator.classes_.dtype if method == "predict" and hasattr(estimator, "classes_") else np.float64
    if np.dtype(dtype).kind == "U":
        dtype = object
    meta = pd.DataFrame({c: np.zeros(0, dtype=dtype) for c in columns}, index=ddf._meta.index)
    try:
        model = delayed(send(client or get_client(), estimator))
    except ValueError:  # no client: Dask computes in this process
        model = delayed(estimator)
    return ddf.map_partitions(_predict_part, model, features, task, method, columns, options, meta=meta)


def _columns_of(estimator: Any, method: str, options: dict[str, Any]) -> list[str]:
    """Names of the values that a method has for every row."""
    if not hasattr(estimator, method):
        raise ValueError(f"method={method!r} is no method of {type(estimator).__name__}.")
    if method == "predict_proba" or (method == "decision_function" and len(estimator.classes_) > 2):
        return [str(c) for c in estimator.classes_]
    if method == "predict_quantiles":
        return [str(q) for q in np.ravel(options["quantiles"])]
    several = {"predict_interval": ["low", "high"], "predict_latent": ["mean", "var"]}
    return several.get(method, ["prediction", "std"] if options.get("return_std") else ["prediction"])


@in_worker
def _predict_part(
    part: Any, estimator: Any, features: list[Any], task: Any, method: str, columns: list[str], options: Any
) -> Any:
    if len(part) == 0:
        return pd.DataFrame({c: np.zeros(0) for c in columns}, index=part.index)
    tasks = {} if task is None or estimator.task == task else {"tasks": part[task]}
    values = getattr(estimator, method)(part[features], **tasks, **options)
    if not isinstance(values, tuple):
        values = (values,) if np.ndim(values) == 1 else tuple(np.transpose(values))
    return pd.DataFrame(dict(zip(columns, values, strict=True)), index=part.index)


def submit(client: Client, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """A task whose arguments the scheduler keeps, so that it can be done again."""
    with warnings.catch_warnings():
        # Data that are scattered to workers would die with them, so they travel with the task.
        warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
        return client.submit(function, *arguments, pure=False)


def send(client: Client, value: Any) -> Future[Any]:
    """A value that workers fetch once, from each other."""
    return submit(client, lambda given: given, value)


def gather(client: Client, futures: list[Future[Any]]) -> list[Any]:
    """Their results, or an error with what to do."""
    try:
        return client.gather(futures)
    except KilledWorker as error:
        raise ClusterError(
            "workers died again and again over the same part of the data, which happens when one is out of "
            f"memory. Give workers more memory, or ask for fewer active points. Dask reports: {error}"
        ) from error
    except MemoryError as error:
        raise ClusterError(
            "a worker could not get the memory it needs. Give workers more, or ask for fewer active points."
        ) from error


@contextmanager
def connected(client: Client) -> Iterator[None]:
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


class Part(NamedTuple):
    """Some consecutive stacks."""

    stacks: list[tuple[int, Stack]]  # with their groups
    rows: IntArray  # (k + 1,) their rows, and the number of a padded one
    content: Future[Any]  # inputs and layout of these rows


class BlocksOnCluster:
    """`BlockPrior.map` of one prior, with every stack computed by some worker.

    A part of the stacks travels once, with the inputs of its rows. Each pass sends the sites of the rows, and
    gets back sums over blocks or numbers for each row. The client adds them up in the order of the stacks, as
    in memory, so the result is the same.
    """

    def __init__(self, client: Client, prior: BlockPrior):
        self._client = client
        self._model = send(client, (prior.terms, prior.Z))
        stacks = [(g, stack) for g, group in enumerate(prior.layout.groups) for stack in group.stacks]
        ends = np.cumsum([stack.rows.size for _, stack in stacks])
        numbered = zip(((ends - 1) // _PART_ROWS).tolist(), stacks, strict=True)
        self._parts = [
            self._send_part(prior, [stack for _, stack in members])
            for _, members in groupby(numbered, key=itemgetter(0))
        ]

    def __call__(
        self,
        function: Callable[..., Any],
        by_row: Sequence[FloatArray],
        shared: tuple[Any, ...],
        by_group: Sequence[Any],
    ) -> Iterator[tuple[int, IntArray, Any]]:
        """As `BlockPrior.map`."""
        of_all = self._model, send(self._client, (function, shared))
        of_group = [None if given is None else send(self._client, given) for given in by_group]
        futures: list[Any] = []
        for part in self._parts:
            arrays = [values[part.rows] for values in by_row]
            of_groups = [of_group[g] for g in dict.fromkeys(g for g, _ in part.stacks)]
            futures.append(submit(self._client, _map_part, *of_all, part.content, arrays, of_groups))
        for start in range(0, len(futures), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            for part, results in zip(self._parts[some], gather(self._client, futures[some]), strict=True):
                for (g, stack), result in zip(part.stacks, results, strict=True):
                    yield g, stack.rows, result
            futures[some] = [None] * len(futures[some])  # workers need not keep them

    def _send_part(self, prior: BlockPrior, stacks: list[tuple[int, Stack]]) -> Part:
        """Stacks whose rows are numbered among themselves, and the inputs of these rows."""
        n = len(prior.X)
        every = np.concatenate([stack.rows[stack.rows < n] for _, stack in stacks])
        place = np.full(n + 1, len(every))  # also that of a padded row
        place[every] = np.arange(len(every))
        groups = [
            replace(prior.layout.groups[g], stacks=[replace(s, rows=place[s.rows]) for _, s in members])
            for g, members in groupby(stacks, key=itemgetter(0))
        ]
        layout = Layout(prior.layout.codes[every], groups)
        return Part(stacks, np.append(every, n), send(self._client, (prior.X[every], layout)))


@in_worker
def _map_part(
    model: tuple[list[Term], FloatArray],
    of_all: tuple[Callable[..., Any], tuple[Any, ...]],
    content: tuple[FloatArray, Layout],
    by_row: list[FloatArray],
    by_group: list[Any],
) -> list[Any]:
    """The function of every stack of a part."""
    (terms, Z), (function, shared), (X, layout) = model, of_all, content
    prior = BlockPrior(terms, X, layout, Z)
    return [result for _, _, result in prior.map(function, by_row, shared, by_group)]
