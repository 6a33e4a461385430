"""The short form of the soak: a dozen turns. The long one: python -m tests.endurance.soak --minutes 10."""

import sys

import pytest

from tests.endurance.soak import soak


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads resident memory from /proc")
def test_a_short_soak():
    """All laws of a turn hold a dozen times in a row, and memory does not grow."""
    assert soak(minutes=0.0, seed=1000)[0] == 12
