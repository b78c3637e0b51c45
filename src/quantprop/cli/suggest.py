"""The command suggest: the rows of a table to observe next."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option

from quantprop.cli.options import Csv, Data, Debug, Decimal, Json, Stored
from quantprop.cli.screen import note, plainly, prepared, put


def suggest(
    model: Stored,
    candidates: Data,
    n: Annotated[int, Option("--n", min=1, help="Number of rows to choose.")] = 1,
    out: Csv = None,
    decimal: Decimal = ".",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Choose rows to observe next: those whose target would tell most about f, together."""
    with plainly(debug), prepared():
        import numpy as np

        from quantprop import active, tables
        from quantprop.inference.solution import Solution
        from quantprop.inference.stacked import Stack
        from quantprop.runtime.listing import Listing

        learned, table = tables.load(model), tables.read(candidates, decimal)
        solution = learned.estimator.solution_
        if not isinstance(solution, Solution):
            raise typer.BadParameter("suggest needs one latent function, and the model has one for each class: fit a "
                                     "target of two classes, or a number", param_hint="MODEL")  # fmt: skip
        if isinstance(learned.estimator.posterior_, Stack):
            note("note: of the stack, the model of largest weight chooses")
        if n > len(table.rows):
            raise typer.BadParameter(f"must be at most the number of rows, {len(table.rows)}", param_hint="--n")
        x, scales = learned.encoding.matrix(table), dict[str, Any](learned.scales_of(table))
        chosen = active.ask(solution, x, n, **scales)
        its_scales: dict[str, Any] = {name: np.asarray(each)[chosen] for name, each in scales.items()}
        alone = solution.information(x[chosen], **its_scales)
        columns = {name: [table.column(name)[i] for i in chosen] for name in dict.fromkeys(learned.columns)}
        found = {table.unit: [table.lines[i] for i in chosen], "information": alone.tolist(), **columns}
        put(Listing("rows to observe next, and the information of each alone, in nats", found), out, json)
