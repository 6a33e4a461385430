"""Ctrl-C and the progress bar, with real processes on a real (pseudo) terminal."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")
pty = pytest.importorskip("pty")  # not on Windows

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "gleangp", "fit"]


class Terminal:
    """A process whose standard error is a terminal; what it shows is kept."""

    def __init__(self, *arguments):
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=theirs, env=environment
        )
        os.close(theirs)
        self._terminal, self.shown = ours, ""

    def read(self):
        """What has been shown so far; False at the end."""
        try:
            part = os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:  # the other side is closed
            return False
        self.shown += part
        return bool(part)

    def wait_for(self, pattern, seconds=60):
        """Read until the pattern is shown."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert time.monotonic() < end, self.shown[-500:]
            assert self.read(), f"the process ended without showing {pattern!r}: {self.shown[-500:]}"

    def interrupt(self):
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        os.close(self._terminal)

    def end(self):
        """Exit code and standard output, when the process is done."""
        while self.read():
            pass
        out = self.process.stdout.read().decode()
        return self.process.wait(60), out


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A classification whose fit takes some seconds."""
    rng = np.random.default_rng(0)
    n = 800
    X = rng.normal(size=(n, 6))
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(task=rng.integers(0, 3, n))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    frame["label"] = np.where(f > 0, "y", "n")
    path = tmp_path_factory.mktemp("interrupt") / "t.csv"
    frame.to_csv(path, index=False)
    return path


def options(table, model):
    """Of a fit that takes some seconds."""
    return (table, "-y", "label", "-t", "task", "-o", model, "--json")


def test_one_interrupt_keeps_the_best_model_so_far(table, tmp_path):
    """Stages, evidence, points and tasks are drawn; the fit ends early with exit code 0 and a whole model."""
    model = tmp_path / "m.glean"
    with Terminal(*options(table, model), "--folds", 0) as terminal:
        terminal.wait_for(r"start 1 · log evidence -\d+\.\d · \d+ points · 3 tasks")
        terminal.interrupt()
        code, out = terminal.end()
    assert code == 0
    assert "learning ends here with the best found so far (Ctrl-C again: give up)" in terminal.shown
    facts = json.loads(out)
    assert facts["summary"]["stopped_early"] is True
    predicted = tmp_path / "o.csv"
    arguments = [sys.executable, "-m", "gleangp", "predict", str(model), str(table), "-o", str(predicted)]
    assert subprocess.run(arguments, check=False).returncode == 0
    right = pd.read_csv(predicted)["label"] == pd.read_csv(table)["label"]
    assert right.mean() > 0.6


def test_an_interrupt_while_scoring_skips_the_score(table, tmp_path):
    """The held-out score ends, all rows are fitted, and the model says that it was not measured."""
    model = tmp_path / "m.glean"
    with Terminal(*options(table, model), "--folds", 5) as terminal:
        terminal.wait_for("held-out 1 of 5.*start 1")
        terminal.interrupt()
        terminal.wait_for(r"all rows.*start 1")
        terminal.interrupt()
        code, out = terminal.end()
    assert code == 0
    assert "the held-out score ends here" in terminal.shown
    assert "held_out" not in json.loads(out)["summary"]
    assert model.exists()


def test_two_interrupts_give_up(table, tmp_path):
    """Exit code 130, no model, nothing half written, no traceback."""
    model = tmp_path / "m.glean"
    with Terminal(*options(table, model), "--folds", 0) as terminal:
        terminal.wait_for("start 1")
        terminal.interrupt()
        terminal.wait_for("Ctrl-C again")
        terminal.interrupt()
        code, _ = terminal.end()
    assert code == 130
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in terminal.shown
