"""Tables larger than memory as rows that can be read again for every pass: encoded once, on disk as plain float64."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from quantprop.tables.encoding import LARGEST, MANY, TRUTH, Column, Encoding
from quantprop.tables.reading import TableError, counted, polars_for, readable

ROWS = 2**18  # of a chunk that is encoded at a time


@dataclass(frozen=True)
class Spool:
    """Rows of X and y in a file, as `learning.streamed.fit_streamed` takes them; `encoding` made them of a table.

    `labels` are those of y where it holds words: their places in it are the numbers of y.
    """

    path: str
    count: int
    encoding: Encoding
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.count

    @property
    def width(self) -> int:
        """Numbers of a row: its features and y."""
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
        kinds = {name: _levels(scan, name, kind, polars, source) for name, kind in schema.items()}
        labels = kinds.pop(target)
        varying = [Column(name, levels) for name, levels in kinds.items() if levels is not None]
        blank = Encoding(tuple(varying), (), ())
        encoding = _standardised(blank, scan, polars, source)
    spool = Spool(os.fspath(place), count, encoding, labels or ())
    _write(spool, (_encoded(spool, frame, target) for frame in _frames(scan, polars, source)))
    return spool


def _frames(scan: Any, polars: Any, source: str) -> Iterator[Any]:
    with readable(source, polars):
        yield from scan.collect_batches(chunk_size=ROWS, maintain_order=True)


def _encoded(spool: Spool, frame: Any, target: str) -> Float[np.ndarray, "n width"]:
    x = spool.encoding.standardised(_raw(spool.encoding, frame))
    return np.column_stack([x, _numbers(frame, target, spool.labels)])


def _write(spool: Spool, parts: Iterator[Float[np.ndarray, "n width"]]) -> None:
    """All parts to the file, or none: what a full disk has taken of it is given back."""
    try:
        with open(spool.path, "wb") as file:
            for part in parts:
                file.write(np.ascontiguousarray(part).data)
    except OSError as error:
        with suppress(OSError):
            os.unlink(spool.path)
        size = 8 * spool.count * spool.width
        raise TableError(f"{spool.path} cannot be written ({error.strerror}): it takes {size / 1e9:.2g} GB; give a "
                         "place with more room") from error  # fmt: skip


def _is_parquet(source: str) -> bool:
    with Path(source).open("rb") as file:
        return file.read(4) == b"PAR1"


def _checked_count(scan: Any, polars: Any, source: str) -> int:
    """How many rows there are, or an error where cells are missing."""
    found = scan.select(polars.len().alias(" rows"), polars.all().null_count()).collect().row(0, named=True)
    count = found.pop(" rows")
    if missing := {name: number for name, number in found.items() if number}:
        raise TableError(f"{source} has missing values{counted(missing)}: fill them in, or drop these rows and columns")
    if not count:
        raise TableError(f"{source} has column names but no rows")
    return int(count)


def _levels(scan: Any, name: str, kind: Any, polars: Any, source: str) -> tuple[str, ...] | None:
    """The categories of a column of words, none for numbers; None for a column that never changes."""
    if kind == polars.Boolean:
        return TRUTH
    if kind.is_numeric():
        low, high = scan.select(polars.col(name).min().alias("a"), polars.col(name).max().alias("b")).collect().row(0)
        if not max(abs(low), abs(high)) <= LARGEST:
            raise TableError(f"{source}: column {name!r} holds NaN, or numbers above {LARGEST:g}: leave those rows out")
        return None if low == high else ()
    if kind != polars.String:
        raise TableError(f"{source}: column {name!r} holds {kind}: make numbers or words of it, or leave it out")
    found = scan.select(polars.col(name).unique()).head(MANY + 1).collect()[name].to_list()
    if len(found) > MANY:
        raise TableError(f"{source}: column {name!r} has more than {MANY} different words, too many for categories: "
                         "leave it out, or make numbers or fewer words of it")  # fmt: skip
    return None if len(found) < 2 else tuple(sorted(found))


def _standardised(blank: Encoding, scan: Any, polars: Any, source: str) -> Encoding:
    """The encoding with centre and scale of every column of X, from sums over chunks about their first row."""
    if not blank.columns:
        raise TableError(f"{source} has no column to learn from besides the target that takes two values or more")
    n, first, total, squares = 0, np.zeros(0), np.zeros(0), np.zeros(0)
    for frame in _frames(scan, polars, source):
        raw = _raw(blank, frame)
        if not n:
            first, total, squares = raw[0], np.zeros(raw.shape[1]), np.zeros(raw.shape[1])
        n, away = n + len(raw), raw - first
        total, squares = total + away.sum(axis=0), squares + (away**2).sum(axis=0)
    mean = total / n
    scale = np.sqrt(np.maximum(squares / n - mean**2, 0.0))
    return Encoding(blank.columns, tuple((first + mean).tolist()), tuple(np.where(scale > 0, scale, 1.0).tolist()))


def _raw(encoding: Encoding, frame: Any) -> Float[np.ndarray, "n d"]:
    """X in the units of the table, by columns of the frame."""
    return np.concatenate([_coded(column, frame) for column in encoding.columns], axis=1)


def _coded(column: Column, frame: Any) -> Float[np.ndarray, "n k"]:
    values = frame[column.name]
    if not column.levels:
        return values.to_numpy().astype(np.float64)[:, None]
    cells = values.cast(str) if column.levels == TRUTH else values
    hot = np.stack([(cells == level).to_numpy() for level in column.levels], axis=1).astype(np.float64)
    return hot[:, 1:] if len(column.levels) == 2 else hot


def _numbers(frame: Any, name: str, labels: tuple[str, ...]) -> Float[np.ndarray, " n"]:
    """y: numbers, or the places of labels."""
    if not labels:
        return frame[name].to_numpy().astype(np.float64)
    cells = frame[name].cast(str)
    places = np.stack([(cells == label).to_numpy() for label in labels], axis=1)
    return places.argmax(axis=1).astype(np.float64)
