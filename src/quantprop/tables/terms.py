"""The columns of a table that a kernel of terms names: numbers in their own units, and levels of groups as codes."""

from __future__ import annotations

from quantprop.estimators.columns import check_levels, in_order
from quantprop.kernels import Terms, groups_of
from quantprop.tables.dropping import columns_in
from quantprop.tables.encoding import TRUTH, Column, Encoding, check_complete, is_dates, levels_of
from quantprop.tables.reading import Table, TableError


def encoded(table: Table, text: str) -> tuple[Encoding, tuple[str, ...]]:
    """The encoding of the columns that a text names, and the names of those that it leaves out."""
    chosen = columns_in(text, table.names)  # which points at a name that is none
    if not chosen:
        raise TableError("the kernel has no term of a column: add one, such as se(age)")
    check_complete(table, chosen)
    groups = set(groups_of(Terms(text).kernel(), called=True))
    columns = tuple(_group(table, name) if name in groups else _numeric(table, name) for name in chosen)
    blank = Encoding(columns, (), ())
    left_out = tuple(name for name in table.names if name not in chosen)
    return blank.standardising(blank.raw(table)), left_out


def _group(table: Table, name: str) -> Column:
    cells = table.column(name)
    found = {cell.casefold() for cell in cells}
    levels = TRUTH if found <= set(TRUTH) else tuple(sorted(set(cells), key=in_order))
    if len(levels) < 2:
        raise TableError(f"{table.source}: column {name!r} always holds {cells[0]!r}: there is no group to tell apart")
    check_levels(len(levels), len(cells), name)
    return Column(name, levels, treatment="coded")


def _numeric(table: Table, name: str) -> Column:
    if is_dates(table.column(name)):
        return Column(name, dates=True, treatment="centred")
    levels = levels_of(table, name)
    if len(levels) > 2:
        shown = ", ".join(map(repr, levels[:3]))
        raise TableError(f"{table.source}: column {name!r} holds words ({shown}, ...), of which only group({name}) and "
                         f"coregion({name}) can be terms")  # fmt: skip
    return Column(name, levels, treatment="centred")
