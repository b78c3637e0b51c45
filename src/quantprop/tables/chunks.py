"""Tables larger than memory: the rows of a Parquet file, one chunk after the other (polars)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quantprop.tables.reading import STDIN, Table, TableError, from_columns, read

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


@contextmanager
def readable(path: str, polars: Any) -> Iterator[None]:
    """Errors of polars as one that names the file: a truncated row group, say."""
    try:
        yield
    except (polars.exceptions.PolarsError, OSError) as error:
        raise TableError(f"{path} cannot be read to its end: {error}; it may have been cut short: copy it again, and "
                         "compare its size") from error  # fmt: skip


def polars_for(path: str) -> Any:
    """The library that reads Parquet."""
    try:
        import polars  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise TableError(f"{path} is Parquet, which needs polars: pip install 'quantprop[parquet]'") from None
    return polars
