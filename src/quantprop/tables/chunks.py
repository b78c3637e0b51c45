"""Tables larger than memory: the rows of a Parquet file, one chunk after the other (polars)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quantprop.tables.reading import STDIN, Table, from_columns, polars_for, read, readable

ROWS = 65_536  # of a chunk


@dataclass(frozen=True)
class Chunks:
    """The rows of a table in chunks. Parquet is read as it is asked for; other tables are in memory, one chunk."""

    path: str
    decimal: str = "."

    @property
    def is_parquet(self) -> bool:
        """Whether rows are read as they are asked for."""
        if self.path == STDIN or not Path(self.path).is_file():
            return False
        with open(self.path, "rb") as file:
            return file.read(4) == b"PAR1"

    def tables(self, rows: int = ROWS) -> Iterator[Table]:
        """One chunk of so many rows after the other, each with the numbers of its rows in the file."""
        done = 0
        for frame in self._frames(rows):
            table = from_columns(frame.to_dict(as_series=False), self.path)
            yield replace(table, lines=tuple(line + done for line in table.lines))
            done += len(frame)
        if not done:  # in memory; or a file without rows, of which it says so
            yield read(self.path, self.decimal)

    def count(self) -> int | None:
        """How many rows there are, where that is known without reading them."""
        if not self.is_parquet:
            return None
        polars = polars_for(self.path)
        with readable(self.path, polars):
            return int(polars.scan_parquet(self.path).select(polars.len()).collect().item())

    def _frames(self, rows: int) -> Iterator[Any]:
        if not self.is_parquet:
            return
        polars = polars_for(self.path)
        with readable(self.path, polars):
            yield from polars.scan_parquet(self.path).collect_batches(chunk_size=rows, maintain_order=True)
