"""Colours, axes, labels, and where a posterior comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quantprop.inference.solution import Solution

try:
    import matplotlib.pyplot as plt
    from matplotlib import style as style
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.ticker import MaxNLocator as MaxNLocator
except ModuleNotFoundError as error:  # pragma: no cover
    raise ModuleNotFoundError("quantprop.plots needs matplotlib: pip install 'quantprop[plots]'") from error

# Okabe and Ito's colours, which stay apart for every kind of colour vision.
BLACK, GREY, BLUE, RED, GREEN, ORANGE = "#000000", "#8c8c8c", "#0072b2", "#d55e00", "#009e73", "#e69f00"
PURPLE, SKY, YELLOW = "#cc79a7", "#56b4e9", "#f0e442"  # not exported
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY)
MARKERS = "osD^vP*X"
INTERVALS = ((0.9, 0.2), (0.5, 0.35))  # the probability inside, and how opaque it is drawn


def axes_of(ax: Axes | None) -> Axes:
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def solution_of(source: Any, name: str = "source") -> Solution:
    """The Solution that a source is or carries."""
    for found in (source, getattr(source, "solution_", None), getattr(source, "solution", None)):
        if isinstance(found, Solution):
            return found
    raise TypeError(
        f"{name} must be a Solution, the result of fit, or a fitted estimator (with solution_); got "
        f"{type(source).__name__}"
    )


def labelled(ax: Axes, legend: Mapping[str, Any] | None = {}, **settings: Any) -> Axes:
    """The axes with labels, limits and scales, and with a legend unless its options are None."""
    ax.set(**settings)
    if legend is not None:
        ax.legend(**legend)
    return ax


def calibrated(ax: Axes, low: float, **labels: str) -> None:
    """A diagonal of probabilities, as axes of calibration have it."""
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, label="calibrated")
    ax.set(xlim=(-0.02, 1.02), ylim=(low, 1.02), ylabel="observed frequency", **labels)


def class_styles(labels: Sequence[Any]) -> list[tuple[Any, str, str]]:
    """Each class with its marker and its colour."""
    if len(labels) > len(COLOURS):
        raise ValueError(f"at most {len(COLOURS)} classes can be distinguished by colour; got {len(labels)}")
    return list(zip(labels, MARKERS, COLOURS, strict=False))


def plain(text: str) -> str:
    """Text in which matplotlib looks for no mathematics."""
    return text.replace("$", r"\$")
