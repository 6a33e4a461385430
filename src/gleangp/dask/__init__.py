"""Fits and predictions on a Dask cluster.

Needs `pip install gleangp[dask]`. Beside this, `n_jobs` of every estimator runs on a cluster through joblib's
backend (`joblib.parallel_config(backend="dask")`), with data that the client has.
"""

try:
    import dask.dataframe  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError(
        "gleangp.dask needs Dask with its dataframes and its distributed scheduler: "
        "pip install 'gleangp[dask]'."
    ) from error

from gleangp.dask._frames import fit, predict

__all__ = ["fit", "predict"]
