"""Fits and predictions on a Dask cluster.

`fit` learns from a Dask DataFrame: workers read and check its partitions, the rows come to the client once,
and workers compute the sums over blocks of rows, which is most of the work. `predict` maps over partitions.
Needs `pip install gleangp[dask]`.

Beside this, `n_jobs` of every estimator runs on a cluster through joblib's backend
(`joblib.parallel_config(backend="dask")`), with data that the client has.
"""

try:
    import dask.dataframe  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError(
        "gleangp.dask needs Dask with its dataframes and its distributed scheduler: "
        "pip install 'gleangp[dask]'."
    ) from error

from gleangp.dask._fit import fit
from gleangp.dask._predict import predict

__all__ = ["fit", "predict"]
