"""Known invariances of images: transformations of rows that do not change what the rows mean.

An invariance is any callable that takes rows (n, p) and gives as many transformed rows (n, p).
`translations` and `rotations` make those of images stored one to a row; virtual informative
vectors (Lawrence, Platt & Jordan 2005, section 6) are the transformed copies of active points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.ndimage import rotate, shift

from gleangp._typing import FloatArray
from gleangp.exceptions import InvarianceError
from gleangp.io.classes import register

__all__ = ["apply_invariances", "check_invariances", "rotations", "translations"]

Invariance = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class _Moves:
    """Moves images that are stored one to a row."""

    shape: tuple[int, int]
    order: str
    fill: Any

    def __call__(self, X: FloatArray) -> FloatArray:
        height, width = self.shape
        if X.shape[1] != height * width:
            raise InvarianceError(
                f"image_shape={self.shape} has {height * width} pixels, but the rows have {X.shape[1]} "
                "features. Give the shape of the images, without the task column."
            )
        if len(X) == 0:
            return X
        by_line = self.order == "C"
        images = X.reshape(-1, height, width) if by_line else X.reshape(-1, width, height).swapaxes(1, 2)
        background = {"mode": "nearest"}
        if self.fill != "edge":
            background = {"mode": "constant", "cval": X.min() if self.fill == "min" else self.fill}
        moved = self.moved(images, **background)
        return np.ascontiguousarray(moved if by_line else moved.swapaxes(1, 2)).reshape(X.shape)

    def moved(self, images: FloatArray, **background: Any) -> FloatArray:
        """The images (n, height, width), moved; `background` is for functions of `scipy.ndimage`."""
        raise NotImplementedError

    def _check_state(self) -> None:
        _images(self.shape, self.order, self.fill)


@dataclass(frozen=True)
class Translation(_Moves):
    """Shifts images by whole pixels."""

    down: int
    right: int

    def moved(self, images: FloatArray, **background: Any) -> FloatArray:
        return shift(images, (0, self.down, self.right), order=0, **background)


@dataclass(frozen=True)
class Rotation(_Moves):
    """Turns images about their centre, with linear interpolation."""

    degrees: float

    def moved(self, images: FloatArray, **background: Any) -> FloatArray:
        return rotate(images, self.degrees, axes=(1, 2), reshape=False, order=1, **background)

    def _check_state(self) -> None:
        super()._check_state()
        _check_angles([self.degrees])


register(Translation, Rotation)


def translations(
    image_shape: tuple[int, int], pixels: int = 1, *, order: str = "C", fill: float | str = "min"
) -> list[Invariance]:
    """Shifts of images up, down, left and right (Lawrence, Platt & Jordan 2005, section 6.1).

    Parameters
    ----------
    image_shape : tuple of two int
        Height and width of the images.
    pixels : int, default=1
        How far to shift.
    order : {"C", "F"}, default="C"
        How a row holds its image: line by line ("C") or column by column ("F").
    fill : float or {"min", "edge"}, default="min"
        Value of uncovered pixels: a number, the least value of all rows, or the neighbour on the edge.

    Returns
    -------
    list of four callables
        For the parameter `invariances` of the estimators, or to call on rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import translations
    >>> up, down, left, right = translations((2, 3), fill=0)
    >>> right(np.array([[1, 2, 3, 4, 5, 6]]))
    array([[0, 1, 2, 0, 4, 5]])
    """
    images = _images(image_shape, order, fill)
    if isinstance(pixels, bool) or pixels != int(pixels) or pixels < 1:
        raise InvarianceError(f"pixels={pixels!r}: a whole number of at least 1 is expected.")
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    return [Translation(*images, down * int(pixels), right * int(pixels)) for down, right in steps]


def rotations(
    image_shape: tuple[int, int],
    degrees: float | Sequence[float] = 10.0,
    *,
    order: str = "C",
    fill: float | str = "min",
) -> list[Invariance]:
    """Rotations of images about their centre.

    Parameters
    ----------
    image_shape : tuple of two int
        Height and width of the images.
    degrees : float or sequence of float, default=10.0
        Angles, counter-clockwise; one number stands for itself and its negative.
    order, fill : {"C", "F"}, default="C", and float or {"min", "edge"}, default="min"
        As in `translations`.

    Returns
    -------
    list of callables
        One per angle.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import rotations
    >>> quarter, = rotations((2, 2), [90.0])
    >>> quarter(np.array([[1.0, 2.0, 3.0, 4.0]])).round(12)
    array([[2., 4., 1., 3.]])
    """
    images = _images(image_shape, order, fill)
    angles = (float(degrees), -float(degrees)) if np.ndim(degrees) == 0 else tuple(map(float, degrees))  # type: ignore[arg-type]
    _check_angles(angles)
    return [Rotation(*images, angle) for angle in angles]


def check_invariances(invariances: Any) -> list[Invariance]:
    """The parameter `invariances` as a list of callables."""
    given = list(invariances) if isinstance(invariances, Sequence) else [invariances]
    for one in given:
        if not callable(one):
            raise InvarianceError(
                f"invariances has {one!r}, which cannot be called. Give a callable from rows to rows, or a "
                "list of them, for instance translations((16, 16))."
            )
    return given


def apply_invariances(invariances: Sequence[Invariance], X: FloatArray) -> list[FloatArray]:
    """The rows under every invariance, checked to be rows of the same kind."""
    moved = []
    for one in invariances:
        rows = np.asarray(one(X.copy()), dtype=np.float64)
        if rows.shape != X.shape:
            raise InvarianceError(
                f"the invariance {one!r} turned rows of shape {X.shape} into {rows.shape}. It must keep "
                "the number of rows and of features."
            )
        if bad := np.sum(~np.isfinite(rows)):
            raise InvarianceError(f"the invariance {one!r} gave {bad} values that are NaN or infinite.")
        moved.append(rows)
    return moved


def _images(shape: tuple[int, int], order: str, fill: float | str) -> tuple[tuple[int, int], str, Any]:
    """How a row is an image: its shape, the order of its pixels, and what fills uncovered ones."""
    sides = tuple(np.atleast_1d(np.asarray(shape)).tolist())
    if len(sides) != 2 or any(s != int(s) or s < 1 for s in sides):
        raise InvarianceError(f"image_shape={shape!r}: height and width in pixels are expected.")
    if order not in ("C", "F"):
        raise InvarianceError(f"order={order!r}: 'C' (line by line) or 'F' (column by column) is expected.")
    if fill not in ("min", "edge") if isinstance(fill, str) else not isinstance(fill, Real):
        raise InvarianceError(f"fill={fill!r}: a number, 'min' or 'edge' is expected.")
    return (int(sides[0]), int(sides[1])), order, fill


def _check_angles(degrees: Sequence[float]) -> None:
    if not len(degrees) or not np.isfinite(degrees).all():
        raise InvarianceError(f"degrees={degrees!r}: finite angles are expected.")
