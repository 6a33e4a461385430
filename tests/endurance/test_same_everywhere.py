"""The same seed gives the same model, however many threads and processes there are.

Rows that are stored in another way are in test_invariances.py.
"""

from functools import cache
from pathlib import Path

import pytest
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_info, threadpool_limits

from gleangp import SparseGPClassifier, SparseGPRegressor
from gleangp.numerics.parallel import in_parallel
from tests.endurance.every_estimator import CASES, every, make_rows
from tests.processes import python
from tests.two_fits import assert_same_answers

quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def said(case, **how):
    """What a case says of the rows it was fitted to."""
    X, y, codes, _ = make_rows(40, 0)
    return case.outputs(case.new(**how).fit(X, case.target(y), codes), X, codes)


@cache
def said_once(name):
    """The same of the case of this name, on one BLAS thread; fitted once for all tests."""
    with threadpool_limits(1):
        return said(next(case for case in CASES if case.name == name))


@every([case for case in CASES if "n_jobs" in case.new().get_params()])
@quiet
def test_any_number_of_jobs(case):
    """n_jobs=2 gives what one process gives."""
    with threadpool_limits(1):
        assert_same_answers(said(case, n_jobs=2), said_once(case.name))


@pytest.mark.parametrize("model", [SparseGPRegressor, SparseGPClassifier])
@quiet
def test_posteriors_in_several_processes(model):
    """Tasks whose posteriors are formed in other processes give the same model."""
    X, y, codes, _ = make_rows(60, 0)
    y = y if model is SparseGPRegressor else y > 0
    how = {"posterior": "active", "n_active": 20, "n_rounds": 1, "random_state": 0}
    one, two = (model(n_jobs=n_jobs, **how).fit(X, y, tasks=codes) for n_jobs in (None, 2))
    assert_same_answers(two.site_mean_, one.site_mean_)
    assert_same_answers(two.predict(X, tasks=codes), one.predict(X, tasks=codes))
    assert_same_answers(two.log_evidence_, one.log_evidence_)


@every()
@quiet
def test_any_number_of_threads(case):
    """BLAS on two threads sums in another order; small problems do not notice, larger ones to rounding.

    After fit and prediction BLAS has as many threads as before.
    """
    with threadpool_limits(2):
        before = blas_threads(0)
        assert_allclose(said(case), said_once(case.name), rtol=1e-6, atol=1e-8)
        assert blas_threads(0) == before


def blas_threads(_):
    """Threads that BLAS may use here."""
    return max((m["num_threads"] for m in threadpool_info() if m["user_api"] == "blas"), default=1)


def test_jobs_do_not_oversubscribe():
    """Inside a job BLAS has one thread, whatever it has outside; outside nothing changes."""
    before = blas_threads(0)
    assert in_parallel(blas_threads, [(k,) for k in range(4)], 2) == [1] * 4
    assert blas_threads(0) == before


@pytest.mark.slow
def test_two_jobs_use_two_threads_of_the_system():
    """A fit with n_jobs=2 in a fresh process with many BLAS threads never runs more than its jobs' own."""
    script = """
import numpy as np
from gleangp import SparseGPClassifier
from gleangp.numerics.parallel import in_parallel
from tests.endurance.test_same_everywhere import blas_threads
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2)); y = np.digitize(X[:, 0], [-0.5, 0.5])
SparseGPClassifier(n_active=20, n_jobs=2, n_rounds=1, random_state=0).fit(X, y)
print(max(in_parallel(blas_threads, [(k,) for k in range(4)], 2)))
"""
    root = Path(__file__).parents[2]
    assert python("-c", script, path=[str(root)], OPENBLAS_NUM_THREADS="8", OMP_NUM_THREADS="8") == "1"
