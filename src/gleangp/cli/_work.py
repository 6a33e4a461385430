"""What the commands on model files do: predict, absorb rows, add tasks."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gleangp import load, save
from gleangp.cli._encoding import target_of
from gleangp.cli._problem import with_target
from gleangp.cli._table_model import TableModel
from gleangp.cli._tables import columns_of, no_rows, read_chunks, read_table, table_writer
from gleangp.cli._usage import UsageError, about_unknown, note, printable
from gleangp.exceptions import NewTaskWarning, TaskError

_MOST_IN_POOL = 3000  # rows whose joint covariance is looked at


def load_table_model(path: Path) -> TableModel:
    """A model file that `gleangp fit` wrote."""
    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{path.name!r} holds a {type(model).__name__} that was saved from Python, without the columns "
            "of a table. Load it there with gleangp.load; `gleangp inspect` can read it."
        )
    return model


def predict_table(
    model_path: Path,
    table: str,
    output: str,
    *,
    keep: tuple[str, ...] = (),
    interval: float | None = None,
    strict: bool = False,
    encoding: str = "utf-8",
) -> None:
    """Predict a table chunk by chunk; what is unusual in it is counted and said at the end."""
    model = load_table_model(model_path)
    if interval is not None and is_classifier(model.estimator):
        raise UsageError("--interval is for numbers; this model predicts classes and their probabilities.")
    text = _text_columns(model, table, keep, encoding)
    unusual = Unusual(model)
    with table_writer(output) as write:
        for chunk in read_chunks(table, text=text, encoding=encoding):
            with unusual.rows_of(chunk):
                predicted = model.predict(chunk, strict=strict, interval=interval)
            if strict and unusual.said:
                raise ValueError(next(iter(unusual.said)))
            write(_with_kept(predicted, chunk, keep, model))
        if unusual.n_rows == 0:
            raise no_rows(table)
    for message in unusual.messages(", or refuse such rows with --strict"):
        note(message)


class Unusual:
    """What the user should be told of the rows of a table, each thing once."""

    def __init__(self, model: TableModel) -> None:
        self._model = model
        self.n_rows = 0
        self.said: dict[str, None] = {}  # an ordered set
        self._unknown: Counter[str] = Counter()

    @contextmanager
    def rows_of(self, frame: Any) -> Iterator[None]:
        """Keep the warnings about some rows; unknown tasks are counted."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        about = (w for w in caught if issubclass(w.category, UserWarning))
        self.said |= {str(w.message): None for w in about if not issubclass(w.category, NewTaskWarning)}
        self.n_rows += len(frame)
        self._unknown.update(self._model.unknown_tasks(frame))

    def messages(self, remedy: str = "") -> list[str]:
        """Lines of text; `remedy` is for unknown tasks."""
        return [*self.said, *([about_unknown(self._unknown, self.n_rows, remedy)] if self._unknown else [])]


def _text_columns(model: TableModel, table: str, keep: tuple[str, ...], encoding: str) -> tuple[str, ...]:
    """Columns that are read as text: the task, and what is kept and no input, so that 007 stays so."""
    kept = columns_of(table, encoding) if keep == ("all",) else list(keep)
    inputs = {column.name for column in model.columns}
    return tuple({c for c in (*kept, model.encoding.task) if c is not None and c not in inputs})


def _with_kept(predicted: Any, chunk: Any, keep: tuple[str, ...], model: TableModel) -> Any:
    """The predictions with columns of the table before them."""
    wanted = list(chunk.columns) if keep == ("all",) else list(keep)
    missing = [c for c in wanted if c not in chunk.columns]
    if missing:
        raise UsageError(
            f"--keep names the column {missing[0]!r}, but the table has: "
            f"{', '.join(map(repr, map(str, chunk.columns)))}."
        )
    target, task = model.encoding.target, model.encoding.task
    if target in wanted:
        predicted = predicted.rename(columns={target: f"{target}_predicted"})
    kept = chunk[[c for c in wanted if c != task]]
    twice = [c for c in kept.columns if c in predicted.columns]
    if twice:
        raise UsageError(f"--keep {twice[0]}: the predictions have a column of that name. Rename it.")
    key = [] if task is None else [task]
    return predicted[key].join(kept).join(predicted.drop(columns=key))


def suggest_rows(model_path: Path, table: str, output: str, n: int, encoding: str) -> None:
    """Write the rows of a pool whose labels would help most, the most useful first."""
    model = load_table_model(model_path)
    estimator = model.estimator
    if not hasattr(estimator, "suggest"):
        raise UsageError(f"a {type(estimator).__name__} cannot suggest rows. Use --model sparse or coupled.")
    text = _text_columns(model, table, ("all",), encoding)
    frame = read_table(table, text, encoding).reset_index(drop=True)
    if len(frame) > _MOST_IN_POOL:
        note(f"{_MOST_IN_POOL} of the {len(frame)} rows, drawn at random, are looked at.")
        frame = frame.sample(_MOST_IN_POOL, random_state=0)
    unusual = Unusual(model)
    with unusual.rows_of(frame):
        X, tasks = model.inputs(frame), model.encoding.tasks(frame)
        chosen = estimator.suggest(X, n, **({} if tasks is None else {"tasks": tasks}))
    for message in unusual.messages():
        note(message)
    rows = frame.iloc[chosen]
    with table_writer(output) as write:
        write(rows.assign(row=rows.index + 1)[["row", *rows.columns.drop("row", errors="ignore")]])
    if tasks is not None and len(chosen) > 1:
        names, counts = np.unique(tasks[chosen], return_counts=True)
        order = np.argsort(-counts, kind="stable")[:5]
        shown = ", ".join(f"{printable(str(names[k]))} ({counts[k]} of {len(chosen)} rows)" for k in order)
        note(f"labels are needed most in {shown}.")


def learn_rows(model_path: Path, table: str, output: Path, *, known: bool, encoding: str) -> None:
    """Absorb the rows of a table: new tasks are added, and rows of known ones too if `known` allows it."""
    model = load_table_model(model_path)
    estimator, columns = model.estimator, model.encoding
    if columns.task is None and not known:
        raise TaskError("this model was fitted without tasks (--task), so none can be added.")
    frame = read_table(table, () if columns.task is None else (columns.task,), encoding)
    unlabeled, classify = getattr(estimator, "unlabeled", None), is_classifier(estimator)
    if classify and unlabeled is None:
        frame = with_target(frame, columns.target)
    X, tasks = model.inputs(frame, strict=True), columns.tasks(frame)
    y = target_of(frame, columns.target, classify=classify, unlabeled=unlabeled)
    fields = columns.fields_of(frame)
    old = np.ones(len(X), dtype=bool) if tasks is None else np.isin(tasks, model.known_tasks)
    if old.any():
        if not known and tasks is not None:
            raise TaskError(
                f"the model knows the task {str(tasks[old][0])!r} already. Leave its rows out, or absorb "
                "them with `gleangp update`."
            )
        given = {} if tasks is None else {"tasks": tasks[old]}
        _absorb(estimator, X[old], y[old], {**given, **{name: f[old] for name, f in fields.items()}})
    names = [] if tasks is None else sorted(set(tasks[~old].tolist()))
    for name in names:
        rows = tasks == name
        estimator.add_task(X[rows], y[rows], task=name, **{field: f[rows] for field, f in fields.items()})
    summary = model.summary
    summary["rows_added"] = summary.get("rows_added", 0) + len(X)
    save(model, output)
    parts = [f"absorbed {int(old.sum())} rows"] if old.any() else []
    parts += [f"added {printable(', '.join(names))}"] if names else []
    count = "" if tasks is None else f": {output} now has {len(model.known_tasks)} tasks"
    print(", ".join(parts) + (count or f": {output}"))


def _absorb(estimator: Any, X: np.ndarray, y: np.ndarray, given: dict[str, Any]) -> None:
    if not hasattr(estimator, "partial_fit"):
        raise ValueError(
            f"a {type(estimator).__name__} cannot absorb rows of tasks that it knows. Fit it again with all "
            "rows: `gleangp fit`."
        )
    without = int(np.isnan(y).sum()) if y.dtype.kind == "f" else 0
    if without:
        note(f"{without} of {len(y)} rows have no target and are left out.")
    estimator.partial_fit(X, y, **given)
