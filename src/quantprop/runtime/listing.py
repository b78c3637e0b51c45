"""Named columns of equal length: what is printed as a table, shown in notebooks, and handed over as a frame."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quantprop.runtime.markup import table

LARGEST_WHOLE = 1e9  # whole numbers below it, such as days since 1970, are written in full


@dataclass(frozen=True, eq=False, repr=False)
class Listing(Mapping[str, list]):
    """A table of results: columns by name, all of one length.

    Attributes:
        title: what the rows are.
        columns: text and numbers by the name of the column.
        places: columns of numbers that say where a row is, such as times, and print with all their digits.
    """

    title: str
    columns: dict[str, list]
    places: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> list:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [dict(zip(self, row, strict=True)) for row in zip(*self.values(), strict=True)]

    def frame(self) -> Any:
        """A frame of pandas, or of polars if only that is installed."""
        there = [name for name in ("pandas", "polars") if importlib.util.find_spec(name)]
        if not there:
            raise ImportError("frame() needs pandas or polars: install one of them, or use .columns")
        return importlib.import_module(there[0]).DataFrame(self.columns)

    def lines(self) -> Iterator[str]:
        """The title, and a line for each row, numbers to four digits, places to twelve."""
        yield f"{self.title}:"
        cells = [[name, *column] for name, column in zip(self, self._cells(), strict=True)]
        sides = ["<" if any(isinstance(value, str) for value in column) else ">" for column in self.values()]
        widths = [max(map(len, column)) for column in cells]
        for row in zip(*cells, strict=True):
            padded = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
            yield f"  {'  '.join(padded)}".rstrip()

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return table(list(self), zip(*self._cells(), strict=True), self.title)

    def _cells(self) -> list[list[str]]:
        digits = {name: 12 if name in self.places else 4 for name in self}
        return [[_written(value, digits[name]) for value in column] for name, column in self.items()]


def _written(value: Any, digits: int) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < LARGEST_WHOLE else f"{value:.{digits}g}"
