"""The commands split and survival: times as counts in periods, and survival curves of models of these."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from quantprop.cli.options import EVENT_HELP, Csv, Data, Debug, Decimal, Json, check_columns, decimals, place
from quantprop.cli.screen import note, plainly, prepared, put, write_csv

CURVE_TIMES = 100  # in a picture


def split(
    data: Data,
    time: Annotated[str, Option(help="Column of times of events, or of the end of observation.")],
    event: Annotated[str, Option(help=EVENT_HELP)],
    entry: Annotated[str | None, Option(help="Column of times from which rows were observed.  [0]")] = None,
    cuts: Annotated[str, Option(help="Number of periods, their limits with commas, or events: one per event.")] = "10",
    out: Annotated[Path, place("CSV file to write, replaced if it exists.")] = Path("periods.csv"),
    decimal: Decimal = ".",
    debug: Debug = False,
) -> None:
    """Split survival times into periods: a fit of the events with --exposure exposure is a model of their hazard."""
    with plainly(debug):
        from quantprop import tables

        table = tables.read(data, decimal)
        column, observed = event.rsplit("=", 1) if event not in table.names and "=" in event else (event, None)
        check_columns(table, {"--time": time, "--event": column} | ({} if entry is None else {"--entry": entry}))
        found = tables.periods(table, time, column, observed, entry, _cuts(cuts))
        write_csv(out, [found.names, *found.rows])
        note(f"note: {len(found.rows)} periods of {len(table.rows)} rows: fit {out} --target {column} --exposure "
             f"exposure, with se({time}) for a smooth hazard or factor({time})")  # fmt: skip


def survival(
    model: Annotated[Path, Argument(help="A model of times, or of a table of periods, written by fit.")],
    data: Data,
    time: Annotated[str, Option(help="Column of times.")],
    at: Annotated[str, Option(help="Times of the curves, with commas between them.")],
    picture: Annotated[
        Path | None, place("Figure to write (.svg, .png, .pdf): curves from 0 to the last of these times.")
    ] = None,
    by: Annotated[str | None, Option(help="Column whose values name the curves of --picture.  [the line]")] = None,
    out: Csv = None,
    decimal: Decimal = ".",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the probability of no event by some times for each row of a table, with 95 % intervals, or draw it."""
    times = decimals(at, "--at")
    with plainly(debug), prepared():
        from quantprop import tables

        learned, table = tables.load(model), tables.read(data, decimal)
        check_columns(table, {} if by is None else {"--by": by})
        put(tables.survival(learned, table, time, times), out, json)
        if picture is not None:
            import numpy as np

            from quantprop import plots

            curves = tables.survival(learned, table, time, np.linspace(0.0, max(times), CURVE_TIMES).tolist())
            names = (
                None
                if by is None
                else {line: f"{by} {cell}" for line, cell in zip(table.lines, table.column(by), strict=True)}
            )
            figure: Any = plots.survival(curves, names, time=time).figure
            figure.savefig(picture)
            note(f"note: wrote {picture}")


def _cuts(text: str) -> int | str | list[float]:
    return text if text == "events" else int(text) if text.isdecimal() else decimals(text, "--cuts")
