"""Fits and predictions on a Dask cluster, for data that never visits the client.

`fit` learns from a Dask DataFrame: the cluster shuffles its rows by task, workers keep them, choose active
points and sum evidence, and only active points, sites, gains and sums travel; the client learns the
kernel. `predict` maps over partitions. Needs `pip install gleangp[dask]`.

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
