"""What every loader returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch


def make_bunch(
    data: np.ndarray,
    target: np.ndarray,
    tasks: np.ndarray | None,
    *,
    feature_names: list[str],
    target_names: list[str],
    description: str,
    as_frame: bool,
    return_X_y: bool,
    raw: dict[str, np.ndarray] | None = None,
    **more: Any,
) -> Any:
    """A Bunch, or (X, y), or (X, y, tasks) where there are tasks.

    `raw` are the inputs in their own types, for the data frame; left out, they are the columns of `data`.
    """
    frame = None
    X: Any = data
    y: Any = target
    t: Any = tasks
    if as_frame:
        import pandas as pd

        X = pd.DataFrame(raw if raw is not None else data, columns=None if raw is not None else feature_names)
        y = (
            pd.Series(target, name=target_names[0])
            if target.ndim == 1
            else pd.DataFrame(target, columns=target_names)
        )
        parts = [X, y]
        if tasks is not None:
            t = pd.Series(tasks, name="task")
            parts.insert(0, t)
        frame = pd.concat(parts, axis=1)
    if return_X_y:
        return (X, y) if tasks is None else (X, y, t)
    return Bunch(
        data=X,
        target=y,
        tasks=t,
        feature_names=list(X.columns) if as_frame else feature_names,
        target_names=target_names,
        frame=frame,
        DESCR=description,
        **more,
    )
