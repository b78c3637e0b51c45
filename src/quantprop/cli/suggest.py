"""The command suggest: the rows of a table to observe next."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option

from quantprop.cli.options import Csv, Data, Debug, Decimal, Json, Stored, choice
from quantprop.cli.screen import plainly, prepared, put

CRITERIA = ("information", "predictions", "level", "improvement", "upper")


def suggest(
    model: Stored,
    candidates: Data,
    n: Annotated[int, Option("--n", min=1, help="Number of rows to choose.")] = 1,
    criterion: Annotated[
        str,
        choice(
            CRITERIA,
            "information on f, on the targets of the other rows, or on the event f > --level; the "
            "target's expected improvement; or the 95 % quantile of its mean.",
        ),
    ] = CRITERIA[0],
    level: Annotated[float | None, Option(help="Level of f, in the units of a target that is a real number.")] = None,
    out: Csv = None,
    decimal: Decimal = ".",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Choose rows to observe next: those whose target would tell most about f, together, or by another criterion."""
    if (level is None) == (criterion == "level"):
        raise typer.BadParameter("must be set with --criterion level, and only then", param_hint="--level")
    with plainly(debug), prepared():
        import numpy as np

        from quantprop import active, tables
        from quantprop.inference.solution import Solution
        from quantprop.runtime.listing import Listing

        learned, table = tables.load(model), tables.read(candidates, decimal)
        posterior: Any = learned.estimator.posterior_
        if not isinstance(learned.estimator.solution_, Solution):
            raise typer.BadParameter("suggest needs one latent function, and the model has one for each class: fit a "
                                     "target of two classes, or a number", param_hint="MODEL")  # fmt: skip
        if n > len(table.rows):
            raise typer.BadParameter(f"must be at most the number of rows, {len(table.rows)}", param_hint="--n")
        x, scales = learned.encoding.matrix(table), dict[str, Any](learned.scales_of(table))
        inside = None if level is None else learned.level_of_f(level)
        chosen = active.ask(posterior, x, n, criterion, inside, **scales)
        its_scales: dict[str, Any] = {name: np.asarray(each)[chosen] for name, each in scales.items()}
        alone = posterior.information(x[chosen], inside, **its_scales)
        columns = {name: [table.column(name)[i] for i in chosen] for name in dict.fromkeys(learned.columns)}
        found = {table.unit: [table.lines[i] for i in chosen], "information": alone.tolist(), **columns}
        put(Listing("rows to observe next, and the information of each alone, in nats", found), out, json)
