"""The columns of X that a kernel names: found in a frame in any order, categories coded, new levels reported."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from quantprop import means
from quantprop.core.data import refuse_others
from quantprop.core.parameters import Parameter, is_parameter
from quantprop.kernels import Kernel, NewLevelWarning, Terms, columns_of, groups_of
from quantprop.kernels.categories import Coregion
from quantprop.kernels.derived import Derived
from quantprop.kernels.formulas import is_formula
from quantprop.kernels.structure import bare, leaves
from quantprop.runtime.names import check_name

NAMED_KERNELS = ("ard", "shrunk", "additive", "auto")
MAX_COREGION_LEVELS = 50  # each has hyperparameters of its own
MICROSECONDS_PER_DAY = 86400e6
MISSING = "NaN or infinite: fill it in, or leave the row out"
MAX_SHOWN = 5  # levels that a message names


@dataclass(frozen=True)
class Coding:
    """Encoding of X for a kernel of columns: the `names` of the columns of a frame (none: X is an array), and the
    levels of every column of categories, in the order of their codes; in arrays codes are the user's.
    """

    names: tuple[str, ...] = ()
    levels: tuple[tuple[int, tuple[str, ...]], ...] = ()

    def matrix(self, X: Any) -> Any:
        """Columns of a frame, as numbers, dates as days since 1970; an array as it is. Levels unseen in training get
        codes of their own.
        """
        _refuse_repeated(X)
        if not self.names:
            return X
        _check_frame(X, self.names)
        levels = {self.names[i]: levels for i, levels in self.levels}
        columns = (_codes(X[name], name, levels[name]) if name in levels else _numbers(X, name) for name in self.names)
        return np.column_stack(list(columns))

    def check(self, rows: int) -> None:
        """Raise if no two of the given number of rows share a level of a group."""
        for i, levels in self.levels:
            check_levels(len(levels), rows, self.names[i] if self.names else str(i))

    def warn_of_new_levels(self, X: Any, x: Float[np.ndarray, "n d"], where: str) -> None:
        """One warning that names all levels of new rows that are unseen in training."""
        found = {}
        for i, levels in self.levels:
            column = np.asarray(X[self.names[i]]) if self.names else x[:, i]
            if new := sorted({label(value) for value in column} - set(levels)):
                found[self.names[i] if self.names else f"column {i}"] = new
        announce(found, where, 5)


def in_days(X: Any) -> Any:
    """Dates as days since 1970, missing ones as NaN; anything else as it is."""
    if getattr(getattr(X, "dtype", None), "kind", "") != "M":
        return X
    return np.where(
        np.isnat(X), np.nan, np.asarray(X, dtype="datetime64[us]").astype(np.float64) / MICROSECONDS_PER_DAY
    )


def announce(found: dict[str, list[str]], where: str, stacklevel: int = 6) -> None:
    """One warning of new levels, by column."""
    if found:
        listed = []
        for column, new in found.items():
            more = f" and {len(new) - MAX_SHOWN} more" if len(new) > MAX_SHOWN else ""
            listed.append(f"{column}: {', '.join(map(shown, new[:MAX_SHOWN]))}{more}")
        text = f"{where}: levels unseen in training get the prior of their term ({'; '.join(listed)})"
        warnings.warn(text, NewLevelWarning, stacklevel=stacklevel)


def label(value: Any) -> str:
    """A level as text: integers as the floats of the same value, anything else as it prints."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    return f"{float(value):.17g}" if number else str(value)


def shown(level: str) -> str:
    """A level as people write it: a number with the fewest digits.

    >>> shown("0.20000000000000001"), shown("1"), shown("007")
    ('0.2', '1', '007')
    """
    try:
        number = float(level)
    except ValueError:
        return level
    return repr(number).removesuffix(".0") if level == f"{number:.17g}" else level


def coding_of(kernel: Any, X: Any, other: Any = None) -> Coding:
    """The coding of X for a kernel, and the other one of a model with two; empty if the kernel names no columns and has
    no categories.
    """
    found, second = _as_kernel(kernel), _as_kernel(other)
    if found is None:
        return Coding()
    found = found if second is None else found + second
    columns, groups = (*columns_of(found), *offsets_of(kernel)), groups_of(found)
    if not any(isinstance(column, str) for column in columns):
        return Coding(levels=_array_levels(X, groups)) if groups else Coding()
    if positions := [column for column in columns if not isinstance(column, str)]:
        raise ValueError(f"kernel: columns must be all names or all positions; got {positions[0]} and names")
    if others := bare(found):
        raise ValueError(f"kernel: {others[0]!r} acts on all columns, but other parts on named columns: name its "
                         "columns too, with .on(columns)")  # fmt: skip
    names = tuple(dict.fromkeys(map(str, columns)))
    if isinstance(kernel, (str, Terms)) and hasattr(X, "columns"):
        Terms(kernel if isinstance(kernel, str) else kernel.text, tuple(map(str, X.columns)))  # points at wrong names
    _check_frame(X, names)
    coded = {names.index(str(column)): _levels(X[column], str(column)) for column in groups}
    _check_coregions(found, {names[i]: len(levels) for i, levels in coded.items()})
    return Coding(names, tuple(coded.items()))


def offsets_of(kernel: Any) -> tuple[Any, ...]:
    """The columns of offsets of the kernel argument of an estimator."""
    if isinstance(kernel, str) and is_formula(kernel):
        kernel = Terms(kernel)
    return kernel.offsets() if isinstance(kernel, Terms) else ()


def offset_mean(kernel: Any, mean: Any, unit: float, coding: Coding) -> Any:
    """The known mean of f, to which the offsets of a kernel are added in units of f; a mean as it is without any."""
    columns = offsets_of(kernel)
    if not columns:
        return mean
    if isinstance(mean, means.Linear) or (callable(mean) and not is_parameter(mean)):
        raise ValueError("offset() adds to a constant mean, and the model has another: use mean='constant', or add the "
                         "offset to your function")  # fmt: skip
    at = tuple(coding.names.index(str(c)) if coding.names else int(c) for c in columns)
    level: Any = mean if is_parameter(mean) else Parameter(mean, fixed=True)
    return means.Linear(Parameter(np.full(len(at), 1.0 / unit), fixed=True), level, at)


def refuse_offsets(kernel: Any, where: str, remedy: str) -> None:
    """Raise for offsets where they have no meaning."""
    if columns := offsets_of(kernel):
        raise ValueError(f"offset({columns[0]}) is not supported {where}: {remedy}")


def _as_kernel(kernel: Any) -> Kernel | None:
    """The kernel argument of an estimator as a kernel of ours; None if it is not one."""
    if isinstance(kernel, str):
        if not is_formula(kernel):
            check_name("kernel", kernel, NAMED_KERNELS, ", terms such as se(age) or a Kernel")
        return None if kernel in NAMED_KERNELS else Terms(kernel).kernel()
    return kernel.kernel() if isinstance(kernel, Terms) else kernel if isinstance(kernel, Kernel) else None


def _refuse_repeated(X: Any) -> None:
    """Raise if two columns of a frame have one name, which then stands for both."""
    named = list(map(str, getattr(X, "columns", ())))
    if twice := [name for name in dict.fromkeys(named) if named.count(name) > 1]:
        raise ValueError(f"X has several columns {', '.join(map(repr, twice))}: rename or omit all except one")


def refuse_unusable(X: Any) -> None:
    """Raise for the first column of a frame that holds something other than finite numbers."""
    for name in getattr(X, "columns", ()):
        column = np.asarray(X[name])
        try:
            finite = np.isfinite(np.asarray(column, dtype=np.float64))
        except (TypeError, ValueError):
            raise ValueError(f"X[{name!r}] does not hold numbers: convert it, for example to 0-1 columns, or write a "
                             f"kernel of terms with group({name})") from None  # fmt: skip
        if not finite.all():
            raise ValueError(f"X[{name!r}], row {int(np.argmin(finite))}: {MISSING}")


def _check_frame(X: Any, columns: Sequence[str]) -> None:
    _refuse_repeated(X)
    there = getattr(X, "columns", None)
    derived = [Derived.of(column, () if there is None else there) for column in columns]
    names = list(dict.fromkeys(one.source for one in derived))
    if there is None or isinstance(X, np.ndarray):
        raise ValueError(f"kernel names columns of X ({', '.join(map(repr, names))}), and X is an array without names: "
                         "pass a data frame, or columns by position")  # fmt: skip
    if absent := [name for name in names if name not in list(there)]:
        raise ValueError(f"X has no column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}, which the kernel "
                         f"names; it has {', '.join(repr(str(name)) for name in there)}")  # fmt: skip
    for name, function in derived:
        if function == "missing":
            raise ValueError(f"missing({name}) is a function of tables: use tables.problem(frame, target, "
                             "kernel=...).fit()")  # fmt: skip


def _numbers(X: Any, column: str) -> np.ndarray:
    name, _ = derived = Derived.of(column, X.columns)
    given = in_days(np.asarray(X[name]))
    refuse_others(given, f"X[{name!r}]")
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X[{name!r}] must hold numbers, or be a group of the kernel (group({name}), or "
                         f"kernels.Categories().on({name!r})): {error}") from None  # fmt: skip

    def fail(row: int, why: str) -> NoReturn:
        raise ValueError(f"X[{name!r}], row {row}: {why}")

    if not (finite := np.isfinite(values)).all():
        fail(int(np.argmin(finite)), MISSING)

    return derived.applied(values, fail)


def _levels(column: Any, name: str) -> tuple[str, ...]:
    return tuple(sorted(set(_labels(column, name)), key=in_order))


def _labels(column: Any, name: str) -> list[str]:
    values = np.asarray(column)
    if missing := [i for i, value in enumerate(values) if value is None or value != value]:
        raise ValueError(f"X[{name!r}] is missing in row {missing[0]}: fill it in, or leave the row out")
    return [label(value) for value in values]


def in_order(text: str) -> tuple[bool, float, str]:
    """Numbers by size, before words."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def check_levels(levels: int, rows: int, name: str) -> None:
    """Raise if no two rows share a level of a group."""
    if levels == rows > 1:
        raise ValueError(f"column {name!r} has too many levels for a group, {levels} in {rows} rows: every row has "
                         "its own; remove the term")  # fmt: skip


def _check_coregions(kernel: Kernel, levels: dict[Any, int]) -> None:
    for leaf, seen in leaves(kernel):
        if isinstance(leaf, Coregion) and seen and levels[seen[0]] > MAX_COREGION_LEVELS:
            raise ValueError(
                f"column {seen[0]!r} has too many levels for a Coregion, {levels[seen[0]]}: it learns parameters for "
                f"each of at most {MAX_COREGION_LEVELS} levels; Categories (group) shares one among all levels"
            )


def _codes(column: Any, name: str, levels: Sequence[str]) -> np.ndarray:
    found = _labels(column, name)
    new = sorted(set(found) - set(levels))
    place = {level: float(i) for i, level in enumerate([*levels, *new])}
    return np.array([place[level] for level in found])


def _array_levels(X: Any, groups: Sequence[Any]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    x = np.asarray(X)
    if x.ndim != 2:
        return ()
    for column in groups:
        if column >= x.shape[1]:
            raise ValueError(f"kernel: column {column} is not one of the {x.shape[1]} columns of X, counted from 0")
    return tuple((column, _levels(x[:, column], str(column))) for column in groups)


def level_counts(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> dict[int, int]:
    """Number of levels in the columns of Coregion parts: codes of an array must be 0, 1, ..."""
    counts = {}
    for leaf, seen in leaves(kernel):
        if isinstance(leaf, Coregion) and seen:
            column = int(seen[0])
            codes = x[:, column]
            if (codes < 0).any() or (codes != np.rint(codes)).any():
                raise ValueError(f"column {column}: codes of a Coregion must be 0, 1, 2, ...; got {codes.min():g}")
            counts[column] = int(codes.max()) + 1
            _check_coregions(kernel, {seen[0]: counts[column]})
    return counts
