"""Which rows to label next, and which tasks help which."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gleangp._typing import FloatArray, IntArray
from gleangp.estimators._docs import documented
from gleangp.estimators._one_step import reading
from gleangp.exceptions import TaskError
from gleangp.models.local.answers import (
    TaskTransfer,
    choose_informative,
    noise_of_labels,
    transfer_report,
)
from gleangp.models.local.model import LocalModel
from gleangp.noise import Gaussian
from gleangp.numerics.parallel import threads_for


@documented()
class AnswersMixin:
    """For an estimator with a fitted model of every function that it has."""

    _encode_inputs: Any
    _fitted_models: Any
    _outputs_asked_for: Any
    tasks_: Any

    @reading
    def suggest(self, X_pool: Any, n: int = 1, tasks: Any = None) -> np.ndarray:
        """Which rows to label next: those whose labels would reduce the uncertainty of all rows most.

        For classes, those whose labels bring most information about the latent functions. Rows are chosen
        one after the other, each given those before it, so that they do not repeat each other. The tasks of
        the first rows are those that need labels most.

        Parameters
        ----------
        X_pool : frame or array-like of shape (m, p)
            Rows that could be labelled; at most a few thousand.
        n : int, default=1
            How many to choose.
        tasks : array-like of shape (m,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        ndarray of shape (n,)
            Positions in `X_pool`, the most useful first. If the model has several outputs, shape (n, 2): the
            position, and the number of the output to measure.

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(9 * X[:, 0]))
        >>> model.suggest([[0.5], [3.0], [0.2]], n=1).tolist()  # far from all rows
        [1]
        """
        if n < 1:
            raise ValueError(f"n={n}; at least one row is to be chosen.")
        X, codes = self._encode_inputs(X_pool, tasks, joint=True)
        with threads_for(np.bincount(codes)):
            cov, noise = self._uncertainty(X, codes)
        chosen = choose_informative(cov, noise, n, of_classes=is_classifier(self))
        if q := self._outputs_asked_for(tasks):
            n_rows = len(X) // q
            return np.column_stack([chosen % n_rows, chosen // n_rows])
        return chosen

    @reading
    def transfer_report(self) -> list[TaskTransfer]:
        """What every task gains from the others: left-out log scores with and without them.

        All scores are in closed form, under the parameters of the fit; where the noise is not Gaussian, given
        the sites of the expectation propagation. With more than two classes the scores of all classes add
        up. Names come from up to 3000 rows, evenly chosen; a task of which none is chosen has no names.

        Returns
        -------
        list of TaskTransfer
            One for each task with rows, in the order of `tasks_`: its name `task` and `n_rows`; the mean log
            score of its rows, each left out (in nats per row), `with_others` and `alone`, and the
            difference `gain`; the names of up to three tasks that it `leans_on`, whose rows move its
            predictions most; and those of them it is `better_without`, on which it should not lean.

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X, tasks = rng.uniform(0, 6, (60, 1)), np.repeat(np.arange(10), 6)
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
        >>> report = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks).transfer_report()
        >>> len(report), report[0].gain > 0.0
        (10, True)
        """
        if self.tasks_ is None:
            raise TaskError("transfer_report is about several tasks, and the model was fitted without tasks.")
        models = [m for m in self._fitted_models if isinstance(m, LocalModel) and (m.gaussian or m.targets)]
        if not models:
            raise ValueError(
                "transfer_report is for posterior='local' and labelled rows. The file of a model that an "
                "earlier version fitted to classes, categories or counts has no targets. Fit again."
            )
        units = getattr(self, "_units", None)
        log_units = None if units is None else np.log(units.scale)
        return transfer_report(models, self.tasks_.tolist(), log_units)

    def _uncertainty(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Covariance of the latent functions at rows (k, m, m) and noise of their labels (k, m)."""
        covs, noises = [], []
        for model in self._fitted_models:
            mean, cov = model.predict_cov(X, codes)
            covs.append(cov)
            if not isinstance(model.noise, Gaussian):
                noises.append(noise_of_labels(model.noise, mean, cov))
            elif isinstance(model, LocalModel):
                noises.append(model.noise_variance(codes))
            else:
                raise ValueError("suggest is for posterior='local'. Fit again with it.")
        return np.array(covs), np.array(noises)
