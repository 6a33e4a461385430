"""What the commands on model files do: predict, add tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.base import is_classifier

from gleangp import load, save
from gleangp.cli._encoding import target_of
from gleangp.cli._table_model import TableModel
from gleangp.cli._tables import no_rows, read_chunks, read_table, table_writer
from gleangp.cli._usage import printable
from gleangp.exceptions import TaskError


def load_table_model(path: Path) -> TableModel:
    """A model file that `gleangp fit` wrote."""
    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{path.name!r} holds a {type(model).__name__} that was saved from Python, without the columns "
            "of a table. Load it there with gleangp.load."
        )
    return model


def predict_table(model_path: Path, table: str, output: str, *, new_tasks_from_prior: bool) -> None:
    """Predict a table chunk by chunk."""
    model = load_table_model(model_path)
    text = () if model.encoding.task is None else (model.encoding.task,)
    with table_writer(output) as write:
        n_rows = 0
        for chunk in read_chunks(table, text=text):
            n_rows += len(chunk)
            if len(chunk) == 0:
                continue
            if new_tasks_from_prior and text:
                _add_from_prior(model, model.encoding.tasks(chunk))
            write(model.predict(chunk))
        if n_rows == 0:
            raise no_rows(table)


def _add_from_prior(model: TableModel, tasks: np.ndarray | None) -> None:
    for task in sorted(set(np.asarray(tasks).tolist()) - set(model.known_tasks)):
        model.estimator.add_task(None, None, task=task)


def add_tasks(model_path: Path, table: str, output: Path) -> None:
    """Teach a model the new tasks of a table."""
    model = load_table_model(model_path)
    encoding = model.encoding
    if encoding.task is None:
        raise TaskError("this model was fitted without tasks (--task), so none can be added.")
    frame = read_table(table, (encoding.task,))
    X, tasks = encoding.inputs(frame), encoding.tasks(frame)
    unlabeled = getattr(model.estimator, "unlabeled", None)
    y = target_of(frame, encoding.target, classify=is_classifier(model.estimator), unlabeled=unlabeled)
    names = sorted(set(np.asarray(tasks).tolist()))
    known = [name for name in names if name in model.known_tasks]
    if known:
        raise TaskError(f"the model knows the task {known[0]!r} already. Leave its rows out.")
    for name in names:
        rows = tasks == name
        model.estimator.add_task(X[rows], y[rows], task=name)
    save(model, output)
    print(f"added {printable(', '.join(names))}: {output} now has {len(model.known_tasks)} tasks")
