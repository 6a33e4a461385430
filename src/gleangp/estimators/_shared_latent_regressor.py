"""`SharedLatentGPRegressor`: tasks regressed in one low-dimensional latent space that they share."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_regression_target
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._observations import TaskRegressorMixin
from gleangp.estimators._parameters import parameters
from gleangp.estimators._shared_latent import SharedLatentMixin
from gleangp.models.latent.model import Labels
from gleangp.models.units import own_units


@parameters
class SharedLatentGPRegressor(SharedLatentMixin, TaskRegressorMixin, BaseEstimator):
    """Regression in a latent space of few dimensions that all tasks share.

    The same model as `SharedLatentGPClassifier`, with numbers for labels: one Gaussian process maps latent
    positions to the features of all rows, and for every task another maps them to its targets.

    See Also
    --------
    SharedLatentGPClassifier : The same for classes.
    SparseGPRegressor : Tasks that share a kernel over the features themselves.

    Notes
    -----
    All features share one unit: standardise those that are in different ones. Targets are standardised
    task by task. Rows without a target (NaN) help to find the latent space. Training costs O(n^3).

    References
    ----------
    Urtasun, Quattoni & Darrell 2007; Lawrence & Quiñonero-Candela 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SharedLatentGPRegressor
    >>> t = np.linspace(-2, 2, 60)
    >>> X = np.column_stack([t, np.sin(t), np.cos(t)])
    >>> model = SharedLatentGPRegressor(1, hidden_units=10, random_state=0)
    >>> model = model.fit(X[::2], t[::2] ** 2)
    >>> model.score(X[1::2], t[1::2] ** 2) > 0.95
    True
    >>> model.predict(X[:4]).shape, model.transform(X[:4]).shape
    ((4,), (4, 1))
    >>> model.inverse_transform(model.transform(X[:4])).shape
    (4, 3)

    Two tasks in one space, and a third one from four rows:

    >>> tasks = np.where(np.arange(60) % 2, "a", "b")
    >>> model = SharedLatentGPRegressor(1, hidden_units=10, random_state=0)
    >>> model = model.fit(X, t**2, tasks)
    >>> model = model.add_task(X[::15], -t[::15], task="c")
    >>> model.tasks_.tolist()
    ['a', 'b', 'c']
    """

    _targets_are_signs = False
    _fitted_parts = ("_model", "embedding_", "basis_", "_units")

    def predict(self, X: Any, tasks: Any = None, return_std: bool = False) -> Any:
        """Mean of the targets, with their standard deviation if asked for.

        Parameters
        ----------
        return_std : bool, default=False
            Return the standard deviation of a new target as well, its noise included.

        Returns
        -------
        mean : ndarray of shape (n,)
        std : ndarray of shape (n,)
            Only if asked for.
        """
        X, codes = self._encode_inputs(X, tasks)
        mean: FloatArray = np.empty(len(X))
        std: FloatArray = np.empty(len(X))
        for _, rows, m, v in self._label_predictions(X, codes):
            mean[rows], std[rows] = m[:, 0], np.sqrt(v[:, 0])
        mean = self._units.from_standard(mean, codes)
        return (mean, std * self._units.scale[codes]) if return_std else mean

    def _labels(self, y: Any, codes: IntArray) -> list[Labels]:
        y, labeled = check_regression_target(y, len(codes))
        rows = [r[labeled[r]] for r in blocks_of_rows(codes, self._n_tasks)]
        for t, r in enumerate(rows):
            self._check_rows(len(r), self._task_name(t))
        self._units = own_units([y[r] for r in rows])
        standard = self._units.to_standard(y, codes)
        return [Labels(r, standard[r, None]) for r in rows]

    def _labels_of_new_task(self, y: Any, n_rows: int, task: Any) -> Labels:
        y = check_regression_target(y, n_rows)[0] if n_rows else np.zeros(0)
        rows = np.flatnonzero(~np.isnan(y))
        if n_rows:
            self._check_rows(len(rows), task)
        self._units = self._units.with_task(y[rows])
        return Labels(rows, self._units.to_standard(y[rows], np.full(len(rows), -1))[:, None])

    def _label_columns(self) -> list[int]:
        return [1] * len(self._units.mean)
