"""What the page asks of a model: its inputs, predictions, a curve along one input, the nearest rows."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from gleangp._typing import FloatArray
from gleangp.cli._table_model import TableModel
from gleangp.cli._tables import CsvWriter, read_chunks
from gleangp.cli._work import Unusual
from gleangp.data.tables import ColumnEncoding, encode_columns
from gleangp.plots._base import kept_points
from gleangp.report.charts import Chart, span

_GRID = 60
_NEAREST = 5
_MOST_CURVES = 30  # inputs that are ordered by their effect
_COVERAGE = 0.95
_ROUNDING = 1e-9  # of the largest value: what is left of a constant after inputs were transformed and back

_LONGEST_NOTE = 2000  # characters, in a header; chunks of a long table repeat themselves


class Answers:
    """A model of a table, asked in terms of its columns.

    Parameters
    ----------
    model : TableModel
        What `gleangp fit` wrote.
    """

    def __init__(self, model: TableModel) -> None:
        self.model = model
        ends = np.cumsum([0, *(len(c.feature_names) for c in model.columns)]).tolist()
        self._positions = {
            c.name: list(range(a, b)) for c, a, b in zip(model.columns, ends, ends[1:], strict=False)
        }
        self._kept = [kept_points(model.estimator, code) for code in range(max(1, len(model.known_tasks)))]
        rows = [kept for kept in self._kept if kept is not None and len(kept)]
        # Of all tasks: a column may be constant within one, but for rounding.
        spread, size = (f(np.concatenate(rows), axis=0) for f in (np.std, _largest)) if rows else (0.0, 0.0)
        self._spread = np.where(spread > _ROUNDING * size, spread, 1.0)
        self._curves = self._by_effect()

    def describe(self) -> dict[str, Any]:
        """Target, tasks, and inputs with their kinds and ranges."""
        encoding, classify = self.model.encoding, is_classifier(self.model.estimator)
        return {
            "target": encoding.target,
            "task": encoding.task,
            "tasks": self.model.known_tasks,
            "classes": [str(c) for c in self.model.estimator.classes_] if classify else None,
            "inputs": [self._describe_input(column) for column in self.model.columns],
            "curves": self._curves,
        }

    def _by_effect(self) -> list[str]:
        """Inputs in the order in which curves are offered: numbers and dates first, by their effect.

        The effect is the range of the curve of the first task with all other inputs in the middle.
        """
        known = [self._describe_input(column) for column in self.model.columns]
        row = {c["name"]: c.get("middle", (c.get("categories") or [""])[0]) for c in known}
        for c in known:
            if c["kind"] == "boolean":
                row[c["name"]] = "false"
        if self.model.encoding.task is not None:
            row[self.model.encoding.task] = self.model.known_tasks[0]
        numbers = [c["name"] for c in known if "middle" in c and c["kind"] != "boolean"]
        if 1 < len(numbers) <= _MOST_CURVES:
            numbers.sort(key=lambda name: -float(np.ptp(self.curve(row, name)["mean"])))
        return [*numbers, *(c["name"] for c in known if c["name"] not in numbers)]

    def _describe_input(self, column: ColumnEncoding) -> dict[str, Any]:
        out: dict[str, Any] = {"name": column.name, "kind": column.kind}
        if column.kind == "category":
            return {**out, "categories": list(column.categories)}
        known = [column.cell(value) for value in self._range_of(column)]
        return {**out, **dict(zip(("low", "middle", "high"), known, strict=True))}

    def _range_of(self, column: ColumnEncoding) -> list[float]:
        """Least, median and largest number; of a date, days since the first."""
        known = self.model.summary.get("ranges", {}).get(column.name)
        if known is None:
            values = self._kept_values(column.name)
            known = np.quantile(values, [0.0, 0.5, 1.0]).tolist() if len(values) else [0.0, 0.5, 1.0]
        return known

    def _kept_values(self, name: str) -> FloatArray:
        parts = [k[:, self._positions[name][0]] for k in self._kept if k is not None]
        return np.concatenate(parts) if parts else np.zeros(0)

    def predict(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Predictions of rows, as `gleangp predict` names them."""
        if not rows or not all(isinstance(row, dict) for row in rows):
            raise ValueError(
                '"rows" should be a list of objects, one for each row, with the columns of the table.'
            )
        return self._predict(pd.DataFrame(rows)).to_dict("records")

    def _predict(self, frame: Any, interval: float | None = None, *, strict: bool = True) -> Any:
        """Predictions of a frame, for an exposure of 1 where it has none."""
        missing = [c for c in self.model.encoding.fields.values() if c not in frame.columns]
        interval = None if is_classifier(self.model.estimator) else interval
        return self.model.predict(
            frame.assign(**dict.fromkeys(missing, 1.0)), strict=strict, interval=interval
        )

    def table(self, text: bytes) -> tuple[bytes, str]:
        """A CSV table -> its rows with their predictions, as CSV; and what is to be said of them.

        As `gleangp predict` does, gaps, categories and tasks that were not seen are predicted.
        """
        task, unusual = self.model.encoding.task, Unusual(self.model)
        out = io.StringIO()
        write = CsvWriter(out, ",")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "upload.csv"
            path.write_bytes(text)
            for chunk in read_chunks(str(path), text=() if task is None else (task,)):
                with unusual.rows_of(chunk):
                    found = self.model.predict(chunk)
                found = found.rename(columns=lambda c: c if c == task else f"predicted {c}")
                write(chunk.join(found.drop(columns=[] if task is None else [task])))
        if unusual.n_rows == 0:
            raise ValueError("the table has no rows, but at least one is needed.")
        return out.getvalue().encode(), shorten(
            " ".join(unusual.messages()), _LONGEST_NOTE, placeholder=" ..."
        )

    def curve(self, row: dict[str, Any], along: str) -> dict[str, Any]:
        """Prediction of one row, the curve along one of its inputs as numbers and SVG, the nearest rows."""
        column = next((c for c in self.model.columns if c.name == along), None)
        if column is None:
            raise ValueError(
                f'"along" is {along!r}, which is no input. Inputs: {", ".join(self._positions)}.'
            )
        frame = pd.DataFrame([row])
        here = self._predict(frame, _COVERAGE).to_dict("records")[0]
        code = self._code(row)
        kept = self._kept[code]
        out: dict[str, Any] = {
            "prediction": here,
            "words": self._words(here),
            "nearest": self._nearest(frame, kept),
        }
        if column.kind == "category":
            x: list[Any] = list(column.categories)
            many = frame.loc[[0] * len(x)].reset_index(drop=True).assign(**{along: x})
            return {**out, "x": x, **self._columns(self._predict(many, _COVERAGE), here), "svg": ""}
        value = float(encode_columns(self.model.columns, frame)[0, self._positions[along][0]])
        low, _, high = self._range_of(column)
        low, high = min(low, value), max(high, value)
        x = [0.0, 1.0] if column.kind == "boolean" else np.linspace(low, high, _GRID).tolist()
        shown = [column.cell(v) for v in x]
        many = frame.loc[[0] * len(x)].reset_index(drop=True).assign(**{along: shown})
        found = self._columns(self._predict(many, _COVERAGE), here)
        ticks = np.zeros(0) if kept is None else kept[:, self._positions[along][0]]
        return {**out, "x": shown, **found, "svg": self._draw(column, x, found, value, ticks)}

    def _code(self, row: dict[str, Any]) -> int:
        task = self.model.encoding.task
        known = self.model.known_tasks
        return known.index(str(row.get(task))) if task is not None and str(row.get(task)) in known else 0

    def _columns(self, found: Any, here: dict[str, Any]) -> dict[str, Any]:
        """Mean with a band of 95 %, or the probability of the class that is predicted here."""
        target = self.model.encoding.target
        if is_classifier(self.model.estimator):
            label = here[target]
            return {"label": f"probability of {label}", "mean": found[f"p({label})"].tolist()}
        low, high = found[f"{target}_lower"], found[f"{target}_upper"]
        return {"label": target, "mean": found[target].tolist(), "low": low.tolist(), "high": high.tolist()}

    def _words(self, here: dict[str, Any]) -> str:
        """A prediction as people read it."""
        target = self.model.encoding.target
        if is_classifier(self.model.estimator):
            shares = ", ".join(f"{c} {here[f'p({c})']:.1%}" for c in self.model.estimator.classes_)
            return f"{target}: {here[target]} ({shares})"
        low, high = here[f"{target}_lower"], here[f"{target}_upper"]
        unit = "".join(f" for {column} = 1" for column in self.model.encoding.fields.values())
        return f"{target}{unit}: {here[target]:.4g} (95 % of new values: {low:.4g} to {high:.4g})"

    def _draw(
        self, along: ColumnEncoding, x: list[float], found: dict[str, Any], value: float, ticks: FloatArray
    ) -> str:
        grid = {name: np.array(found[name]) for name in ("mean", "low", "high") if name in found}
        y = span(*grid.values()) if "low" in grid else (-0.05, 1.05)
        at = float(np.interp(value, x, grid["mean"]))
        here = along.cell(value) if along.kind == "date" else f"{value:.4g}"
        title = f"{found['label']} along {along.name}: {at:.4g} at {here}"
        chart = Chart(
            span(np.array(x), margin=0.01),
            y,
            x_label=along.name,
            y_label=found["label"],
            title=title,
            first=along.first,
        )
        if "low" in grid:
            chart.band(np.array(x), grid["low"], grid["high"])
        inside = ticks[(ticks >= x[0]) & (ticks <= x[-1])]
        chart.line(np.array(x), grid["mean"]).specks(inside, np.full(len(inside), y[0]))
        return chart.guide((value, value), y).dots(np.array([value]), np.array([at]), [title]).svg()

    def _nearest(self, frame: Any, kept: FloatArray | None) -> list[dict[str, Any]]:
        """The rows of the task that the model keeps, nearest first, in units of their spread."""
        if kept is None or len(kept) == 0:
            return []
        difference = (kept - encode_columns(self.model.columns, frame)) / self._spread
        distance = np.sqrt(np.mean(difference**2, axis=1))
        return [
            {
                "distance": float(distance[i]),
                **{c.name: self._decoded(c, kept[i]) for c in self.model.columns},
            }
            for i in np.argsort(distance, kind="stable")[:_NEAREST]
        ]

    def _decoded(self, column: ColumnEncoding, row: FloatArray) -> Any:
        values = row[self._positions[column.name]]
        if column.kind == "category":
            return column.categories[int(values.argmax())] if values.max() > 0.5 else ""
        if column.n_missing and values[-1] > 0.5:
            return ""
        if column.kind == "boolean":
            return bool(round(values[0]))
        if column.kind == "date":
            return column.cell(float(values[0]))
        digits = 9 - int(np.floor(np.log10(self._spread[self._positions[column.name][0]])))
        return round(float(values[0]), digits)


def _largest(values: FloatArray, axis: int) -> FloatArray:
    return np.abs(values).max(axis=axis)
