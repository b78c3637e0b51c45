"""The command rank: the items of a table of comparisons, by their utility."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from quantprop.cli.options import Csv, Data, Debug, Decimal, Json, Method, check_columns
from quantprop.cli.screen import note, plainly, prepared, put


def rank(
    data: Data,
    winner: Annotated[str, Option(help="Column of the items that won or were preferred.")],
    loser: Annotated[str, Option(help="Column of the other items.")],
    weights: Annotated[str | None, Option(help="Column with the number of equal comparisons; 0.5 for a tie.")] = None,
    method: Method = "qp",
    out: Csv = None,
    decimal: Decimal = ".",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Rank items by comparisons of two: an independent utility of each, shrunk to an extent that is learned."""
    with plainly(debug), prepared():
        import numpy as np

        from quantprop import GaussianProcessRanker, tables
        from quantprop.runtime.listing import Listing
        from quantprop.tables.encoding import check_complete
        from quantprop.tables.roles import scale

        table = tables.read(data, decimal)
        given = {"--winner": winner, "--loser": loser} | ({} if weights is None else {"--weights": weights})
        check_columns(table, given)
        check_complete(table, list(given.values()))
        names, pairs = np.unique([table.column(winner), table.column(loser)], return_inverse=True)
        items, counts = np.arange(len(names))[:, None], None if weights is None else scale(table, "weights", weights)
        ranker = GaussianProcessRanker("group(0)", method=method).fit(items, pairs.reshape(2, -1).T, counts)
        found = ranker.ranking(items)
        note(f"note: {len(table.rows)} comparisons of {len(names)} items, learning {ranker.fitted_.status}")
        put(Listing(found.title, {**found.columns, "item": names[found["item"]].tolist()}), out, json)
