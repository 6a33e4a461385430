"""Cross-validation with tasks: new rows of known tasks, or new tasks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold
from sklearn.utils import check_random_state

from gleangp.data.tasks import encode_tasks, take_task_column
from gleangp.exceptions import TaskError


class TaskKFold(GroupKFold):
    """Folds for data with tasks: rows within every task, or whole tasks.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    known : bool, default=True
        True: the rows of every task are spread over the folds: the score is that of new rows of known tasks.
        False: whole tasks are held out: the score is that of new tasks without labels.
    task : str or int, default=None
        Name or position of the column of X that holds the task, where `split` gets no `groups`.
    shuffle : bool, default=False
        Whether to shuffle rows (or tasks). If False, test rows of a task are neighbours, as with `KFold`.
    random_state : int, RandomState or None, default=None
        For the shuffling.

    See Also
    --------
    sklearn.model_selection.GroupKFold : What `known=False` is, with the tasks as groups.

    Examples
    --------
    >>> from gleangp import TaskKFold
    >>> tasks = ["ann", "ann", "bob", "bob", "cid", "cid"]
    >>> [test.tolist() for _, test in TaskKFold(2).split(tasks, groups=tasks)]
    [[0, 2, 4], [1, 3, 5]]
    >>> [test.tolist() for _, test in TaskKFold(3, known=False).split(tasks, groups=tasks)]
    [[4, 5], [2, 3], [0, 1]]
    >>> TaskKFold(3).get_n_splits()
    3
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        known: bool = True,
        task: str | int | None = None,
        shuffle: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_splits, shuffle=shuffle, random_state=random_state)
        self.known = known
        self.task = task

    def _iter_test_indices(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[np.ndarray]:
        if groups is None:
            if self.task is None:
                given = "TaskKFold was given no tasks"
                raise TaskError(f"{given}. Name the column of X that holds them (task=), or pass groups=.")
            groups = take_task_column(X, self.task)[1]
        _, codes = encode_tasks(groups, len(groups))
        if not self.known:
            yield from super()._iter_test_indices(codes, None, codes)
            return
        rows = np.arange(len(codes))
        if self.shuffle:
            check_random_state(self.random_state).shuffle(rows)
        rows = rows[np.argsort(codes[rows], kind="stable")]
        folds = np.arange(len(rows)) % self.n_splits  # dealt out in turns, one task after the other
        folds = folds[np.lexsort((folds, codes[rows]))]  # neighbours of a task go to the same fold
        for fold in range(self.n_splits):
            yield np.sort(rows[folds == fold])
