"""`gleangp.dask.predict`: predictions for a Dask DataFrame, partition by partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from dask.delayed import delayed
from distributed import get_client
from sklearn.utils.validation import check_is_fitted

from gleangp.dask._cluster import send
from gleangp.numerics.parallel import in_worker


def predict(estimator: Any, ddf: Any, task: Any = None, *, method: str = "predict", **options: Any) -> Any:
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
    **options
        For the method, for example `return_std=True`.

    Returns
    -------
    dask.dataframe.DataFrame
        Indexed as `ddf`: "prediction", and "std" if asked for; one column per class of `predict_proba`.

    See Also
    --------
    fit : Learn from a Dask DataFrame.

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
        raise ValueError(
            f"the frame has no columns {missing}, which the estimator was fitted with. Its columns are "
            f"{list(ddf.columns)}."
        )
    columns = _columns(estimator, method, options)
    dtype = estimator.classes_.dtype if method == "predict" and hasattr(estimator, "classes_") else np.float64
    if np.dtype(dtype).kind == "U":
        dtype = object
    meta = pd.DataFrame({c: np.zeros(0, dtype=dtype) for c in columns}, index=ddf._meta.index)
    try:
        model = delayed(send(get_client(), estimator))
    except ValueError:  # no client: Dask computes in this process
        model = delayed(estimator)
    return ddf.map_partitions(_predict_part, model, features, task, method, columns, options, meta=meta)


def _columns(estimator: Any, method: str, options: dict[str, Any]) -> list[str]:
    if method == "predict_proba":
        return [str(c) for c in estimator.classes_]
    if options.get("return_cov"):
        raise ValueError("return_cov=True: partitions do not know of each other's rows. Use return_std.")
    return ["prediction", "std"] if options.get("return_std") else ["prediction"]


@in_worker
def _predict_part(
    part: Any,
    estimator: Any,
    features: list[Any],
    task: Any,
    method: str,
    columns: list[str],
    options: dict[str, Any],
) -> Any:
    if len(part) == 0:
        return pd.DataFrame({c: np.zeros(0) for c in columns}, index=part.index)
    tasks = {} if task is None or estimator.task == task else {"tasks": part[task]}
    values = getattr(estimator, method)(part[features], **tasks, **options)
    if not isinstance(values, tuple):
        values = (values,) if np.ndim(values) == 1 else tuple(np.transpose(values))
    return pd.DataFrame(dict(zip(columns, values, strict=True)), index=part.index)
