"""Data at the edge: checked, coded, and padded to a few shapes so that compiled programs are shared."""

from __future__ import annotations

import datetime
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.likelihoods.base import Datum, Likelihood

ROUNDING = 256 * np.finfo(float).eps  # of weights, relative: what sums of a few hundred numbers collect
FEWEST, SMALL = 32, 128  # padded rows


def bucket(n: int) -> int:
    """The padded number of rows: the next power of two up to 128 (at least 32; on an accelerator 128), where compiling
    costs more than rows; beyond that n rounded up in steps of 1/16 of its power of two, so that at most 6 % is added.

    >>> bucket(5), bucket(50), bucket(188), bucket(659), bucket(1000)
    (32, 64, 192, 672, 1024)
    """
    if n <= SMALL:
        return max(FEWEST if jax.default_backend() == "cpu" else SMALL, 1 << max(n - 1, 1).bit_length())
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


def refuse_dates(values: Any, name: str) -> None:
    """An error where an array, or a column of a frame, holds dates or durations: as numbers they would have a unit
    (nanoseconds, say) that nobody chose.
    """
    columns = getattr(values, "columns", None)
    parts = {name: values} if columns is None else {f"{name}[{column!r}]": values[column] for column in columns}
    for where, part in parts.items():
        kind = _kind_of(part)
        if kind in "mM":
            days = "(d - d.min()) / np.timedelta64(1, 'D')" if kind == "M" else "d / np.timedelta64(1, 'D')"
            raise ValueError(
                f"{where} holds {'dates' if kind == 'M' else 'durations'}: make numbers of them first, in a unit of "
                f"your choice; {days} gives days"
            )


def _kind_of(part: Any) -> str:
    """NumPy's letter for what an array or a column holds; that of dates also where they are single objects."""
    kind = getattr(getattr(part, "dtype", None), "kind", None) or np.asarray(part).dtype.kind
    if kind != "O":
        return kind
    types = {type(entry) for entry in np.asarray(part).ravel()}
    if any(issubclass(own, (np.datetime64, datetime.date)) for own in types):
        return "M"
    return "m" if any(issubclass(own, (np.timedelta64, datetime.timedelta)) for own in types) else kind


def real_array(values: Any, name: str, ndim: int | None = None) -> Float[np.ndarray, "..."]:
    """A float64 array, or an error that says what is wrong with the argument `name`."""
    try:
        refuse_dates(values, name)
        array = np.array(values, dtype=np.float64)  # a copy: later changes by the caller must not reach us
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from None
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s); got shape {array.shape}")
    return array


def finite_array(values: Any, name: str, ndim: int | None = None) -> Float[np.ndarray, "..."]:
    """A float64 array without NaN or infinity."""
    array = real_array(values, name, ndim)
    bad = ~np.isfinite(array)
    if bad.any():
        raise ValueError(f"{first_bad(bad, array, name)}: NaN and infinity are not allowed")
    return array


def inputs(values: Any, name: str, features: int | None = None) -> Float[np.ndarray, "n d"]:
    """An n × d matrix of inputs; a vector counts as one feature."""
    array = finite_array(values, name)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise ValueError(f"{name} must be a matrix with one row per datum; got shape {array.shape}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one row and one column; got shape {array.shape}")
    if features is not None and array.shape[1] != features:
        raise ValueError(f"{name} has {array.shape[1]} columns; the model was given {features}")
    return array


def positive_rows(values: Any, name: str, shape: tuple[int, ...], zero_allowed: bool = False) -> np.ndarray:
    """One positive number per datum; None stands for 1."""
    if values is None:
        return np.ones(shape)
    array = finite_array(values, name)
    try:
        array = np.broadcast_to(array, shape).astype(np.float64)
    except ValueError:
        raise ValueError(f"{name} must be a number or have shape {shape}; got shape {array.shape}") from None
    bad = (array < 0) if zero_allowed else (array <= 0)
    if bad.any():
        raise ValueError(f"{first_bad(bad, array, name)}: must be {'at least 0' if zero_allowed else 'positive'}")
    return array


def row_weights(values: Any, n: int) -> np.ndarray:
    """How often each of n rows counts; None stands for 1. Whole but for rounding errors (10 · (0.1 + 0.2)) is whole."""
    total = positive_rows(values, "weights", (n,), zero_allowed=True)
    if not (total > 0).any():
        raise ValueError("weights must not all be 0")
    whole = np.rint(total)
    return np.where(np.abs(total - whole) <= ROUNDING * whole, whole, total)


def scales(likelihood: Likelihood, shape: tuple[int, ...], exposure: Any, trials: Any) -> dict[str, np.ndarray]:
    """Exposure and trials per datum, or an error where the likelihood has no use for one."""
    given = {"exposure": exposure, "trials": trials}
    for name, value in given.items():
        if value is not None and name not in likelihood.scaled_by:
            raise ValueError(f"{name} was given, but the {likelihood.name} likelihood does not use it")
    return {name: positive_rows(value, name, shape) for name, value in given.items()}


def encode(likelihood: Likelihood, y: Any, shape: tuple[int, ...], exposure: Any = None, trials: Any = None) -> Datum:
    """Observations as the likelihood takes them, every one checked against its support."""
    tail = (likelihood.columns,) if likelihood.columns > 1 else ()
    array = real_array(y, "y")
    bad = np.isnan(array)
    if bad.any():
        raise ValueError(f"{first_bad(bad, array, 'y')}: NaN is not allowed")
    try:
        array = np.broadcast_to(array, shape + tail)
    except ValueError:
        raise ValueError(f"y must have shape {shape + tail} to fit the other arguments; got {array.shape}") from None
    more = scales(likelihood, shape, exposure, trials)
    array = likelihood.code(array)
    bad = ~likelihood.in_support(array, more["trials"])
    if bad.any():
        raise ValueError(
            f"{first_bad(bad, array, 'y')} is outside the support of the {likelihood.name} likelihood: "
            f"{likelihood.support}"
        )
    return Datum(array, **more)
