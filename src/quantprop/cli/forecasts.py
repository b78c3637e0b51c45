"""The command predict. What takes long to import is imported where it is used."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from quantprop.cli.options import Data, Debug, Decimal, Json, check_columns, check_place, words
from quantprop.cli.process import prepared
from quantprop.cli.screen import as_json, bars, note, plainly, waiting

if TYPE_CHECKING:
    from quantprop.tables import Chunks, Table, TableModel

CHUNK = 4096  # rows predicted at a time
QUANTILES = "0.05,0.5,0.95"

Columns = dict[str, list[Any]]


class Asked(NamedTuple):
    """What to forecast, and what to do with rows that have missing values or unknown categories."""

    keys: list[str]
    levels: tuple[float, ...]
    scales: dict[str, str]
    incomplete: str  # refuse, drop or blank


def predict(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    data: Data,
    out: Annotated[Path | None, typer.Option(help="File to write, CSV or *.parquet.  [standard output]")] = None,
    quantiles: Annotated[
        str | None, typer.Option(help=f"Of counts and real y, with commas between them.  [{QUANTILES}]")
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="A column to write beside forecasts; may be repeated.")] = None,
    exposure: Annotated[str | None, typer.Option(help="A column, or one number for all.  [as in fit]")] = None,
    trials: Annotated[str | None, typer.Option(help="A column, or one number for all.  [as in fit]")] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows with missing values or unknown categories.")
    ] = False,
    blank_missing: Annotated[bool, typer.Option("--blank-missing", help="Give such rows empty forecasts.")] = False,
    decimal: Decimal = ".",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict the target for the rows of a table: classes with probabilities, or mean, deviation and quantiles."""
    levels = _levels(QUANTILES if quantiles is None else quantiles)
    if drop_missing and blank_missing:
        raise typer.BadParameter("give one of --drop-missing and --blank-missing")
    with plainly(debug), prepared():
        from quantprop import tables
        from quantprop.tables.reading import polars_for

        if out is not None:
            check_place(out)
            if out.suffix == ".parquet":
                polars_for(str(out))
        learned = tables.load(model)
        if quantiles and learned.forecast_names(levels) == learned.forecast_names(()):
            raise typer.BadParameter("the model is of classes, which have no quantiles", param_hint="--quantiles")
        scales, keys = _given_scales(learned, exposure=exposure, trials=trials), key or []
        if same := [name for name in keys if name in learned.forecast_names(levels)]:
            raise typer.BadParameter(
                f"{same[0]!r} is also the name of a column of forecasts: rename it in the table", param_hint="--key"
            )
        asked = Asked(keys, levels, scales, "blank" if blank_missing else "drop" if drop_missing else "refuse")
        _print(_forecasts(learned, tables.Chunks(data, decimal), asked), out, json)


# --- what goes in ----------------------------------------------------------------------------------------------------


def _levels(text: str) -> tuple[float, ...]:
    try:
        levels = tuple(float(word) for word in words(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint="--quantiles") from None
    if not all(0 < level < 1 for level in levels):
        raise typer.BadParameter(f"must lie between 0 and 1; got {text}", param_hint="--quantiles")
    return levels


def _given_scales(model: TableModel, **given: str | None) -> dict[str, str]:
    """Exposure and trials as given here, which the model must have a use for."""
    there = {role: name for role, name in given.items() if name is not None}
    if useless := [role for role in there if role not in model.scales]:
        raise typer.BadParameter(f"the model was learned without {useless[0]}", param_hint=f"--{useless[0]}")
    return there


def _look(model: TableModel, table: Table, keys: list[str], scales: dict[str, str]) -> None:
    """Check the columns that options name, and say which are of no use."""
    for name in keys:
        check_columns(table, {"--key": name})
    used = {*model.columns, model.target, *keys, *scales.values()}
    if extra := [name for name in table.names if name not in used]:
        note(f"note: not used by the model: {', '.join(extra)}")


def _say_unknown(unknown: int, n: int, cost: Counter[str], incomplete: str) -> None:
    from quantprop.tables.reading import counted

    what = "empty forecasts" if incomplete == "blank" else "left out; --key writes a column beside forecasts"
    note(f"note: {unknown} of {n} rows have missing values or categories that the model does not know: {what}"
         f"{counted(cost)}")  # fmt: skip


# --- what comes out --------------------------------------------------------------------------------------------------


def _forecasts(model: TableModel, source: Chunks, asked: Asked) -> Iterator[Columns]:
    """Forecasts of one chunk of rows after the other, beside the columns of --key; memory is that of a chunk."""
    import numpy as np

    rows, unknown, cost = 0, 0, Counter[str]()
    total, began = source.count(), time.perf_counter()
    with bars() if (total or 0) > CHUNK else waiting("predicting") as report:
        for table in source.tables():
            if not rows:
                _look(model, table, asked.keys, asked.scales)
            known = range(len(table.rows))
            if asked.incomplete != "refuse":
                by_column = model.known_by_column(table, asked.scales)
                cost.update({name: int(np.sum(~good)) for name, good in by_column.items()})
                known = np.flatnonzero(np.all(list(by_column.values()), axis=0)).tolist()
            columns, kept = _forecast(model, table.only(known), asked), table.only(known)
            if asked.incomplete == "blank":
                columns, kept = _spread(columns, known, len(table.rows)), table
            rows, unknown = rows + len(table.rows), unknown + len(table.rows) - len(known)
            report("rows", rows, total or rows)
            yield {**{name: kept.column(name) for name in asked.keys}, **columns}
    if asked.incomplete != "refuse":
        _say_unknown(unknown, rows, cost, asked.incomplete)
    if rows > CHUNK:
        seconds = time.perf_counter() - began
        note(f"note: {rows} rows in {seconds:.1f} s, {rows / seconds:.0f} rows a second")


def _forecast(model: TableModel, table: Table, asked: Asked) -> Columns:
    """Forecasts of every row, by column; no row is no forecast, not an error."""
    if not table.rows:
        return {name: [] for name in model.forecast_names(asked.levels)}
    x, scales = model.encoding.matrix(table), model.scales_of(table, asked.scales)
    parts = []
    for start in range(0, len(x), CHUNK):
        chunk = slice(start, start + CHUNK)
        own = {name: each[chunk] for name, each in scales.items()}
        parts.append(model.forecast_at(x[chunk], asked.levels, own))
    return {name: [value for part in parts for value in part[name].tolist()] for name in parts[0]}


def _spread(columns: Columns, rows: list[int] | range, n: int) -> Columns:
    """Forecasts of some rows among all n, nothing for the others."""
    return {name: _placed(values, rows, n) for name, values in columns.items()}


def _placed(values: list[Any], rows: list[int] | range, n: int) -> list[Any]:
    found: list[Any] = [None] * n
    for row, value in zip(rows, values, strict=True):
        found[row] = value
    return found


def _print(parts: Iterator[Columns], out: Path | None, json: bool) -> None:
    from quantprop.storage.files import replacing

    if json:
        parts = iter(list(parts))
        parts, printed = itertools.tee(parts)
        rows = [dict(zip(part, row, strict=True)) for part in printed for row in zip(*part.values(), strict=True)]
        typer.echo(as_json(rows))
    if out is not None:
        with replacing(str(out.resolve())) as temporary:
            (_to_parquet if out.suffix == ".parquet" else _to_csv)(parts, temporary)
        if not json:
            typer.echo(f"wrote {out}")
    elif not json:
        for text in _csv_texts(parts):
            typer.echo(text, nl=False)


def _csv_texts(parts: Iterator[Columns]) -> Iterator[str]:
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
    """By polars, which writes row groups as chunks come: numbers as numbers, labels and keys as text."""
    from quantprop.tables.reading import polars_for

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
