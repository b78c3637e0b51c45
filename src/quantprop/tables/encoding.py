"""From a table of text to a matrix of numbers, the same way every time: what `fit` learned of the columns, `predict`
repeats.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from jaxtyping import Float

from quantprop.estimators.columns import announce
from quantprop.kernels.derived import Derived
from quantprop.runtime.names import check_name
from quantprop.tables import dates
from quantprop.tables.reading import MISSING, Table, TableError, is_number, missing, rows_by_column

TRUTH = ("false", "true")
ROW_NAMES = {"rownames", "row.names", "unnamed: 0"}  # headers that R and pandas give them
TREATMENTS = ("standardised", "centred", "coded", "plain")
LARGEST = 1e150  # number of a column: its square is still finite
MAX_LEVELS = 50  # categories of one column
TYPICAL_SHARE = 0.8  # a column with more numbers (or dates) than this share is one of numbers, with mistakes
OLD_ROWS = (
    "fill them in, drop these rows with --drop-missing, leave a column out with --ignore, or, in a formula, give rows "
    "that miss x a separate effect with linear(missing(x))"
)
NEW_ROWS = "fill them in, or skip these rows with --drop-missing or --blank-missing"
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


@dataclass(frozen=True)
class Column:
    """A feature column: words (one of its levels in each cell), dates, or numbers. Dates become days, and sine and
    cosine of each of the cycles (year, week, day). For a kernel of terms it is only "centred", in units of its own,
    "plain", as it is, or "coded": the place of its level, or one beyond for a new level.
    """

    name: str
    levels: tuple[str, ...] = ()
    dates: bool = False
    cycles: tuple[str, ...] = ()
    treatment: str = "standardised"
    function: str = ""  # of another column, if the name is that of a function, log(dose)
    fill: float | None = None  # of missing cells, if the column may have some

    @property
    def may_miss(self) -> bool:
        """True if cells of the column in the table may be missing."""
        return self.fill is not None or self.function == "missing"

    @property
    def derived(self) -> Derived:
        """The column of the table that it comes from, and the function applied to it."""
        return Derived.of(self.name) if self.function else Derived(self.name)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of X that it becomes: two levels are one 0-1 column, more are one column each."""
        if self.levels and self.treatment != "coded":
            return tuple(f"{self.name}={level}" for level in self.shown)
        return (self.name, *(f"{self.name}: {wave} of {cycle}" for cycle in self.cycles for wave in ("sin", "cos")))

    @property
    def shown(self) -> tuple[str, ...]:
        """The levels that have a column of X each: of two levels only the second."""
        return self.levels[1:] if len(self.levels) == 2 else self.levels

    def coded(self, table: Table) -> Float[np.ndarray, "n k"]:
        """The columns of X that it becomes."""
        if self.dates:
            return dates.parts(_moments(table, self.name), self.cycles)
        if not self.levels:
            return self._numbers(table)[:, None]
        cells = self._cells(table)
        if self.treatment == "coded":
            place = {level: float(i) for i, level in enumerate([*self.levels, *self.new(table)])}
            return np.array([[place[cell]] for cell in cells])
        if unknown := [i for i, cell in enumerate(cells) if cell not in self.levels]:
            raise TableError(
                f"{table.cell(unknown[0], self.name)} is not one of the categories seen in training "
                f"({', '.join(map(repr, self.levels))}): correct it, fit a table that contains it, or skip such rows "
                "with --drop-missing or --blank-missing"
            )
        return np.array([[float(cell == level) for level in self.shown] for cell in cells])

    def _numbers(self, table: Table) -> Float[np.ndarray, " n"]:
        derived, open_end = self.derived, math.nan if self.may_miss else None

        def fail(row: int, why: str) -> NoReturn:
            raise TableError(f"{table.cell(row, derived.source)}: {why}")

        found = numbers(table, derived.source, open_end)
        if self.fill is None:
            return derived.applied(found, fail)
        there = ~np.isnan(found)
        found[there] = derived.applied(found[there], lambda row, why: fail(int(np.flatnonzero(there)[row]), why))
        return np.where(there, found, self.fill)

    def new(self, table: Table) -> list[str]:
        """Levels of a coded column that are unseen in training."""
        return sorted(set(self._cells(table)) - set(self.levels)) if self.treatment == "coded" else []

    def _cells(self, table: Table) -> list[str]:
        cells = table.column(self.derived.source)
        return [cell.casefold() for cell in cells] if self.levels == TRUTH else cells

    def known(self, table: Table) -> np.ndarray:
        """Returns whether each row has a cell here that is neither missing nor an unknown category."""
        cells = self._cells(table)
        any_level = not self.levels or self.treatment == "coded"
        return np.array([
            self.may_miss if cell in MISSING else any_level or cell in self.levels for cell in cells
        ])  # fmt: skip


@dataclass(frozen=True)
class Encoding:
    """The columns that become X, and the centre and scale of every column of X."""

    columns: tuple[Column, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(feature for column in self.columns for feature in column.features)

    def raw(self, table: Table) -> Float[np.ndarray, "n d"]:
        """X in the units of the table. Columns are found by name, in any order; others are not looked at."""
        self._check_columns(table)
        check_complete(table, [column.derived.source for column in self.columns if not column.may_miss], NEW_ROWS)
        announce({column.name: new for column in self.columns if (new := column.new(table))}, table.source)
        return np.concatenate([column.coded(table) for column in self.columns], axis=1)

    def _check_columns(self, table: Table) -> None:
        there = set(table.names)
        if absent := [c.derived.source for c in self.columns if c.derived.source not in there]:
            raise TableError(f"{table.source} lacks the column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))} "
                             "that the model was fitted with")  # fmt: skip

    def known(self, table: Table) -> np.ndarray:
        """Returns whether each row can be encoded: no missing cell and no unknown category."""
        return np.all(list(self.known_by_column(table).values()), axis=0)

    def known_by_column(self, table: Table) -> dict[str, np.ndarray]:
        """Returns this for the cells of each column."""
        self._check_columns(table)
        return {column.name: column.known(table) for column in self.columns}

    def matrix(self, table: Table) -> Float[np.ndarray, "n d"]:
        """X, standardised."""
        return self.standardised(self.raw(table))

    def standardised(self, raw: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Rows in the units of the table as rows of X."""
        return (raw - np.array(self.centre)) / np.array(self.scale)

    def standardising(self, raw: Float[np.ndarray, "n d"]) -> Encoding:
        """The same columns, centred and scaled by other rows; columns that do not vary there keep their unit."""
        kinds = np.array([column.treatment for column in self.columns for _ in column.features])
        centre = np.where(np.isin(kinds, ("coded", "plain")), 0.0, raw.mean(axis=0))
        scale = np.where(kinds == "standardised", raw.std(axis=0), 1.0)
        if (tiny := (scale < 1.0 / LARGEST) & (np.ptp(raw, axis=0) > 0.0)).any():
            worst = self.features[int(np.argmax(tiny))]
            raise TableError(f"the numbers of column {worst!r} differ by less than {1.0 / LARGEST:g}: change its unit")
        scale = np.where(scale > 0, scale, 1.0)
        return dataclasses.replace(self, centre=tuple(centre.tolist()), scale=tuple(scale.tolist()))


def learned(table: Table, dates_as: str = "number") -> tuple[Encoding, dict[str, str]]:
    """The encoding of the columns of a table, and why others are left out: because they never change, or name the
    rows, as R and pandas write them.

    Dates become a number, days, or with "parts" their place in year, week and day as well.
    """
    check_name("dates", dates_as, dates.DATES)
    check_complete(table, table.names)
    named = [name for name in table.names if name.casefold() in ROW_NAMES and _is_unique(table.column(name))]
    columns = {name: _column(table, name, dates_as) for name in table.names if name not in named}
    constant = [name for name, column in columns.items() if not np.ptp(column.coded(table), axis=0).any()]
    used = [column for name, column in columns.items() if name not in constant]
    if not used:
        raise TableError(f"{table.source} has no column, except the target, with two or more different values")
    return encoding_of(used, table), dict.fromkeys(named, "names the rows") | dict.fromkeys(constant, "is constant")


def _is_unique(cells: Sequence[str]) -> bool:
    return len(set(cells)) == len(cells)


def encoding_of(columns: Iterable[Column], table: Table) -> Encoding:
    """The encoding of some columns, centred and scaled by the rows of a table."""
    blank = Encoding(tuple(columns), (), ())
    return blank.standardising(blank.raw(table))


def _column(table: Table, name: str, dates_as: str) -> Column:
    if not is_dates(table.column(name)):
        return Column(name, levels_of(table, name))
    cycles = dates.varying(_moments(table, name)) if dates_as == "parts" else ()
    return Column(name, dates=True, cycles=cycles)


def is_dates(cells: Sequence[str]) -> bool:
    """Returns whether a column holds dates, apart from a few mistakes."""
    return sum(dates.days(cell) is not None for cell in cells) > TYPICAL_SHARE * len(cells)


def levels_of(table: Table, name: str) -> tuple[str, ...]:
    """The sorted categories of a text column; none for numbers."""
    cells = table.column(name)
    numbers = [is_number(cell) for cell in cells]
    if all(numbers):
        return ()
    if {cell.casefold() for cell in cells} <= set(TRUTH):
        return TRUTH
    place = table.cell(numbers.index(False), name)
    if all(number or DECIMAL_COMMA.fullmatch(cell) for number, cell in zip(numbers, cells, strict=True)):
        raise TableError(f"{place} has a decimal comma: read the table with --decimal , (in Python, decimal=','), or "
                         "write the numbers with a point")  # fmt: skip
    if all(dates.SLASHED.fullmatch(cell) for cell in cells):
        raise TableError(f"{place} is a date with slashes, whose order of day and month is ambiguous: write the dates "
                         "of this column as 2026-12-31 or 31.12.2026, or leave it out with --ignore")  # fmt: skip
    if np.mean(numbers) > TYPICAL_SHARE:
        raise TableError(f"{place} is not a number, but most cells of the column are: correct it, or leave it empty "
                         "and drop the row with --drop-missing")  # fmt: skip
    levels = tuple(sorted(set(cells)))
    if len(levels) > min(MAX_LEVELS, max(10, len(cells) // 2)):
        raise TableError(
            f"{table.source}: column {name!r} has {len(levels)} different text values in {len(cells)} rows, too many "
            "for categories: leave it out with --ignore, or convert it to numbers or to fewer categories"
        )
    return levels


def numbers(table: Table, name: str, open_end: float | None = None) -> Float[np.ndarray, " n"]:
    """A column of finite numbers. With an open end, cells may be missing or infinite on that side: there is none."""

    def number(row: int, cell: str) -> float:
        infinite = "inf" in cell.casefold()  # as written: a number of too many digits is not
        if open_end is not None:
            at_end = is_number(cell) and float(cell) == open_end and infinite == np.isinf(open_end)
            if at_end or cell in MISSING:
                return open_end
        if is_number(cell) and abs(float(cell)) <= LARGEST:
            return float(cell)
        place = table.cell(row, name)
        if is_number(cell) and not infinite:
            raise TableError(f"{place} is too large, above {LARGEST:g}: change the unit of the column")
        remedy = ": it has a decimal comma, which --decimal , reads" if DECIMAL_COMMA.fullmatch(cell) else ""
        raise TableError(f"{place} is not a finite number{remedy}")

    return np.array([number(i, cell) for i, cell in enumerate(table.column(name))])


def _moments(table: Table, name: str) -> Float[np.ndarray, " n"]:
    found = [dates.days(cell) for cell in table.column(name)]
    if None in found:
        raise TableError(f"{table.cell(found.index(None), name)} is not a date such as 2026-12-31, 2026-12-31 23:59 or "
                         "31.12.2026")  # fmt: skip
    return np.array(found, dtype=np.float64)


def check_complete(table: Table, names: Sequence[str], remedy: str = OLD_ROWS) -> None:
    """Refuse missing cells in some columns, with their counts and what can be done."""
    used = table.without(set(table.names) - set(names))
    if counts := missing(used):
        rows = len(used.rows) - len(used.complete().rows)
        raise TableError(f"{table.source} has missing values in {rows} of {len(table.rows)} "
                         f"rows{rows_by_column(counts)}: {remedy}")  # fmt: skip
