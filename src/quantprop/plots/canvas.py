"""What all pictures share: colours, axes, and where a posterior comes from."""

from __future__ import annotations

from typing import Any

from scipy.special import ndtri

from quantprop.inference.solution import Solution

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.colors import to_rgb as to_rgb
    from matplotlib.figure import Figure as Figure
except ModuleNotFoundError as error:  # pragma: no cover
    raise ModuleNotFoundError("quantprop.plots needs matplotlib: pip install 'quantprop[plots]'") from error

# Okabe and Ito's colours, which stay apart for every kind of colour vision.
BLACK, GREY, BLUE, RED, GREEN, ORANGE = "#000000", "#8c8c8c", "#0072b2", "#d55e00", "#009e73", "#e69f00"
TWO_CLASSES = LinearSegmentedColormap.from_list("two classes", [BLUE, "#f7f7f7", ORANGE])
RATIO = "viridis"
INTERVALS = ((0.9, 0.2), (0.5, 0.35))  # the probability inside, and how opaque it is drawn
WILSON = ndtri(0.95)  # bars hold 90 %, as the outer interval does


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _solution(source: Any, name: str = "source") -> Solution:
    """The Solution that a source is or carries."""
    for found in (source, getattr(source, "solution_", None), getattr(source, "solution", None)):
        if isinstance(found, Solution):
            return found
    raise TypeError(
        f"{name} must be a Solution, the result of fit, or a fitted estimator (with solution_); got "
        f"{type(source).__name__}"
    )
