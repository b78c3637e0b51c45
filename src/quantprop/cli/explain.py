"""The command explain. What takes long to import is imported where it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from quantprop.cli.options import Debug, Json, Stored, place
from quantprop.cli.screen import as_json, plainly, prepared, put

if TYPE_CHECKING:
    from quantprop.runtime.listing import Listing
    from quantprop.tables import TableModel

RANKINGS = {
    "surprise": "most surprising rows, −log p(y | other rows)",
    "influence": "most influential rows, effect of each on f at its inputs, in nats (in a stack, on the model of "
    "largest weight)",
    "doubt": "rows with the most non-Gaussian f, largest error of a probability about f",
}


def explain(
    model: Stored,
    rows: Annotated[int, Option(min=0, help="Number of rows to list.")] = 5,
    levels: Annotated[str | None, Option(metavar="COLUMN", help="Print only the effects of its levels.")] = None,
    contrast: Annotated[
        str | None, Option(metavar="COLUMN:LEVEL", help="Print only the expected y at its levels against this one.")
    ] = None,
    out: Annotated[
        Path | None, place("Page of curves and surfaces to write; with --levels or --contrast, a CSV file.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show why a fit stopped, what it learned, how far to trust it, which features matter, and which rows are
    surprising or influential.
    """
    if levels is not None and contrast is not None:
        raise typer.BadParameter("use one of --levels and --contrast")
    if out is not None and out.suffix == ".csv" and levels is None and contrast is None:
        raise typer.BadParameter(
            f"{out.name} would hold a page: name it .html, or add --levels or --contrast, whose rows are CSV",
            param_hint="--out",
        )
    with plainly(debug), prepared():
        import numpy as np

        from quantprop import tables
        from quantprop.estimators import insight

        learned = tables.load(model)
        if levels is not None or contrast is not None:
            put(_listing(learned, levels, contrast), out, json)
            return
        said = learned.summary()
        doubt = np.max([insight.trust(fitted.solution).doubt for fitted in learned.fits], axis=0)  # largest of classes
        values = {"surprise": insight.surprise(learned), "influence": insight.influence(learned), "doubt": doubt}
        ranked = {
            name: [{"line": learned.lines[i], name: float(each[i])} for i in insight.greatest(each, rows)]
            for name, each in values.items()
        }
        if out is not None:
            _write_page(learned, model, out)
        if json:
            typer.echo(as_json({"page": out and str(out), **said.record, **ranked}))
            return
        typer.echo(said)
        for name, title in RANKINGS.items():
            if ranked[name]:  # no row has a doubt where the model has no correction
                typer.echo(f"{title}:")
            for row in ranked[name]:
                typer.echo(f"  line {row['line']:<6} {row[name]:.4f}")
        if out is not None:
            typer.echo(f"wrote {out}")


def _write_page(learned: TableModel, model: Path, out: Path) -> None:
    from quantprop import report

    likelihood = report.likelihood_called(learned.fits[0].solution.model.likelihood.name)
    about = f"{len(learned.lines)} rows, {len(learned.encoding.features)} features; {likelihood} likelihood."
    reading = report.Reading("Learned model", about, learned)
    report.write(out, f"{learned.target}: a model explained", f"The model in {model}.", [reading])


def _listing(model: TableModel, levels: str | None, contrast: str | None) -> Listing:
    """Effects of the levels of a column, or its contrasts, as `column:level` or `column` names them."""
    if levels is not None:
        return model.levels(levels)
    column, _, against = str(contrast).rpartition(":")
    return model.contrasts(column, against) if column else model.contrasts(against)
