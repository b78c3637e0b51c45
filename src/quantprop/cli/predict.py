"""The command predict. What takes long to import is imported where it is used."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from quantprop.cli.options import Data, Debug, Decimal, Json, Stored, check_columns, place, words
from quantprop.cli.screen import as_json, bars, note, plainly, prepared, waiting

if TYPE_CHECKING:
    from quantprop.tables import Chunks, Table, TableModel

MAX_QUIET_ROWS = 4096  # the speed of longer predictions is printed
QUANTILES = "0.05,0.5,0.95"

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class PredictOptions:
    """Which columns to write, and what to do with rows that have missing values or unknown categories."""

    keys: list[str]
    levels: tuple[float, ...]
    scales: dict[str, str]
    incomplete: str  # refuse, drop or blank


def predict(
    model: Stored,
    data: Data,
    out: Annotated[Path | None, place("File to write, CSV or *.parquet.  [standard output]")] = None,
    quantiles: Annotated[
        str | None, Option(help=f"Quantiles of counts and real y, separated by commas.  [{QUANTILES}]")
    ] = None,
    key: Annotated[list[str] | None, Option(help="A column to copy into the output; may be repeated.")] = None,
    exposure: Annotated[str | None, Option(help="A column, or one number for all.  [as in fit]")] = None,
    trials: Annotated[str | None, Option(help="A column, or one number for all.  [as in fit]")] = None,
    drop_missing: Annotated[
        bool, Option("--drop-missing", help="Omit rows with missing values or unknown categories.")
    ] = False,
    blank_missing: Annotated[bool, Option("--blank-missing", help="Write empty predictions for such rows.")] = False,
    decimal: Decimal = ".",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict the target for the rows of a table: classes with probabilities, or mean, sd and quantiles."""
    levels = _levels(QUANTILES if quantiles is None else quantiles)
    if drop_missing and blank_missing:
        raise typer.BadParameter("pass one of --drop-missing and --blank-missing")
    incomplete = "blank" if blank_missing else "drop" if drop_missing else "refuse"
    scales = {role: name for role, name in (("exposure", exposure), ("trials", trials)) if name is not None}
    with plainly(debug), prepared():
        from quantprop import tables
        from quantprop.tables.parquet import polars_for

        if out is not None and out.suffix == ".parquet":
            polars_for(str(out))
        learned = tables.load(model)
        options = PredictOptions(key or [], levels, scales, incomplete)
        _check(learned, options, bool(quantiles))
        _print(_forecasts(learned, tables.Chunks(data, decimal), options), out, json)


def _levels(text: str) -> tuple[float, ...]:
    try:
        levels = tuple(float(word) for word in words(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers", param_hint="--quantiles") from None
    if not all(0 < level < 1 for level in levels):
        raise typer.BadParameter(f"must lie between 0 and 1; got {text}", param_hint="--quantiles")
    return levels


def _check(model: TableModel, options: PredictOptions, quantiles: bool) -> None:
    names = model.forecast_names(options.levels)
    if quantiles and names == model.forecast_names(()):
        raise typer.BadParameter("the model predicts classes, which have no quantiles", param_hint="--quantiles")
    if useless := [role for role in options.scales if role not in model.scales]:
        raise typer.BadParameter(f"the model was fitted without {useless[0]}", param_hint=f"--{useless[0]}")
    if same := [name for name in options.keys if name in names]:
        raise typer.BadParameter(
            f"{same[0]!r} is also the name of an output column: rename it in the table", param_hint="--key"
        )


def _check_table(model: TableModel, table: Table, options: PredictOptions) -> None:
    """Check the columns that options name, and say which are not used."""
    for name in options.keys:
        check_columns(table, {"--key": name})
    used = {*model.columns, model.target, *options.keys, *options.scales.values()}
    if extra := [name for name in table.names if name not in used]:
        note(f"note: not used by the model: {', '.join(extra)}")


def _forecasts(model: TableModel, source: Chunks, options: PredictOptions) -> Iterator[Columns]:
    """Forecasts of one chunk of rows after the other, beside the columns of --key; memory holds one chunk."""
    import numpy as np

    from quantprop.tables.reading import rows_by_column

    rows, unknown, cost = 0, 0, Counter[str]()
    total, began = source.count(), time.perf_counter()
    with bars() if (total or 0) > MAX_QUIET_ROWS else waiting("predicting") as report:
        for table in source.tables():
            if not rows:
                _check_table(model, table, options)
            known = np.ones(len(table.rows), bool)
            if options.incomplete != "refuse":
                by_column = model.known_by_column(table, options.scales)
                cost.update({name: int(np.sum(~good)) for name, good in by_column.items()})
                known = np.all(list(by_column.values()), axis=0)
            complete = table.only(np.flatnonzero(known).tolist())
            found = model.forecast(complete, options.levels, options.scales)
            columns = {name: values.tolist() for name, values in found.items()}
            if options.incomplete == "blank":
                columns = {name: _spread(values, known) for name, values in columns.items()}
            shown = table if options.incomplete == "blank" else complete
            rows, unknown = rows + len(table.rows), unknown + int(np.sum(~known))
            report("rows", rows, total or rows)
            yield {**{name: shown.column(name) for name in options.keys}, **columns}
    if unknown:
        fate = "omitted; --key copies a column to the output" if options.incomplete == "drop" else "empty predictions"
        note(f"note: {unknown} of {rows} rows have missing values or categories unseen in training: "
             f"{fate}{rows_by_column(cost)}")  # fmt: skip
    if rows > MAX_QUIET_ROWS:
        seconds = time.perf_counter() - began
        note(f"note: {rows} rows in {seconds:.1f} s, {rows / seconds:.0f} rows per second")


def _spread(values: list[Any], known: Iterable[bool]) -> list[Any]:
    """Values at the rows that are known, None elsewhere."""
    left = iter(values)
    return [next(left) if is_known else None for is_known in known]


def _print(parts: Iterable[Columns], out: Path | None, json: bool) -> None:
    from quantprop.storage.files import replacing

    if json:
        parts = list(parts)
        rows = [dict(zip(part, row, strict=True)) for part in parts for row in zip(*part.values(), strict=True)]
        typer.echo(as_json(rows))
    if out is not None:
        with replacing(str(out.resolve())) as temporary:
            (_to_parquet if out.suffix == ".parquet" else _to_csv)(iter(parts), temporary)
        if not json:
            typer.echo(f"wrote {out}")
    elif not json:
        for text in _csv_texts(parts):
            typer.echo(text, nl=False)


def _csv_texts(parts: Iterable[Columns]) -> Iterator[str]:
    """The lines of a CSV file, a chunk at a time; the first begins with the names."""
    for number, part in enumerate(parts):
        file = io.StringIO()
        rows = zip(*part.values(), strict=True)
        csv.writer(file, lineterminator="\n").writerows([list(part), *rows] if not number else rows)
        yield file.getvalue()


def _to_csv(parts: Iterator[Columns], path: str) -> None:
    with open(path, "x", encoding="utf-8", newline="") as file:
        file.writelines(_csv_texts(parts))


def _to_parquet(parts: Iterator[Columns], path: str) -> None:
    """Write row groups as chunks come, by polars: numbers as numbers, labels and keys as text."""
    from quantprop.tables.parquet import polars_for

    polars: Any = polars_for(path)
    first = next(parts)
    text = {name for name, values in first.items() if any(isinstance(value, (str, int)) for value in values)}
    schema = {name: polars.String if name in text else polars.Float64 for name in first}

    def frames(*_: Any) -> Iterator[Any]:
        for part in itertools.chain([first], parts):
            plain = {name: [None if value is None else str(value) for value in values] if name in text else values
                     for name, values in part.items()}  # fmt: skip
            yield polars.DataFrame(plain, schema=schema)

    from polars.io.plugins import register_io_source  # pyright: ignore[reportMissingImports]

    try:
        register_io_source(frames, schema=schema).sink_parquet(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise OSError(errno.EIO, f"Parquet cannot be written ({error})", path) from error
