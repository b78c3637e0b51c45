"""The columns that a kernel uses: rows in which they are complete, and their encoding for kernels of terms."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quantprop.estimators.columns import check_levels, in_order
from quantprop.kernels import Terms, columns_of, groups_of
from quantprop.kernels.derived import Derived
from quantprop.kernels.formulas import is_formula
from quantprop.tables.encoding import TRUTH, Column, Encoding, check_complete, encoding_of, is_dates, levels_of
from quantprop.tables.reading import MISSING, Table, TableError, as_table, missing, rows_by_column
from quantprop.tables.roles import Roles


@dataclass(frozen=True)
class Complete:
    """A table without missing values in the columns that models use.

    Attributes:
        table: the rows that are left.
        dropped: how many rows are not.
        cost: how many rows have a missing value in each of these columns.
        constant: features left out because their values, where they are not missing, never change.
    """

    table: Table
    dropped: int
    cost: dict[str, int]
    constant: tuple[str, ...]

    def __str__(self) -> str:
        rows = self.dropped + len(self.table.rows)
        return f"{self.dropped} of {rows} rows have missing values: dropped{rows_by_column(self.cost)}"


def complete(
    table: Table | Any, target_name: str, kernels: Sequence[str] = ("isotropic",), roles: Roles = Roles()
) -> Complete:
    """Drop the rows with a missing value in a column that a model uses.

    These are the target, columns with a role, and the features of all kernels. Open ends of intervals are not missing.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.
        target_name: Column to predict.
        kernels: Names or formulas of the kernels to compare, which determine the features in use.
        roles: Columns that qualify the target (`Roles`); all other columns are features.

    Returns:
        The complete rows, and how many rows each column cost.

    >>> from quantprop import tables
    >>> table = tables.from_columns({"x": [1, 2, None, 4], "z": [None, 2, 3, 1], "y": [1, 2, 3, None]}, "a list")
    >>> found = tables.complete(table, "y", ["se(x)"])
    >>> found.table.lines, found.cost
    ((1, 2), {'x': 1, 'y': 1})
    """
    table = as_table(table)
    roled = {target_name, *roles.columns.values()}
    open_ended = set() if roles.upper is None else {target_name, roles.upper}
    names = table.without(roled).names
    chosen = {name for kernel in kernels if is_formula(kernel) for name in columns_in(kernel, names)}
    used = {Derived.of(name, names).source for name in chosen} - may_miss(chosen, names)
    others = [] if all(is_formula(kernel) for kernel in kernels) else [name for name in names if name not in used]
    cells = {name: set(table.column(name)) for name in others}
    constant = tuple(name for name, found in cells.items() if found & MISSING and len(found - MISSING) < 2)
    used = (used | roled | set(others)) - set(constant) - open_ended
    unused = [name for name in table.names if name not in used]
    left = table.complete(unused)
    return Complete(left.without(constant), len(table.rows) - len(left.rows), missing(table.without(unused)), constant)


def columns_in(kernel: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that the terms of a kernel name, of those that there are."""
    named = columns_of(Terms(kernel, tuple(names)).kernel(names=names), called=True)
    return tuple(dict.fromkeys(map(str, (*named, *Terms(kernel).offsets()))))


def may_miss(chosen: Iterable[str], names: Sequence[str]) -> set[str]:
    """The columns that terms of missing(column) allow to be missing."""
    derived = (Derived.of(name, names) for name in chosen)
    return {one.source for one in derived if one.function == "missing"}


def encoded(table: Table, text: str) -> tuple[Encoding, dict[str, str]]:
    """The encoding of the columns that a kernel of terms names, and why the others are left out. Numbers keep
    their own units, levels of groups become codes.
    """
    chosen = columns_in(text, table.names)
    if not chosen:
        raise TableError("the kernel uses no column: add a term, such as se(age)")
    sources = [Derived.of(name, table.names).source for name in chosen]
    filled = may_miss(chosen, table.names)
    check_complete(table, [source for source in sources if source not in filled])
    groups = set(groups_of(Terms(text).kernel(), called=True))
    if filled & groups:
        raise TableError(f"missing({min(filled & groups)}) is for numbers, and another term takes it as a group")
    known = set(Terms(text).offsets())
    columns = tuple(_group(table, name) if name in groups else _numeric(table, name, filled) for name in chosen)
    columns = tuple(replace(one, treatment="plain") if one.name in known else one for one in columns)
    return encoding_of(columns, table), {name: "appears in no term" for name in table.names if name not in sources}


def _filled(table: Table, source: str, column: Column) -> Column:
    """A column of numbers whose missing cells get the mean of the others; its indicator as it is."""
    there = table.only([i for i, cell in enumerate(table.column(source)) if cell not in MISSING])
    if not 0 < len(there.rows) < len(table.rows) or levels_of(there, source) or is_dates(there.column(source)):
        raise TableError(f"missing({source}) needs a column of numbers of which some are missing: {table.source} has "
                         f"{len(there.rows)} of {len(table.rows)} cells in it, starting with "
                         f"{table.column(source)[0]!r}")  # fmt: skip
    return column if column.function == "missing" else replace(column, fill=float(column.coded(there).mean()))


def _group(table: Table, name: str) -> Column:
    cells = table.column(name)
    found = {cell.casefold() for cell in cells}
    levels = TRUTH if found <= set(TRUTH) else tuple(sorted(set(cells), key=in_order))
    if len(levels) < 2:
        raise TableError(f"{table.source}: column {name!r} always holds {cells[0]!r}: a group needs two levels or more")
    check_levels(len(levels), len(cells), name)
    return Column(name, levels, treatment="coded")


def _numeric(table: Table, name: str, filled: Container[str] = ()) -> Column:
    source, function = Derived.of(name, table.names)
    if source in filled:
        return _filled(table, source, Column(name, treatment="centred", function=function))
    if function:
        return Column(name, treatment="centred", function=function)
    if is_dates(table.column(name)):
        return Column(name, dates=True, treatment="centred")
    levels = levels_of(table, name)
    if len(levels) > 2:
        shown = ", ".join(map(repr, levels[:3]))
        raise TableError(f"{table.source}: column {name!r} holds text ({shown}, ...), which only group({name}), "
                         f"factor({name}) and coregion({name}) accept as terms")  # fmt: skip
    return Column(name, levels, treatment="centred")
