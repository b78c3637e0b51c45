"""Survival curves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from quantprop.plots.canvas import COLOURS, Axes, axes_of, labelled, plain
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.listing import Listing

MAX_BANDS = 4  # more curves would hide each other


@checked(curves=a(Listing, "a table of curves, as tables.survival returns it"))
def survival(
    curves: Listing, names: Mapping[int, str] | None = None, *, time: str = "time", ax: Axes | None = None
) -> Axes:
    """Plot survival curves: the probability of no event by each time, with 95 % intervals of up to four curves.

    Args:
        curves: A table of curves, as `tables.survival` returns it.
        names: Name of each row; by default its number.
        time: Name of the horizontal axis.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import plots
    >>> from quantprop.runtime.listing import Listing
    >>> ends = {"survival": [1.0, 0.5], "lower": [1.0, 0.4], "upper": [1.0, 0.6]}
    >>> plots.survival(Listing("curves", {"row": [1, 1], "time": [0.0, 3.0], **ends}), time="days").get_xlabel()
    'days'
    """
    rows = list(dict.fromkeys(curves["row"]))
    if len(rows) > len(COLOURS):
        raise ValueError(f"at most {len(COLOURS)} curves can be distinguished by colour; got {len(rows)}")
    ax, row = axes_of(ax), np.array(curves["row"])
    for one, colour in zip(rows, COLOURS, strict=False):
        at, alive, lower, upper = (
            np.array(curves[name])[row == one] for name in ("time", "survival", "lower", "upper")
        )
        ax.plot(at, alive, color=colour, label=plain(f"row {one}" if names is None else names[one]))
        if len(rows) <= MAX_BANDS:
            ax.fill_between(at, lower, upper, color=colour, alpha=0.15, linewidth=0)
    return labelled(ax, xlabel=plain(time), ylabel="probability of no event", ylim=(0.0, 1.02), xlim=(0.0, None))
