"""The command predict. What takes long to import is imported where it is used."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantprop.cli.options import Data, Debug, Decimal, Json, check_columns, check_place, words
from quantprop.cli.screen import as_json, bars, kept_programs, note, plainly, waiting

if TYPE_CHECKING:
    from quantprop.tables import Table, TableModel

CHUNK = 4096  # rows predicted at a time

Columns = dict[str, list[Any]]


def predict(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    data: Data,
    out: Annotated[Path | None, typer.Option(help="CSV file to write.  [standard output]")] = None,
    quantiles: Annotated[str, typer.Option(help="Of counts and real y, with commas between them.")] = "0.05,0.5,0.95",
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
    levels = _levels(quantiles)
    if drop_missing and blank_missing:
        raise typer.BadParameter("give one of --drop-missing and --blank-missing")
    with plainly(debug), kept_programs():
        from quantprop import tables

        if out is not None:
            check_place(out)
        learned, table = tables.load(model), tables.read(data, decimal)
        scales = _given_scales(learned, exposure=exposure, trials=trials)
        _look(learned, table, key or [], scales)
        rows = _known(learned, table, blank_missing) if drop_missing or blank_missing else range(len(table.rows))
        columns = _forecast(learned, table.only(rows), levels, scales)
        if same := [name for name in key or [] if name in columns]:
            raise typer.BadParameter(
                f"{same[0]!r} is also the name of a column of forecasts: rename it in the table", param_hint="--key"
            )
        if blank_missing:
            columns = _spread(columns, rows, len(table.rows))
        kept = table if blank_missing else table.only(rows)
        _print({**{name: kept.column(name) for name in key or []}, **columns}, out, json)


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


def _known(model: TableModel, table: Table, blank: bool) -> list[int]:
    """The rows that can be predicted."""
    known = model.known(table)
    note(f"note: {int((~known).sum())} of {len(known)} rows have missing values or categories that the model does not "
         f"know: {'empty forecasts' if blank else 'left out; --key writes a column beside forecasts'}")  # fmt: skip
    return [i for i, good in enumerate(known) if good]


# --- what comes out --------------------------------------------------------------------------------------------------


def _forecast(model: TableModel, table: Table, levels: tuple[float, ...], given: dict[str, str]) -> Columns:
    """Forecasts of every row, by column; no row is no forecast, not an error."""
    if not table.rows:
        return {name: [] for name in model.forecast_names(levels)}
    x, scales = model.encoding.matrix(table), model.scales_of(table, given)
    with bars() if len(x) > CHUNK else waiting(f"predicting {len(x)} rows") as report:
        parts = []
        for start in range(0, len(x), CHUNK):
            chunk = slice(start, start + CHUNK)
            parts.append(model.forecast_at(x[chunk], levels, {name: each[chunk] for name, each in scales.items()}))
            if len(x) > CHUNK:
                report("rows", min(start + CHUNK, len(x)), len(x))
    return {name: [value for part in parts for value in part[name].tolist()] for name in parts[0]}


def _spread(columns: Columns, rows: list[int] | range, n: int) -> Columns:
    """Forecasts of some rows among all n, nothing for the others."""
    return {name: _placed(values, rows, n) for name, values in columns.items()}


def _placed(values: list[Any], rows: list[int] | range, n: int) -> list[Any]:
    found: list[Any] = [None] * n
    for row, value in zip(rows, values, strict=True):
        found[row] = value
    return found


def _print(columns: Columns, out: Path | None, json: bool) -> None:
    from quantprop.storage.files import replace_file

    rows = list(zip(*columns.values(), strict=True))
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([list(columns), *rows])
    if out is not None:
        replace_file(str(out.resolve()), file.getvalue().encode("utf-8"))
    if json:
        typer.echo(as_json([dict(zip(columns, row, strict=True)) for row in rows]))
    elif out is not None:
        typer.echo(f"wrote {out}")
    else:
        typer.echo(file.getvalue(), nl=False)
