"""Who helps whom."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from gleangp.exceptions import TaskError
from gleangp.models.local.answers import TaskTransfer, transfer_report


class TransferMixin:
    """For an estimator that scores its left-out targets (`_left_out_scores`)."""

    _left_out_scores: Any
    tasks_: Any

    def transfer_report(self) -> list[TaskTransfer]:
        """What every task gains from the others: left-out log scores with and without them.

        All scores are in closed form, under the parameters of the fit; for classes, given the sites of the
        expectation propagation. With more than two classes the scores of all classes add up. Names come from
        up to 3000 rows, evenly chosen; a task of which none is chosen has no names.

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
        scores = self._left_out_scores()
        if self.tasks_ is None:
            raise TaskError("transfer_report is about several tasks, and the model was fitted without tasks.")
        return transfer_report(scores, self.tasks_.tolist())
