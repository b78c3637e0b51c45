"""From a table of text to a matrix of numbers, the same way every time: what `fit` learned of the columns, `predict`
repeats.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.tables.reading import Table, TableError, is_number, missing

TRUTH = ("false", "true")
MANY = 50  # categories of one column
MOSTLY = 0.8  # a column with more numbers than this share, and some words, is one with mistakes
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


@dataclass(frozen=True)
class Column:
    """A column that is learned from: numbers where it has no levels, else one of the levels in each cell."""

    name: str
    levels: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of X that it becomes: two levels are one 0-1 column, more are one column each."""
        shown = self.levels[1:] if len(self.levels) == 2 else self.levels
        return tuple(f"{self.name}={level}" for level in shown) or (self.name,)

    def coded(self, table: Table) -> Float[np.ndarray, "n k"]:
        """Its part of X."""
        cells = table.column(self.name)
        if not self.levels:
            return np.array([_number(table, self.name, i, cell) for i, cell in enumerate(cells)])[:, None]
        cells = [cell.casefold() for cell in cells] if self.levels == TRUTH else cells
        for i, cell in enumerate(cells):
            if cell not in self.levels:
                raise TableError(
                    f"{table.source}, {table.where(i)}: {cell!r} in column {self.name!r} is none of the categories "
                    f"that were learned from ({', '.join(map(repr, self.levels))})"
                )
        hot = np.array([[float(cell == level) for level in self.levels] for cell in cells])
        return hot[:, 1:] if len(self.levels) == 2 else hot


@dataclass(frozen=True)
class Encoding:
    """How columns become X: their levels, and the centre and scale of every column of X."""

    columns: tuple[Column, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(feature for column in self.columns for feature in column.features)

    def raw(self, table: Table) -> Float[np.ndarray, "n d"]:
        """X in the units of the table. Columns are found by name, in any order; others are not looked at."""
        names = [column.name for column in self.columns]
        absent = [name for name in names if name not in table.names]
        if absent:
            raise TableError(f"{table.source} lacks the column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))} "
                             "that the model was learned from")  # fmt: skip
        check_complete(table, names)
        return np.concatenate([column.coded(table) for column in self.columns], axis=1)

    def matrix(self, table: Table) -> Float[np.ndarray, "n d"]:
        """X, standardised."""
        return self.standardised(self.raw(table))

    def standardised(self, raw: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Rows in the units of the table as rows of X."""
        return (raw - np.array(self.centre)) / np.array(self.scale)

    def standardising(self, raw: Float[np.ndarray, "n d"]) -> Encoding:
        """The same columns, centred and scaled by other rows; what does not vary there keeps its unit."""
        centre, scale = raw.mean(axis=0), raw.std(axis=0)
        if not np.isfinite(scale).all():
            worst = self.features[int(np.argmin(np.isfinite(scale)))]
            raise TableError(f"numbers of column {worst!r} are too large to standardise: change its unit")
        scale = np.where(scale > 0, scale, 1.0)
        return dataclasses.replace(self, centre=tuple(centre.tolist()), scale=tuple(scale.tolist()))


def learned(table: Table) -> tuple[Encoding, tuple[str, ...]]:
    """The encoding of all columns of a table, and the names of those left out because they never change."""
    check_complete(table, table.names)
    columns = [Column(name, levels_of(table, name)) for name in table.names]
    varying = [column for column in columns if np.ptp(column.coded(table), axis=0).any()]
    left_out = tuple(column.name for column in columns if column not in varying)
    if not varying:
        raise TableError(f"{table.source} has no column to learn from besides the target that takes two values or more")
    blank = Encoding(tuple(varying), (), ())
    return blank.standardising(blank.raw(table)), left_out


def levels_of(table: Table, name: str) -> tuple[str, ...]:
    """The sorted categories of a column of words; none for one of numbers."""
    cells = table.column(name)
    numbers = [is_number(cell) for cell in cells]
    if all(numbers):
        return ()
    if {cell.casefold() for cell in cells} <= set(TRUTH):
        return TRUTH
    first = numbers.index(False)
    place = f"{table.source}, {table.where(first)}: {cells[first]!r} in column {name!r}"
    if all(number or DECIMAL_COMMA.fullmatch(cell) for number, cell in zip(numbers, cells, strict=True)):
        raise TableError(f"{place} has a decimal comma: write the numbers of this column with a point")
    if np.mean(numbers) > MOSTLY:
        raise TableError(f"{place} is not a number, and most others there are: correct it, or leave it empty and drop "
                         "the row with --drop-missing")  # fmt: skip
    levels = tuple(sorted(set(cells)))
    if len(levels) > min(MANY, max(10, len(cells) // 2)):
        raise TableError(
            f"{table.source}: column {name!r} has {len(levels)} different words in {len(cells)} rows, too many for "
            "categories: leave it out with --ignore, or make numbers or fewer words of it"
        )
    return levels


def _number(table: Table, name: str, row: int, cell: str) -> float:
    if not is_number(cell) or not np.isfinite(float(cell)):
        raise TableError(f"{table.source}, {table.where(row)}: {cell!r} in column {name!r} is not a finite number")
    return float(cell)


def check_complete(table: Table, names: Sequence[str]) -> None:
    """Refuse missing cells in some columns, with their counts."""
    used = table.without(set(table.names) - set(names))
    if counts := missing(used):
        said = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        rows = len(used.rows) - len(used.complete().rows)
        raise TableError(f"{table.source} has missing values in {rows} of {len(table.rows)} rows (by column: {said}): "
                         "fill them in, or drop these rows with --drop-missing")  # fmt: skip


# --- JSON ------------------------------------------------------------------------------------------------------------


def to_json(encoding: Encoding) -> dict[str, Any]:
    """An encoding as JSON; floats keep every digit."""
    return dataclasses.asdict(encoding)


def from_json(node: Any) -> Encoding:
    """An encoding from JSON, every part checked."""
    columns = tuple(Column(_text(part["name"]), tuple(map(_text, part["levels"]))) for part in node["columns"])
    encoding = Encoding(columns, tuple(map(float, node["centre"])), tuple(map(float, node["scale"])))
    names = [column.name for column in columns]
    if not names or len(set(names)) < len(names) or any(len(column.levels) == 1 for column in columns):
        raise ValueError("its columns are no columns of a table")
    if not len(encoding.features) == len(encoding.centre) == len(encoding.scale):
        raise ValueError("its standardisation does not fit its columns")
    if not (np.isfinite(encoding.centre).all() and np.isfinite(encoding.scale).all() and min(encoding.scale) > 0):
        raise ValueError("its standardisation is not finite and positive")
    return encoding


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value
