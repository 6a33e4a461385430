"""Memory that is used again: same numbers, one owner at a time."""

import threading

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gleangp.kernels import linearize
from gleangp.memory import reusing, room

SHAPE = (200, 200)


def address(array):
    return array.__array_interface__["data"][0]


def test_a_call_gets_the_arrays_of_the_call_before():
    """The same requests in the same order meet the same memory; within a call all arrays differ."""
    call = reusing(lambda: [address(room(SHAPE)) for _ in range(3)])
    first, second = call(), call()
    assert first == second
    assert len(set(first)) == 3


def test_another_order_of_sizes_is_served():
    """A request larger than what is kept gets new memory, a smaller one a part; both have their shape."""
    call = reusing(lambda *shapes: [room(s).shape for s in shapes])
    for shapes in ([(300, 200), (200, 100)], [(200, 100), (300, 200)], [(500, 500)]):
        assert call(*shapes) == shapes


def test_small_arrays_and_calls_outside_are_fresh():
    """`room` is numpy.empty for small arrays, and where nobody reuses memory."""
    small = reusing(lambda: room((10, 10)))
    assert small() is not small()
    kept = [room(SHAPE) for _ in range(2)]
    assert address(kept[0]) != address(kept[1])


def test_nested_calls_and_errors_leave_the_outer_workspace():
    """What an inner call computes does not touch the arrays of the outer one, also if it fails."""

    @reusing
    def inner(fail):
        room(SHAPE)[:] = 7.0
        if fail:
            raise ValueError("no")

    @reusing
    def outer():
        first = room(SHAPE)
        first[:] = 1.0
        inner(False)
        with pytest.raises(ValueError, match="no"):
            inner(True)
        second = room(SHAPE)
        second[:] = 2.0
        return first.sum(), second.sum()

    assert outer() == (SHAPE[0] * SHAPE[1], 2.0 * SHAPE[0] * SHAPE[1])


def test_threads_do_not_share():
    """A thread that is started inside a call gets memory of its own."""
    seen = []

    @reusing
    def call():
        mine = room(SHAPE)
        other = threading.Thread(target=lambda: seen.append(room(SHAPE)))
        other.start()
        other.join()
        return address(mine) != address(seen[0])

    assert call()


@pytest.mark.parametrize("n_features", [2, 6])
def test_kernels_are_the_same_in_reused_memory(n_features):
    """Value and both contractions at several theta, bit for bit those of fresh memory."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(220, n_features))
    dL_dK = rng.normal(size=(220, 220))
    dL_dK += dL_dK.T

    def evaluate(length):
        kernel = ConstantKernel(2.0) * RBF(length) + ConstantKernel(0.5) + WhiteKernel(0.1)
        K = linearize(kernel, X)
        theta, inputs = K.symmetric_vjps(dL_dK)
        return K.value.copy(), theta, inputs

    again = reusing(evaluate)
    for length in (0.5, 3.0, 1.0):
        for expected, found in zip(evaluate(length), again(length), strict=True):
            np.testing.assert_array_equal(found, expected)
