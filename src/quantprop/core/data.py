"""Checks of data at the edge, and padding to a few shapes, so that compiled programs are shared."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

LARGEST, SMALLEST = 1e150, 1e-150  # sizes of numbers beyond which squares are infinite, or 0
ROUNDING = 256 * np.finfo(float).eps  # relative error of weights: that of sums of a few hundred numbers
MIN_ROWS, SMALL_N = 32, 128  # padded rows


def bucket(n: int) -> int:
    """The padded number of rows: the next power of two up to 128 (at least 32; on an accelerator 128), where compiling
    costs more than rows; beyond that n rounded up in steps of 1/16 of its power of two, so that at most 6 % is added.

    >>> bucket(5), bucket(50), bucket(188), bucket(659), bucket(1000)
    (32, 64, 192, 672, 1024)
    """
    if n <= SMALL_N:
        return max(MIN_ROWS if jax.default_backend() == "cpu" else SMALL_N, 1 << max(n - 1, 1).bit_length())
    step = 2 ** max(4, n.bit_length() - 5)
    return -(-n // step) * step


def pad(tree: Any, size: int) -> Any:
    """Every array of the tree with its first row repeated up to `size` rows; the caller gives those weight 0."""

    def grown(rows: np.ndarray) -> np.ndarray:
        rows = np.asarray(rows)
        return np.concatenate([rows, np.broadcast_to(rows[:1], (size - len(rows), *rows.shape[1:]))])

    return jax.tree.map(grown, tree)


def first_bad(bad: np.ndarray, values: np.ndarray, name: str) -> str:
    """`name[i, j] = value` of the first offending entry."""
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{name}[{', '.join(map(str, where))}] = {values[where]}" if where else f"{name} = {values[()]}"


def check_entries(bad: np.ndarray, values: np.ndarray, name: str, problem: str) -> None:
    if bad.any():
        raise ValueError(f"{first_bad(bad, values, name)}{problem}")


def refuse_others(values: Any, name: str) -> None:
    """Raise ValueError if an array, or a column of a frame, holds values that floats cannot represent: dates or
    durations, whose unit as numbers (nanoseconds, say) nobody chose, masked entries, or integers beyond 1e308.
    """
    refuse_masked(values, name)
    columns = getattr(values, "columns", None)
    parts = {name: values} if columns is None else {f"{name}[{column!r}]": values[column] for column in columns}
    for where, part in parts.items():
        kind = _kind_of(part)
        if kind in "mM":
            days = "(d - d.min()) / np.timedelta64(1, 'D')" if kind == "M" else "d / np.timedelta64(1, 'D')"
            raise ValueError(
                f"{where} holds {'dates' if kind == 'M' else 'durations'}: convert them to numbers in a unit of your "
                f"choice; {days} gives days"
            )
        for at, entry in np.ndenumerate(np.asarray(part)) if kind == "O" else ():
            if isinstance(entry, int) and abs(entry) > sys.float_info.max:
                raise ValueError(f"{where}{list(at) or ''} is an integer above 1e308: express {name} in a larger unit")


def _kind_of(part: Any) -> str:
    """NumPy's letter for what an array or a column holds; that of dates also where they are single objects."""
    kind = getattr(getattr(part, "dtype", None), "kind", None) or np.asarray(part).dtype.kind
    if kind != "O":
        return kind
    types = {type(entry) for entry in np.asarray(part).ravel()}
    if any(issubclass(own, str) for own in types):
        return "U"
    if any(issubclass(own, (np.datetime64, datetime.date)) for own in types):
        return "M"
    return "m" if any(issubclass(own, (np.timedelta64, datetime.timedelta)) for own in types) else kind


def refuse_masked(values: Any, name: str) -> None:
    """Raise ValueError if entries of an array are masked, which a plain array would uncover."""
    if isinstance(values, np.ma.MaskedArray) and (masked := np.ma.getmaskarray(values)).any():
        where = ", ".join(map(str, np.argwhere(masked)[0]))
        raise ValueError(f"{name}[{where}] is masked: leave such rows out, or fill them in (.filled(value))")


def refuse_sizes(array: np.ndarray, name: str, all_rows: bool = True) -> None:
    """Raise ValueError if the square of a finite number overflows or, in `all_rows`, all squares of a column are 0."""
    sizes, remedy = np.where(np.isfinite(array), np.abs(array), 0.0), f"rescale {name}, or leave such rows out"
    check_entries(sizes > LARGEST, array, name, f": squares of numbers beyond {LARGEST:g} overflow; {remedy}")
    largest = np.ravel(np.max(sizes, axis=0, initial=0.0))
    if all_rows and (bad := (largest > 0) & (largest < SMALLEST)).any():
        column = f"{name}[:, {np.argmax(bad)}]" if array.ndim > 1 else name
        raise ValueError(f"{column} has no value above {largest[bad][0]:g}, so its squares underflow; {remedy}")


def real_array(values: Any, name: str, ndim: int | None = None) -> Float[np.ndarray, "..."]:
    """A float64 array, or an error that says what is wrong with the argument `name`."""
    refuse_masked(values, name)
    try:
        refuse_others(values, name)
        kind = _kind_of(values)
        if kind in "cSU":
            raise TypeError(f"got {'complex numbers' if kind == 'c' else 'text'}")
        array = np.array(values, dtype=np.float64)  # a copy: later changes by the caller must not reach us
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from None
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s); got shape {array.shape}")
    return array


def finite_array(values: Any, name: str, ndim: int | None = None) -> Float[np.ndarray, "..."]:
    array = real_array(values, name, ndim)
    check_entries(~np.isfinite(array), array, name, ": NaN and infinity are not allowed")
    return array


def inputs(values: Any, name: str, features: int | None = None) -> Float[np.ndarray, "n d"]:
    """An n × d matrix of inputs; a vector counts as one feature."""
    array = finite_array(values, name)
    array = array[:, None] if array.ndim == 1 else array
    refuse_sizes(array, name, all_rows=False)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a matrix with one row per observation; got shape {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"{name} must have at least one row and one column; got shape {array.shape}")
    if features is not None and array.shape[1] != features:
        raise ValueError(f"{name} has {array.shape[1]} columns; the model was given {features}")
    return array


def spread(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    """An array, or one number for all rows, in the shape that the other arguments have."""
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise ValueError(f"{name} must have shape {shape}, or be a single number; got shape {array.shape}") from None


def positive_rows(values: Any, name: str, shape: tuple[int, ...], zero_allowed: bool = False) -> np.ndarray:
    """One positive number per datum; None stands for 1."""
    if values is None:
        return np.ones(shape)
    array = spread(finite_array(values, name), shape, name)
    refuse_sizes(array, name)
    bad, wanted = ((array < 0), "at least 0") if zero_allowed else ((array <= 0), "positive")
    check_entries(bad, array, name, f": must be {wanted}")
    return array


def row_weights(values: Any, n: int, name: str = "weights") -> np.ndarray:
    """The weight of each of n rows; None stands for 1. Integers except for rounding (10 · (0.1 + 0.2)) are rounded."""
    total = positive_rows(values, name, (n,), zero_allowed=True)
    if not (total > 0).any():
        raise ValueError(f"{name} must not all be zero")
    whole = np.rint(total)
    return np.where(np.abs(total - whole) <= ROUNDING * whole, whole, total)
