"""Invariances: images that move and turn, and callables that do not keep the rules."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gleangp import rotations, translations
from gleangp.exceptions import InvarianceError
from gleangp.invariances import apply_invariances, check_invariances

IMAGES = np.random.default_rng(0).normal(size=(3, 5 * 4))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("pixels", [1, 2])
def test_shifts_move_pixels(order, pixels):
    """A shift is a roll whose wrapped part is filled."""
    moved = [one(IMAGES) for one in translations((5, 4), pixels, order=order, fill=-7.0)]
    for rows, (axis, step) in zip(moved, ((1, -1), (1, 1), (2, -1), (2, 1)), strict=True):
        for row, image in zip(rows, IMAGES, strict=True):
            expected = np.roll(image.reshape(5, 4, order=order), step * pixels, axis - 1)
            lost = np.arange(pixels) if step > 0 else -1 - np.arange(pixels)
            np.moveaxis(expected, axis - 1, 0)[lost] = -7.0
            assert_array_equal(row.reshape(5, 4, order=order), expected)


def test_fills():
    """The least value of all rows, the neighbour on the edge, or a number."""
    up = translations((5, 4), fill="min")[0](IMAGES).reshape(-1, 5, 4)
    assert_array_equal(up[:, -1], np.full((3, 4), IMAGES.min()))
    up = translations((5, 4), fill="edge")[0](IMAGES).reshape(-1, 5, 4)
    assert_array_equal(up[:, -1], IMAGES.reshape(-1, 5, 4)[:, -1])


def test_shift_there_and_back_keeps_the_middle():
    """Opposite shifts undo each other away from the edge."""
    up, down, left, right = translations((5, 4))
    for there, back in ((up, down), (down, up), (left, right), (right, left)):
        again = back(there(IMAGES)).reshape(-1, 5, 4)
        assert_array_equal(again[:, 1:-1, 1:-1], IMAGES.reshape(-1, 5, 4)[:, 1:-1, 1:-1])


@pytest.mark.parametrize("order", ["C", "F"])
def test_rotations_turn(order):
    """Four quarter turns are none; a half turn reverses the row; one number is both directions."""
    (quarter,) = rotations((4, 4), [90.0], order=order)
    X = IMAGES[:, :16]
    assert_allclose(quarter(quarter(quarter(quarter(X)))), X, atol=1e-12)
    assert_allclose(quarter(quarter(X)), X[:, ::-1], atol=1e-12)
    there, back = rotations((4, 4), 90.0, order=order)
    assert_allclose(back(there(X)), X, atol=1e-12)


def test_they_travel():
    """Invariances come back from a pickle, and leave their input as it is."""
    before = IMAGES.copy()
    for one in translations((5, 4)) + rotations((5, 4), fill="edge"):
        assert_array_equal(pickle.loads(pickle.dumps(one))(IMAGES), one(IMAGES))
        assert one(IMAGES[:0]).shape == (0, 20)
    assert_array_equal(IMAGES, before)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: translations((4, 4))[0](IMAGES), "16 pixels.*20 features"),
        (lambda: rotations((4, 4))[0](IMAGES), "16 pixels.*20 features"),
        (lambda: translations((5,)), "image_shape"),
        (lambda: translations((5, 4), 0), "pixels=0"),
        (lambda: translations((5, 4), order="A"), "order='A'"),
        (lambda: translations((5, 4), fill="white"), "fill='white'"),
        (lambda: translations((5, 4), fill=None), "fill=None"),
        (lambda: rotations((5, 4), [np.inf]), "degrees"),
        (lambda: check_invariances([3]), "cannot be called"),
        (lambda: apply_invariances([lambda X: X[:, :2]], IMAGES), r"\(3, 20\).*\(3, 2\)"),
        (lambda: apply_invariances([lambda X: X * np.nan], IMAGES), "60 values that are NaN"),
    ],
)
def test_refusals(make, match):
    """What does not fit is refused with the value and what was expected."""
    with pytest.raises(InvarianceError, match=match):
        make()


def test_one_callable_is_a_list_of_one():
    """None, a callable and a list are all lists."""
    assert check_invariances(np.negative) == [np.negative]
    assert len(check_invariances(translations((5, 4)))) == 4
