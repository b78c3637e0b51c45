"""Parquet, by polars, which need not be installed for other tables; and the error of all tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PARQUET = b"PAR1"  # the first bytes of such files


class TableError(ValueError):
    """Error in a table, with its place."""


def polars_for(path: str) -> Any:
    """The library that reads and writes Parquet."""
    try:
        import polars  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise TableError(f"{path} is Parquet, which needs polars: pip install 'quantprop[parquet]'") from None
    return polars


@contextmanager
def readable(path: str, polars: Any) -> Iterator[None]:
    """Turn errors of polars, such as a truncated row group, into one that names the file."""
    try:
        yield
    except (OSError, polars.exceptions.PolarsError) as error:
        raise TableError(f"{path} cannot be read completely: {error}; it may have been cut short or damaged: copy it "
                         "again, and compare its size") from error  # fmt: skip
