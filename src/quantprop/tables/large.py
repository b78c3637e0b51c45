"""Tables larger than memory, by polars: read in chunks, or encoded once into a file of float64 rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from quantprop.tables.encoding import LARGEST, MAX_LEVELS, TRUTH, Column, Encoding
from quantprop.tables.parquet import PARQUET, TableError, polars_for, readable
from quantprop.tables.reading import STDIN, Table, from_columns, read, rows_by_column

CHUNK = 65_536  # rows read at a time as text
BATCH = 2**18  # rows encoded at a time


def _is_parquet(path: str) -> bool:
    if path == STDIN or not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(PARQUET)) == PARQUET


@dataclass(frozen=True)
class Chunks:
    """The rows of a table in chunks. Parquet is read as it is asked for; other tables are in memory, one chunk."""

    path: str
    decimal: str = "."

    def tables(self, rows: int = CHUNK) -> Iterator[Table]:
        """Chunks of at most the given number of rows, each with the numbers of its rows in the file."""
        done = 0
        if _is_parquet(self.path):
            polars = polars_for(self.path)
            with readable(self.path, polars):
                for frame in polars.scan_parquet(self.path).collect_batches(chunk_size=rows, maintain_order=True):
                    table = from_columns(frame.to_dict(as_series=False), self.path)
                    yield replace(table, lines=tuple(line + done for line in table.lines))
                    done += len(frame)
        if not done:  # in memory; or Parquet without rows, which is an error
            yield read(self.path, self.decimal)

    def count(self) -> int | None:
        """The number of rows, if it is known without reading them."""
        if not _is_parquet(self.path):
            return None
        polars = polars_for(self.path)
        with readable(self.path, polars):
            return int(polars.scan_parquet(self.path).select(polars.len()).collect().item())


@dataclass(frozen=True)
class Spool:
    """Rows of X and y in a file, as `learning.streamed.fit_streamed` takes them; `encoding` made them of a table.

    `labels` are those of y if it holds words: y is the place of each in this tuple.
    """

    path: str
    count: int
    encoding: Encoding
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.count

    @property
    def width(self) -> int:
        """Numbers per row: its features and y."""
        return len(self.encoding.features) + 1

    def read(self, start: int, stop: int) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]:
        """A range of rows."""
        numbers = np.fromfile(self.path, np.float64, (stop - start) * self.width, offset=8 * start * self.width)
        if len(numbers) < (min(stop, self.count) - start) * self.width:
            raise TableError(f"{self.path} is shorter than it was written: encode the table again")
        rows = numbers.reshape(-1, self.width)
        return rows[:, :-1], rows[:, -1]

    def take(self, numbers: Int[np.ndarray, " k"]) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " k"]]:
        """Some rows, by their numbers."""
        rows = np.memmap(self.path, np.float64, "r", shape=(self.count, self.width))[numbers]
        return np.asarray(rows[:, :-1]), np.asarray(rows[:, -1])


def spooled(source: str | os.PathLike[str], target: str, place: str | os.PathLike[str]) -> Spool:
    """Encode a Parquet or CSV file, of any size, and write its rows to the file `place`: 8 bytes a number.

    One pass over the table finds means, scales and categories, another encodes; both hold some rows at a time.

    >>> import os, tempfile
    >>> import polars
    >>> from quantprop import tables
    >>> folder = tempfile.mkdtemp()
    >>> file = os.path.join(folder, "few.parquet")
    >>> polars.DataFrame({"x": [1.0, 2.0, 3.0], "kind": ["a", "b", "a"], "y": [0, 1, 1]}).write_parquet(file)
    >>> rows = tables.spooled(file, "y", os.path.join(folder, "rows"))
    >>> len(rows), rows.encoding.features, rows.read(0, 3)[1].tolist()
    (3, ('x', 'kind=b'), [0.0, 1.0, 1.0])
    """
    source, polars = os.fspath(source), polars_for(os.fspath(source))
    with readable(source, polars):
        scan = polars.scan_parquet(source) if _is_parquet(source) else polars.scan_csv(source)
        schema = scan.collect_schema()
        if target not in schema:
            raise TableError(f"{source} has no column {target!r}; it has {', '.join(map(repr, schema))}")
        count = _checked_count(scan, polars, source)
        levels = {name: _levels(scan, name, kind, polars, source) for name, kind in schema.items()}
        labels = levels.pop(target) or ()
        columns = tuple(Column(name, found) for name, found in levels.items() if found is not None)
        if not columns:
            raise TableError(f"{source} has no column, except the target, with two or more different values")
        x = [feature.alias(str(i)) for i, feature in enumerate(_features(columns, polars))]
        mean, scale = (
            scan.select(statistic).collect(engine="streaming").row(0)
            for statistic in ([feature.mean() for feature in x], [feature.std(ddof=0) for feature in x])
        )
        encoding = Encoding(columns, mean, tuple(one if one > 0 else 1.0 for one in scale))
        spool = Spool(os.fspath(place), count, encoding, labels)
        y: Any = polars.col(target)
        if labels:
            places = list(range(len(labels)))
            y = y.cast(polars.String).replace_strict(list(labels), places, return_dtype=polars.Float64)
        y = y.cast(polars.Float64)
        frames = scan.collect_batches(chunk_size=BATCH, maintain_order=True)
        each = ((encoding.standardised(frame.select(x).to_numpy()), frame.select(y).to_numpy()) for frame in frames)
        _write(spool, map(np.column_stack, each))
    return spool


def _features(columns: Iterable[Column], polars: Any) -> Iterator[Any]:
    for column in columns:
        cells = polars.col(column.name)
        if not column.levels:
            yield cells.cast(polars.Float64)
        for level in column.shown:
            yield (cells.cast(polars.String) == level).cast(polars.Float64)


def _write(spool: Spool, parts: Iterator[Float[np.ndarray, "n width"]]) -> None:
    """Write all parts to the file; if the disk is full, the file is removed."""
    try:
        with open(spool.path, "wb") as file:
            for part in parts:
                file.write(np.ascontiguousarray(part).data)
    except OSError as error:
        with suppress(OSError):
            os.unlink(spool.path)
        size = 8 * spool.count * spool.width
        raise TableError(f"{spool.path} cannot be written ({error.strerror}): it needs {size / 1e9:.2g} GB; choose a "
                         "disk with more space") from error  # fmt: skip


def _checked_count(scan: Any, polars: Any, source: str) -> int:
    """The number of rows, or an error where cells are missing."""
    found = scan.select(polars.len().alias(" rows"), polars.all().null_count()).collect().row(0, named=True)
    count = found.pop(" rows")
    if missing := {name: number for name, number in found.items() if number}:
        raise TableError(
            f"{source} has missing values{rows_by_column(missing)}: fill them in, or drop these rows and columns"
        )
    if not count:
        raise TableError(f"{source} has column names but no rows")
    return int(count)


def _levels(scan: Any, name: str, kind: Any, polars: Any, source: str) -> tuple[str, ...] | None:
    """The categories of a text column, none for numbers; None for a column that never changes."""
    if kind == polars.Boolean:
        return TRUTH
    if kind.is_numeric():
        low, high = scan.select(polars.col(name).min().alias("a"), polars.col(name).max().alias("b")).collect().row(0)
        if not max(abs(low), abs(high)) <= LARGEST:
            raise TableError(f"{source}: column {name!r} holds NaN, or numbers above {LARGEST:g}: leave those rows out")
        return None if low == high else ()
    if kind != polars.String:
        raise TableError(f"{source}: column {name!r} holds {kind}: convert it to numbers or text, or leave it out")
    found = scan.select(polars.col(name).unique()).head(MAX_LEVELS + 1).collect()[name].to_list()
    if len(found) > MAX_LEVELS:
        raise TableError(f"{source}: column {name!r} has more than {MAX_LEVELS} different text values, too many for "
                         "categories: leave it out, or convert it to numbers or to fewer categories")  # fmt: skip
    return None if len(found) < 2 else tuple(sorted(found))
