"""Tables of text from CSV or Parquet. Every error names the file and the line, and says what to change."""

from __future__ import annotations

import csv
import io
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quantprop.runtime.names import check_name, nearest
from quantprop.tables.parquet import PARQUET, TableError, polars_for, readable

SEPARATORS = (",", ";", "\t")
MISSING = frozenset({"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None", "?"})
STDIN = "-"
FIRST = "rownames"  # a first column without a name, as R and pandas write it
DECIMALS = (".", ",")
MAX_SHOWN = 40  # letters of a cell in messages
COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Table:
    """Rows of text under column names.

    Args:
        names: Column names.
        rows: Cells, row by row.
        lines: Line of the file at which each row begins.
        source: Name of the table in messages.
        unit: "line" or "row".
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    source: str
    unit: str = "line"

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        if name not in self._places:
            raise TableError(f"{self.source} has no column {name!r}; it has {', '.join(map(repr, self.names))}"
                             f"{nearest(name, self.names)}")  # fmt: skip
        at = self._places[name]
        return [row[at] for row in self.rows]

    def where(self, row: int) -> str:
        """A row as a person finds it."""
        return f"{self.unit} {self.lines[row]}"

    def cell(self, row: int, name: str) -> str:
        """A cell and its place, for a message; of a long cell its beginning."""
        text = self.column(name)[row]
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
        return f"{self.source}, {self.where(row)}: {shown!r} in column {name!r}"

    def without(self, names: Iterable[str]) -> Table:
        """The table without some columns."""
        gone = set(names)
        kept = [i for i, name in enumerate(self.names) if name not in gone]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return replace(self, names=tuple(self.names[i] for i in kept), rows=rows)

    def only(self, rows: Sequence[int]) -> Table:
        """Some of the rows, in the order given."""
        return replace(self, rows=tuple(self.rows[i] for i in rows), lines=tuple(self.lines[i] for i in rows))

    def sample(self, count: int, seed: int = 0) -> Table:
        """The given number of rows, drawn at random, in the order of the table."""
        return self.only(sorted(random.Random(seed).sample(range(len(self.rows)), count)))

    def complete(self, open_ended: Iterable[str] = ()) -> Table:
        """The rows without missing cells; an empty cell in columns of open ends is not missing."""
        looked_at = self.without(open_ended)
        return self.only([i for i, row in enumerate(looked_at.rows) if MISSING.isdisjoint(row)])


def missing(table: Table) -> dict[str, int]:
    """The number of missing cells, by column."""
    counts = {name: sum(cell in MISSING for cell in table.column(name)) for name in table.names}
    return {name: count for name, count in counts.items() if count}


def rows_by_column(rows: Mapping[str, int]) -> str:
    """Rows by column for a message, in brackets; nothing where there are none."""
    said = ", ".join(f"{name!r} {count}" for name, count in rows.items() if count)
    return f" (by column: {said})" if said else ""


def from_columns(columns: Mapping[str, Iterable[Any]] | Any, source: str) -> Table:
    """Make a table from columns in memory. Numbers keep every digit; None, NaN, NaT and NA are missing.

    Args:
        columns: A mapping from names to columns, or a pandas or polars frame.
        source: Name of the table in messages.

    Returns:
        The table.

    >>> from quantprop import tables
    >>> tables.from_columns({"x": [1, 2], "y": [0.1, None]}, "a list").names
    ('x', 'y')
    """
    polars: Any = getattr(columns, "iter_columns", None)
    if polars is not None:
        named = [(column.name, column) for column in polars()]
    elif hasattr(columns, "items"):
        named = [(str(name), values) for name, values in columns.items()]
    else:
        raise TypeError(f"{source}: columns must be a mapping from names to values, or a pandas or polars frame; got "
                        f"{type(columns).__name__} (tables.read reads a file)")  # fmt: skip
    cells = [[_cell(value) for value in values] for _, values in named]
    for (name, _), column in zip(named, cells, strict=True):
        if len(column) != len(cells[0]):
            raise TableError(f"{source}: column {name!r} has {len(column)} values, but {named[0][0]!r} has "
                             f"{len(cells[0])}")  # fmt: skip
    rows = tuple(zip(*cells, strict=True))
    return _checked(tuple(name for name, _ in named), rows, tuple(range(1, len(rows) + 1)), source, "row")


def as_table(given: Table | Any) -> Table:
    """A table as it is, or one from the columns of a frame."""
    return given if isinstance(given, Table) else from_columns(given, "the frame")


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).strip()


def read(path: str | Path, decimal: str = ".") -> Table:
    """Read a table from a file (CSV with commas, semicolons or tabs; Parquet), or from standard input.

    With decimal="," the cells 1,5 and 1.234,5 are the numbers 1.5 and 1234.5.

    Args:
        path: A CSV or Parquet file, or "-" for standard input.
        decimal: Decimal separator, "." or ",".

    Returns:
        The table.

    >>> import os, tempfile
    >>> from quantprop import tables
    >>> path = os.path.join(tempfile.mkdtemp(), "two.csv")
    >>> _ = open(path, "w").write("x,y\\n1,2\\n3,4\\n")
    >>> tables.read(path).names
    ('x', 'y')
    """
    if str(path) == STDIN:
        return from_bytes(sys.stdin.buffer.read(), "standard input", decimal)
    with open(path, "rb") as file:
        _check_kind(file.peek(), str(path))
        data = file.read()
    return from_bytes(data, str(path), decimal)


def from_bytes(data: bytes, source: str, decimal: str = ".") -> Table:
    """Read a table from the bytes of a CSV file.

    Args:
        data: The bytes.
        source: Name of the table in messages.
        decimal: Decimal separator, "." or ",".

    Returns:
        The table.

    >>> from quantprop import tables
    >>> tables.from_bytes(b"x;y\\n1,5;2\\n", "a list", decimal=",").names
    ('x', 'y')
    """
    check_name("decimal", decimal, DECIMALS)
    if data.startswith(PARQUET):
        polars = polars_for(source)
        with readable(source, polars):
            columns = polars.read_parquet(io.BytesIO(data)).to_dict(as_series=False)
        return from_columns(columns, source)
    text = _decoded(data, source)
    records = [found for found in _records(text, _separator(text), source) if not _blank(found[1])]
    if not records:
        raise TableError(f"{source} is empty: the first line must name the columns, and rows follow")
    (_, header), *body = records
    for line, record in body:
        if len(record) != len(header):
            raise TableError(
                f"{source}, line {line}: {len(record)} cells, but the header has {len(header)}; put quotes around a "
                "cell that holds the separator, or add the missing cells"
            )
    cell = _with_point if decimal == "," else str.strip
    rows = tuple(tuple(map(cell, record)) for _, record in body)
    return _checked(tuple(name.strip() for name in header), rows, tuple(line for line, _ in body), source, "line")


def _with_point(cell: str) -> str:
    cell = cell.strip()
    return cell.replace(".", "").replace(",", ".") if COMMA.fullmatch(cell) else cell


def _checked(
    names: tuple[str, ...], rows: tuple[tuple[str, ...], ...], lines: tuple[int, ...], source: str, unit: str
) -> Table:
    if names[:1] == ("",) and FIRST not in names:
        names = (FIRST, *names[1:])
    if "" in names:
        raise TableError(f"{source}: column {names.index('') + 1} has no name; name it, or remove it")
    if twice := {name for name, count in Counter(names).items() if count > 1}:
        raise TableError(f"{source}: two columns are called {min(twice)!r}; rename one")
    if all(is_number(name) for name in names):
        raise TableError(f"{source}: the first line must name the columns, but holds numbers; add a line of names")
    if not rows:
        raise TableError(f"{source} has column names but no rows")
    return Table(names, rows, lines, source, unit)


def is_number(cell: str) -> bool:
    """Returns whether a cell reads as a number (1_000 is Python's, not a table's)."""
    try:
        return "_" not in cell and not math.isnan(float(cell))
    except ValueError:
        return False


def _check_kind(data: bytes, source: str) -> None:
    """Refuse what is neither text nor Parquet, by how it begins."""
    if data.startswith(PARQUET):
        return
    if data.startswith(b"PK\x03\x04"):
        raise TableError(f"{source} is a spreadsheet or another archive: export the sheet as CSV")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(f"{source} is UTF-16: save it as UTF-8")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise TableError(
            f"{source}, line {line}: a NUL byte; this is not a text file, or a damaged one: save it as UTF-8"
        )


def _decoded(data: bytes, source: str) -> str:
    _check_kind(data, source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{source}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8 "
            "(iconv -f latin1 -t utf-8 turns a Latin-1 file)"
        ) from None


def _records(text: str, separator: str, source: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    line = 1
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            why = "a quote is never closed" if "end of data" in str(error) else str(error)
            raise TableError(f"{source}, line {line}: {why}; write a quote inside a cell twice") from None
        yield line, record
        line = reader.line_num + 1


def _blank(record: list[str]) -> bool:
    return not record or (len(record) == 1 and not record[0].strip())


def _separator(text: str) -> str:
    """The separator under which all rows have as many cells as the header; failing that, the one it holds most of."""

    def fit(separator: str) -> tuple[bool, int, bool]:
        try:
            counts = [len(record) for _, record in _records(text, separator, "") if not _blank(record)]
        except TableError:
            return False, 0, False
        first = counts[0] if counts else 0
        return first > 1 and set(counts) == {first}, first, set(counts) == {first}

    return max(SEPARATORS, key=fit)
