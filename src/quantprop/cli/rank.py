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
    weights: Annotated[str | None, Option(help="Column with the number of equal comparisons.")] = None,
    ties: Annotated[
        str | None, Option(metavar="COLUMN[=VALUE]", help="Column that marks ties: 1, true, yes, or this value.")
    ] = None,
    group: Annotated[
        str | None, Option(help="Column, such as the season, in each group of which items differ from their average.")
    ] = None,
    method: Method = "qp",
    out: Csv = None,
    decimal: Decimal = ".",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Rank items by comparisons of two: an independent utility of each, shrunk to an extent that is learned, and with
    --group the sum of this and a deviation in each group, ranked group by group.
    """
    with plainly(debug), prepared():
        import numpy as np

        from quantprop import GaussianProcessRanker, tables
        from quantprop.runtime.listing import Listing
        from quantprop.tables.encoding import check_complete
        from quantprop.tables.roles import Roles, scale
        from quantprop.tables.targets import events

        table = tables.read(data, decimal)
        tie, _, value = (ties or "").partition("=") if ties not in table.names else (ties or "", "", "")
        named = {"--winner": winner, "--loser": loser, "--weights": weights, "--ties": tie or None, "--group": group}
        given = {option: column for option, column in named.items() if column is not None}
        check_columns(table, given)
        check_complete(table, list(given.values()))
        names, pairs = np.unique([table.column(winner), table.column(loser)], return_inverse=True)
        groups, at = np.unique(table.column(group) if group else [""] * len(table.rows), return_inverse=True)
        items, pairs = np.unique(np.stack([pairs.ravel(), np.tile(at, 2)]), axis=1, return_inverse=True)
        tied = events(table, Roles(event=tie, observed=value or None)) if tie else None
        counts = None if weights is None else scale(table, "weights", weights)
        ranker = GaussianProcessRanker("group(0) + group(0, 1)" if group else "group(0)", method=method)
        ranker.fit(items.T.astype(float), pairs.reshape(2, -1).T, counts, ties=tied)
        note(f"note: {len(table.rows)} comparisons of {len(names)} items, learning {ranker.fitted_.status}")
        if tied is not None and tied.any():
            note(f"note: {tied.sum()} ties: differences below {ranker.likelihood_.threshold:.3g}, with noise of "
                 "standard deviation 1")  # fmt: skip
        found, title = dict[str, list](), ""
        for place, called in enumerate(groups):
            own = items[:, items[1] == place]
            ranking = ranker.ranking(own.T.astype(float))
            title = ranking.title
            columns = {**ranking.columns, "item": names[own[0][ranking["item"]]].tolist()}
            columns = ({group: [called] * len(own.T)} if group else {}) | columns
            found = {name: [*found.get(name, []), *column] for name, column in columns.items()}
        put(Listing(title, found), out, json)
