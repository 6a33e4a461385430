"""Estimators work on one BLAS thread, and whoever calls gets the number of threads back."""

import threading
from functools import cache

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.gaussian_process.kernels import RBF
from threadpoolctl import ThreadpoolController, threadpool_limits

from gleangp import SparseGPRegressor
from gleangp.numerics.parallel import in_parallel, on_one_thread


@cache
def libraries():
    """The BLAS libraries of this process, which take long to find."""
    return ThreadpoolController().select(user_api="blas").lib_controllers


def blas_threads() -> int:
    """Threads that BLAS may use now."""
    return max((library.get_num_threads() for library in libraries()), default=1)


@pytest.fixture(autouse=True)
def two_threads():
    """Two BLAS threads outside, however the tests were started."""
    with threadpool_limits(2):
        if blas_threads() != 2:
            pytest.skip("this BLAS has one thread")
        yield


class Watching(RBF):
    """An RBF that notes how many threads BLAS has whenever it is evaluated."""

    seen: list[int] = []  # shared with all clones, which are what a fit works with

    def __call__(self, X, Y=None, eval_gradient=False):
        """The kernel matrix."""
        self.seen.append(blas_threads())
        return super().__call__(X, Y, eval_gradient)


def test_one_thread_in_fit_add_task_and_predict():
    """Every evaluation of the kernel of a small problem has one BLAS thread; afterwards there are two."""
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(24, 2)), np.repeat([0, 1], 12)
    y = np.sin(X[:, 0])
    model = SparseGPRegressor(Watching(1.0), coupling="kernel", random_state=0)
    Watching.seen.clear()
    for call in (
        lambda: model.fit(X, y, tasks=codes),
        lambda: model.add_task(X[:5], y[:5], task=2),
        lambda: model.predict(X, tasks=codes, return_std=True),
        lambda: model.predict(X[:4], tasks=codes[:4], return_cov=True),
        lambda: model.partial_fit(X[:3] + 0.1, y[:3], tasks=codes[:3]).predict(X, tasks=codes),
    ):
        before = len(Watching.seen)
        call()
        assert set(Watching.seen[before:]) == {1}
        assert blas_threads() == 2


def test_one_thread_on_a_large_table():
    """However many rows there are."""
    X = np.random.default_rng(0).normal(size=(1500, 2))
    y = np.sin(X[:, 0])
    for options in ({}, {"posterior": "active", "n_active": 20}):
        model = SparseGPRegressor(Watching(1.0), optimizer=None, random_state=0, **options)
        Watching.seen.clear()
        model.fit(X, y).predict(X, return_std=True)
        assert set(Watching.seen) == {1}


def test_given_back_after_an_error():
    """A fit that fails leaves the number of threads as it was."""
    with pytest.raises(ValueError, match="NaN"):
        SparseGPRegressor().fit(np.full((3, 1), np.nan), np.zeros(3))
    with pytest.raises(RuntimeError, match="stop"), on_one_thread():
        raise RuntimeError("stop")
    assert blas_threads() == 2


def test_overlapping_calls_of_two_threads():
    """Of two calls that overlap the first limits and restores, whichever ends first."""
    inside, leave = threading.Event(), threading.Event()

    def other():
        with on_one_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with on_one_thread():
        thread.start()
        assert inside.wait(10)
        assert blas_threads() == 1
    assert blas_threads() == 2
    leave.set()
    thread.join()
    assert blas_threads() == 2
    with on_one_thread():  # nobody holds the limit any more
        assert blas_threads() == 1


def test_jobs_in_threads_have_one_thread_each():
    """Jobs that are threads of this process do not run on several BLAS threads each."""
    with parallel_config(backend="threading"):
        assert in_parallel(lambda _: blas_threads(), [(k,) for k in range(4)], 2) == [1] * 4
    assert blas_threads() == 2


class WatchingGenerator(np.random.Generator):
    """A generator that notes how many threads BLAS has whenever it draws vectors."""

    def multivariate_normal(self, *arguments, **options):
        """Draws."""
        Watching.seen.append(blas_threads())
        return super().multivariate_normal(*arguments, **options)


def test_questions_have_one_thread():
    """What left-out rows, tasks and draws are computed from: matrices of all rows, in small blocks."""
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(24, 2)), np.repeat([0, 1], 12)
    model = SparseGPRegressor(Watching(1.0), optimizer=None, random_state=0)
    model.fit(X, np.sin(X[:, 0]), tasks=codes)
    for question in (
        model.leave_one_out,
        model.transfer_report,
        lambda: model.variance_shares_,
        lambda: model.sample_y(X, tasks=codes, random_state=WatchingGenerator(np.random.PCG64(0))),
    ):
        Watching.seen.clear()
        question()
        assert set(Watching.seen) == {1}
        assert blas_threads() == 2
