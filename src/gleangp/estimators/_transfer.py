"""Who helps whom."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gleangp.estimators._sparse import models_of
from gleangp.exceptions import TaskError
from gleangp.models.local.answers import TaskTransfer, transfer_report


class TransferMixin:
    """For an estimator with `_model`, or with `_models` for more than one function."""

    tasks_: Any

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
        check_is_fitted(self)
        if self.tasks_ is None:
            raise TaskError("transfer_report is about several tasks, and the model was fitted without tasks.")
        models = models_of(self)
        if not all(getattr(m, "gaussian", False) or getattr(m, "targets", None) for m in models):
            raise ValueError(
                "transfer_report is for posterior='local' and labelled rows. The file of a model that an "
                "earlier version fitted to classes, categories or counts has no targets. Fit again."
            )
        units = getattr(self, "_units", None)
        log_units = None if units is None else np.log(units.scale)
        return transfer_report(models, self.tasks_.tolist(), log_units)
