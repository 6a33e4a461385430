"""How large numbers may be, in data and in fitted state; checks of state that was read from a file."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

LARGEST = 1e100  # number in data, so that products of three are finite
_LARGEST_STATE = 1e120  # number in fitted state: length scales can be longer than the rows are wide
_LARGEST = {"derived": 1e150, "square": 1e250}
_LIMITS = {
    "identity": (-_LARGEST_STATE, _LARGEST_STATE),
    "log": (1.0 / _LARGEST_STATE, _LARGEST_STATE),
    "logit": (0.0, 1.0),
}


def check_arrays(owner: Any, sizes: dict[str, int] | None = None, **expected: str) -> dict[str, int]:
    """Raise `ValueError` unless the arrays of an object are as expected; returns the sizes of their axes.

    `expected` are the axes of each attribute, separated by spaces (none: a number). Axes of one name have one
    size, which `sizes` has where it is known. After them ">0" or ">=0", "derived" (computed from others: may
    be larger), "square" (a variance in units of the user) or "any" (NaN and infinity too). "?": or None.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from gleangp._state import check_arrays
    >>> rows = SimpleNamespace(X=np.zeros((3, 2)), precision=np.ones(3))
    >>> check_arrays(rows, X="n p", precision="n >0")
    {'n': 3, 'p': 2}
    """
    sizes = dict(sizes or {})
    for name, text in expected.items():
        value, words = getattr(owner, name), text.split()
        if value is None and "?" in words:
            continue
        axes = [word for word in words if word.isidentifier() and word not in ("any", *_LARGEST)]
        where, shape = f"{type(owner).__name__}.{name}", np.shape(value)
        fits = len(axes) == len(shape)
        fits = fits and all(sizes.setdefault(a, n) == n for a, n in zip(axes, shape, strict=True))
        if not fits:
            known = ", ".join(f"{a}={sizes[a]}" if a in sizes else a for a in axes)
            raise ValueError(f"{where} has the shape {shape}, not ({known}).")
        _check_numbers(where, np.asarray(value), words)
    return sizes


def _check_numbers(where: str, value: np.ndarray, words: list[str]) -> None:
    if value.dtype.kind not in "fiu":
        raise ValueError(f"{where} has the type {value.dtype}, not numbers.")
    if value.dtype.kind == "f" and "any" not in words:
        most = max((_LARGEST[word] for word in words if word in _LARGEST), default=_LARGEST_STATE)
        if not (np.abs(value) <= most).all():
            raise ValueError(f"{where} has a number that is not finite, or larger than {most:.3g}.")
    if (">0" in words and not (value > 0).all()) or (">=0" in words and not (value >= 0).all()):
        raise ValueError(f"{where} has {np.min(value):.3g}, but it is {'>0' if '>0' in words else '>=0'}.")


def check_factor(where: str, factor: np.ndarray) -> None:
    """Raise `ValueError` if a triangular factor has a diagonal that is not positive."""
    if not (np.diagonal(factor) > 1.0 / _LARGEST_STATE).all():
        raise ValueError(f"{where} is a triangular factor whose diagonal is not positive.")


def check_kernel(where: str, kernel: Any, n_inputs: int) -> None:
    """Raise `ValueError` unless a kernel has parameters that are not negative, and values at two rows."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{where} is a {type(kernel).__name__}, not a kernel.")
    given = kernel.get_params()
    for name, value in given.items():
        last = name.split("__")[-1]
        if last.endswith("_bounds"):
            shape = np.shape(np.atleast_2d(value))
            if value != "fixed" if isinstance(value, str) else shape[1:] != (2,):
                raise ValueError(f"{where} has {name}={value!r}.")
            size = np.size(given[name.removesuffix("_bounds")])
            if not isinstance(value, str) and shape[0] not in (1, size):
                raise ValueError(f"{where} has {shape[0]} bounds of {size} parameters.")
        elif isinstance(value, int | float | np.ndarray | np.number | list):
            numbers = np.asarray(value, dtype=np.float64)
            least, most = _LIMITS["identity" if last == "center" else "log"]
            most = np.inf if last == "nu" else most
            right = (numbers == 0.0) | (numbers >= least) & (numbers <= most)
            if numbers.ndim > 1 or not right.all():
                raise ValueError(f"{where} has the parameter {name}={value!r}.")
    rows = np.arange(2.0)[:, None] * np.ones(n_inputs)
    with np.errstate(all="ignore"):
        values, diagonal = kernel(rows), kernel.diag(rows)
    if values.shape != (2, 2) or diagonal.shape != (2,) or not np.isfinite(values).all():
        raise ValueError(f"{where} has no finite values at rows of {n_inputs} inputs.")


def check_noise(where: str, noise: Any) -> None:
    """Raise `ValueError` unless a noise model has parameters within their limits."""
    transforms = getattr(noise, "transforms", None)
    if transforms is None or not is_dataclass(noise):
        raise ValueError(f"{where} is a {type(noise).__name__}, not a noise model.")
    for field in fields(noise):
        scale = transforms.get(field.name, "log")  # what is not learnt is positive, as exposure is
        value = np.asarray(getattr(noise, field.name))
        least, most = _LIMITS[scale]
        if value.dtype.kind not in "fiu" or not ((value >= least) & (value <= most)).all():
            raise ValueError(f"{where}.{field.name} is {value}, not between {least:.0e} and {most:.0e}.")


def check_codes(where: str, codes: np.ndarray, count: int) -> None:
    """Raise `ValueError` unless codes are numbers from 0 to `count` - 1."""
    if len(codes) and not 0 <= codes.min() <= codes.max() < count:
        raise ValueError(f"{where} has {codes.min()} to {codes.max()}, of {count} that there are.")
