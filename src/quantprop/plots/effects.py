"""The terms of a sum, or the components of an additive kernel, a panel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtri

from quantprop.core.gaussian import Normal
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Stack
from quantprop.kernels import Columns, Kernel, Periodic
from quantprop.plots.canvas import BLACK, BLUE, GREEN, GREY, INTERVALS, ORANGE, RED, Axes, axes_of, plain, solution_of
from quantprop.plots.panels import Panel, Scale, models_of, panels, ranked, scale_of
from quantprop.runtime.arguments import SEQUENCE, checked, choice

CURVE_POINTS = 100
MAP_SIDE = 30  # points
MAX_LABELLED_LEVELS = 30  # levels whose names are written
MAX_RUG_TICKS = 150  # quantiles stand for more values
MAX_CURVES = 6  # levels of a group with a curve each
SLICES = (0.05, 0.5, 0.95)  # quantiles of the second column of a surface, with a curve each
Intervals = tuple[tuple[float, float], ...]
COLOURS = (BLUE, RED, GREEN, ORANGE, GREY, BLACK)


@checked(axes=SEQUENCE)
def effects(source: Any, *, scale: Scale | None = None, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Plot the posterior of each term of a sum: mean, the intervals that hold 50 % and 90 %, and the data as ticks.

    Effects are in units of y if f is its mean. One column is a curve, or points for the levels of a group. Two columns
    are a map; a column and a group are curves of the levels with most rows. Terms without a column are omitted. An
    additive kernel, or a stack, has a panel for each column and for at most six interactions that explain 1 % of f or
    more (`Solution.sobol`), from the largest; an interaction is drawn over its first column, at three values of the
    second. Intervals of a stack are those of a normal distribution with its mean and variance.

    Args:
        source: A Solution, a Fitted, a Stack, or a fitted estimator.
        scale: Names and formats of columns (`plots.effects.Scale`); by default what the source knows.
        axes: One Axes per panel; a new figure by default.

    Returns:
        The list of Axes.

    >>> import numpy as np
    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
    >>> kernel = kernels.SquaredExponential().on(0) + kernels.Categories().on(1)
    >>> solution = infer(Model(kernel, likelihoods.Gaussian(0.1)), X, [0.0, 1.0, 2.0], "ep")
    >>> [ax.get_title(loc="left") for ax in plots.effects(solution)]
    ['se(0)', 'group(1)']
    """
    solution = _posterior_of(source)
    found = ranked(solution)
    if not found:
        raise ValueError("the kernel has no term that depends on columns of X: there is nothing to draw")
    scale = scale_of(source, solution) if scale is None else scale
    axes = _grid(len(found)) if axes is None else axes
    if len(axes) != len(found):
        raise ValueError(f"axes must be one for each of {len(found)} panels; got {len(axes)}")
    for panel, ax in zip(found, axes, strict=True):
        effect(source, panel.name, scale=scale, ax=ax)
    return list(axes)


def effect(source: Any, name: str, *, scale: Scale | None = None, ax: Axes | None = None) -> Axes:
    """Plot one of the panels of `effects`.

    Args:
        source: A Solution, a Fitted, a Stack, or a fitted estimator.
        name: Name of the term, as in `solution.terms`.
        scale: As for `effects`.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import Model, infer, kernels, likelihoods, plots
    >>> kernel = kernels.SquaredExponential().on(0) + kernels.Linear().on(1)
    >>> X = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]]
    >>> solution = infer(Model(kernel, likelihoods.Gaussian(0.1)), X, [0.0, 1.0, 2.0], "ep")
    >>> plots.effect(solution, "se(0)").get_title(loc="left")
    'se(0)'
    """
    posterior = _posterior_of(source)
    found = {panel.name: panel for panel in panels(posterior)}
    choice(found).check("name", name)
    ax, panel = axes_of(ax), found[name]
    scale = (scale_of(source, posterior) if scale is None else scale).of(panel)
    _draw(_Drawn(posterior, models_of(posterior)[1][0].X, scale.of_y), panel, scale, ax)
    named = ":".join(map(scale.name, panel.columns)) if panel.is_component and scale.names else plain(name)
    ax.set_title(named, fontsize="medium", loc="left")
    return ax


class _Drawn(NamedTuple):
    """A posterior, the rows that it was learned from, and the unit of y."""

    posterior: Solution | Stack
    X: np.ndarray
    unit: float


def _posterior_of(source: Any) -> Solution | Stack:
    """The Stack that a source is or predicts by, or its Solution."""
    found = source if isinstance(source, Stack) else getattr(source, "posterior_", None)
    return found if isinstance(found, Stack) else solution_of(source)


def _grid(count: int) -> list[Axes]:
    wide = min(count, 3)
    tall = -(-count // wide)
    figure, axes = plt.subplots(tall, wide, figsize=(4.0 * wide, 3.2 * tall), layout="constrained", squeeze=False)
    for spare in axes.ravel()[count:]:
        figure.delaxes(spare)
    return list(axes.ravel()[:count])


def _draw(solution: _Drawn, panel: Panel, scale: Scale, ax: Axes) -> None:
    numbers = [column for column in panel.columns if column not in panel.groups]
    kinds = len(numbers), len(panel.groups)
    if kinds == (1, 0):
        _curve(solution, panel, scale, numbers[0], ax)
    elif kinds == (0, 1):
        _levels(solution, panel, scale, ax)
    elif kinds == (2, 0) and panel.is_component:
        _curves(solution, panel, scale, numbers, np.unique(np.quantile(solution.X[:, numbers[1]], SLICES)), ax)
    elif kinds == (2, 0):
        _map(solution, panel, scale, numbers, ax)
    elif kinds == (1, 1):
        codes, rows = np.unique(panel.codes(solution.X, panel.groups[0]), return_counts=True)
        chosen = np.sort(codes[np.argsort(-rows, kind="stable")[:MAX_CURVES]])
        some = f", {len(chosen)} of {len(codes)} levels" if len(codes) > len(chosen) else ""
        _curves(solution, panel, scale, [*numbers, *panel.groups], chosen, ax, some)
    else:
        ax.hist(_part(solution, panel, solution.X).mean, bins=20, color=BLUE, alpha=0.6)
        ax.set(xlabel=f"effect of {', '.join(scale.name(c) for c in panel.columns)}", ylabel="rows")


def _at(solution: _Drawn, panel: Panel, values: dict[int, np.ndarray]) -> Normal:
    """The term where some columns have these values; the others do not matter to it."""
    x = np.repeat(solution.X[:1], len(next(iter(values.values()))), axis=0)
    for column, value in values.items():
        x[:, column] = value
        for code, own in enumerate(panel.levels.get(column, ()), 1):
            x[:, own] = np.where(value == code, solution.X[:, own].max(), solution.X[:, own].min())
    return _part(solution, panel, x)


def _part(solution: _Drawn, panel: Panel, x: np.ndarray) -> Normal:
    return panel.at(solution.posterior, x, solution.unit)


def _span(column: np.ndarray, points: int) -> np.ndarray:
    low, high = column.min(), column.max()
    return np.linspace(low, high if high > low else low + 1.0, points)


def _curve(solution: _Drawn, panel: Panel, scale: Scale, column: int, ax: Axes) -> None:
    places, period = solution.X[:, column], _period(panel.terms[0])
    at, name = _span(places, CURVE_POINTS), scale.name(column)
    if period is not None and period < np.ptp(places):  # the first says it all
        low = places.min()
        places, name = low + (places - low) % period, f"{name}, one period"
        at = low + np.linspace(0.0, period, CURVE_POINTS)
    banded(ax, scale.outward(column, at), _at(solution, panel, {column: at}))
    _rug(ax, scale.outward(column, places))
    ax.set(xlabel=name, ylabel="effect on f")


def _period(term: Kernel | None) -> float | None:
    while isinstance(term, Columns):
        term = term.kernel
    return float(term.period) if isinstance(term, Periodic) else None


def banded(
    ax: Axes, at: np.ndarray, of: Normal, intervals: Intervals = INTERVALS, color: str = BLUE, label: str | None = None
) -> None:
    """A curve with its intervals."""
    for inside, opacity in intervals:
        ax.fill_between(at, *_ends(of, inside), color=color, alpha=opacity, linewidth=0)
    ax.plot(at, of.mean, color=color, label=label)


def _ends(of: Normal, inside: float) -> tuple[np.ndarray, np.ndarray]:
    half = float(ndtri(0.5 + 0.5 * inside)) * np.sqrt(of.variance)
    return of.mean - half, of.mean + half


def _rug(ax: Axes, places: np.ndarray) -> None:
    ticks = np.unique(places)
    if len(ticks) > MAX_RUG_TICKS:
        ticks = np.quantile(places, np.linspace(0.0, 1.0, MAX_RUG_TICKS))
    foot = {"transform": ax.get_xaxis_transform(), "color": BLACK, "alpha": 0.7, "markersize": 8}
    ax.plot(ticks, np.full(len(ticks), 0.03), "|", **foot)


def _levels(solution: _Drawn, panel: Panel, scale: Scale, ax: Axes) -> None:
    (column,) = panel.groups
    codes = np.unique(panel.codes(solution.X, column))
    term = _at(solution, panel, {column: codes})
    order = np.argsort(term.mean)
    place, term = np.arange(len(codes)), Normal(term.mean[order], term.variance[order])
    ax.axhline(0.0, color=GREY, linewidth=1.0)
    for (inside, _), width in zip(INTERVALS, (1.0, 3.0), strict=True):
        ax.vlines(place, *_ends(term, inside), color=BLUE, linewidth=width, alpha=0.6)
    ax.plot(place, term.mean, "o", color=BLUE, markersize=4)
    if len(codes) <= MAX_LABELLED_LEVELS:
        labels = [scale.label(column, float(codes[i])) for i in order]
        turned = max(map(len, labels)) * len(labels) > 30
        ax.set_xticks(place, labels, rotation=90 if turned else 0)
    else:
        ax.set_xticks([])
    ax.set(xlabel=f"{scale.name(column)} ({len(codes)} levels)", ylabel="effect on f")


def _map(solution: _Drawn, panel: Panel, scale: Scale, columns: list[int], ax: Axes) -> None:
    first, second = (_span(solution.X[:, column], MAP_SIDE) for column in columns)
    left, up = np.meshgrid(first, second)
    term = _at(solution, panel, {columns[0]: left.ravel(), columns[1]: up.ravel()})
    corners = (scale.outward(column, each) for column, each in zip(columns, (left, up), strict=True))
    mesh = ax.pcolormesh(*corners, term.mean.reshape(left.shape), cmap="viridis", shading="gouraud", rasterized=True)
    ax.figure.colorbar(mesh, ax=ax, label="effect on f")
    ax.plot(*(scale.outward(column, solution.X[:, column]) for column in columns), ".", color=BLACK, markersize=2)
    ax.set(xlabel=scale.name(columns[0]), ylabel=scale.name(columns[1]))


def _curves(
    solution: _Drawn, panel: Panel, scale: Scale, columns: Sequence[int], chosen: np.ndarray, ax: Axes, some: str = ""
) -> None:
    """Curves over the first column, one for each chosen value of the second."""
    column, other = columns
    at = _span(solution.X[:, column], CURVE_POINTS)
    for code, colour in zip(chosen, COLOURS, strict=False):
        term = _at(solution, panel, {column: at, other: np.full(CURVE_POINTS, code)})
        band = ((INTERVALS[0][0], 0.12),)
        banded(ax, scale.outward(column, at), term, band, colour, scale.label(other, code))
    _rug(ax, scale.outward(column, solution.X[:, column]))
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": len(chosen)}
    place = {} if other in panel.groups else above
    ax.legend(title=f"{scale.name(other)}{some}", fontsize="small", title_fontsize="small", **place)
    ax.set(xlabel=scale.name(column), ylabel="effect on f")
