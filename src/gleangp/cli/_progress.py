"""Progress of a fit on a terminal, and Ctrl-C that ends it with the best model so far.

`Watch` is a callback of scikit-learn's protocol. It draws with rich where standard error is a terminal, and
elsewhere says nothing. While it is entered, the first Ctrl-C asks the fit to stop: learning ends with the
best parameters found, selection and posterior are finished, and the model is whole. A second one, before that
is done, gives up: `KeyboardInterrupt`, and nothing is written.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as TimeLeft


class Watch:
    """Watches several fits, one after the other.

    Parameters
    ----------
    console : Console
        Where to draw, if it is a terminal.
    n_fits : int
        How many fits there will be, for the time left.
    can_stop : bool
        Whether Ctrl-C ends a fit early; with other processes at work it ends everything.
    """

    def __init__(self, console: Console, n_fits: int, *, can_stop: bool = True) -> None:
        self._console, self._n_fits, self._can_stop = console, n_fits, can_stop
        self._done = 0
        self._detail = ""
        self._advice = ""
        self.stopping = False
        self._bar: Progress | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._can_stop and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TimeLeft(),
                TextColumn("[dim]{task.fields[detail]}"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._line = self._bar.add_task("", total=self._n_fits, detail="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def begin(self, name: str, advice: str) -> None:
        """The next fit; `advice` is what a first Ctrl-C does to it."""
        self.stopping, self._advice, self._detail = False, advice, ""
        if self._bar is not None:
            self._bar.update(self._line, description=name, detail="", completed=self._done)

    def end(self) -> None:
        """The fit is done."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._line, completed=self._done)

    def skip(self, n_fits: int) -> None:
        """Some fits will not be made."""
        self._n_fits -= n_fits
        if self._bar is not None:
            self._bar.update(self._line, total=self._n_fits)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.stopping:
            raise KeyboardInterrupt
        self.stopping = True
        self._console.print(f"gleangp: {self._advice} (Ctrl-C again: give up)", highlight=False)

    # The protocol of sklearn.callback.FitCallback

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to clear up."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """A stage begins: say which."""
        self._draw(context, 0.0)

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """A step or stage is done; whether to stop."""
        self._draw(context, 1.0)
        return self.stopping

    def _draw(self, context: Any, share: float) -> None:
        if self._bar is None:
            return
        stage = getattr(context, "stage", None)
        if stage is not None:
            parts = [stage.name]
            if context.objective is not None:
                parts.append(f"log evidence {context.objective:.1f}")
            if stage.n_active is not None:
                parts.append(f"{stage.n_active} points")
            if stage.n_tasks is not None:
                parts.append(f"{stage.n_tasks} task" + ("s" if stage.n_tasks != 1 else ""))
            self._detail = " · ".join(parts)
        completed = self._done + share_of_fit(context, share)
        self._bar.update(self._line, completed=completed, detail=self._detail)


def share_of_fit(context: Any, share: float) -> float:
    """Which share of the whole fit is done when this share of a context is."""
    while context.parent is not None:
        most = context.parent.max_subtasks
        share = (context.task_id + share) / most if most else 0.0
        context = context.parent
    return share
