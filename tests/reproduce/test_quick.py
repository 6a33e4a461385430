"""The quick form of every experiment runs on the real data and gives finite numbers and plots."""

import math

import pytest

from gleangp.reproduce import Plan, load_experiment, names_of_experiments, run_experiment, write_results
from gleangp.reproduce.summary import cells


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("name", names_of_experiments())
def test_quick_form(name, tmp_path):
    """Nothing fails, every number is finite, the page and the plots are written."""
    results = run_experiment(load_experiment(name), Plan(tmp_path, quick=True))
    assert results.failures == []
    assert results.records
    assert all(math.isfinite(cell.mean) for cell in cells(results))
    page = write_results([results], tmp_path)
    assert f'id="{name}"' in page.read_text()
    assert all(path.stat().st_size > 2000 for path in (tmp_path / "plots").iterdir())
    assert len(list((tmp_path / "plots").glob("*.png"))) >= 1
