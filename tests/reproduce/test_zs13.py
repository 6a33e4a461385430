"""The tables of Zhu & Sun 2013 on the real data: sizes of the splits, and where the numbers land."""

import numpy as np
import pytest

from gleangp.reproduce import Plan, load_experiment, run_experiment
from gleangp.reproduce.experiment import Context
from gleangp.reproduce.summary import cells, leads

pytestmark = pytest.mark.realdata


def split_of(name):
    experiment = load_experiment(name)
    return experiment.problem(Context(name, "", 0, 0, experiment.options))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_auto_mpg_is_better_than_printed(tmp_path):
    """Table 3: every selector beats the paper's 13.2 %, and the default beats ridge regression."""
    results = run_experiment(load_experiment("mpg"), Plan(tmp_path, n_runs=2))
    errors = {cell.method: cell.mean for cell in cells(results)}
    assert (
        max(error for name, error in errors.items() if name not in ("linear model", "majority or mean"))
        < 13.2
    )
    assert errors["default"] < errors["linear model"]
    assert {"IVM", "MPGR", "coverage t=5", "all points"} <= set(errors)
    assert [lead.column for lead in leads(results)] == ["MARE %"]


def test_splits_have_the_sizes_of_the_paper():
    """Tables 4 and 5: 19 tasks of 320 and 80 rows; 3 tasks that share 80 and 23 inputs."""
    landmine = split_of("landmine")
    names, sizes = np.unique(landmine.tasks, return_counts=True)
    assert len(names) == 19
    assert set(sizes) == {320}
    assert len(landmine.y_test) == 19 * 80
    slump = split_of("slump")
    assert slump.X.shape == (240, 7)
    assert len(slump.y_test) == 69


@pytest.mark.parametrize("name", ["haberman", "iris", "mpg", "landmine", "slump"])
def test_declared_overlap_is_that_of_the_split(name):
    """The share of test rows, by which standard errors over splits are widened, is what the split has."""
    split = split_of(name)
    assert load_experiment(name).test_share == pytest.approx(len(split.y_test) / len(split.y), rel=1e-9)
