"""Another Python, for tests of what is imported, of commands, and of how many threads there are."""

import os
import subprocess
import sys
from pathlib import Path

import gleangp


def python(*arguments, cwd=None, path=(), **variables):
    """What `python ...` prints in a process that finds this gleangp (and `path`); it must end well."""
    places = [str(Path(gleangp.__file__).parents[1]), *path]
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
