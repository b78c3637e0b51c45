"""Pictures of series in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from quantprop.core.data import finite_array
from quantprop.core.gaussian import Normal
from quantprop.inference.mixed import MixedPredictive
from quantprop.inference.predictive import Predictive
from quantprop.inference.solution import Solution
from quantprop.kernels import Periodic
from quantprop.kernels.structure import leaves
from quantprop.likelihoods.additive import Additive
from quantprop.plots.canvas import BLACK, BLUE, Axes, axes_of, labelled, plain, solution_of
from quantprop.plots.effects import Scale, banded, panels, scale_of
from quantprop.plots.panels import Panel
from quantprop.runtime.arguments import BETWEEN, SEQUENCE, Rule, a, checked

FAN = (0.5, 0.8, 0.95)
CURVE_POINTS = 400  # added to the times of the data in a decomposition
MAX_PERIODS_OF_ALL_TIMES, PERIODS_SHOWN = 20, 3
MAX_TIMES = 20_000  # at which a decomposition is drawn
LEVELS = Rule(
    "probabilities between 0 and 1",
    lambda levels: SEQUENCE.holds(levels) and len(levels) > 0 and all(map(BETWEEN.holds, levels)),
)


@checked(predictive=a((Predictive, MixedPredictive), "a distribution of y, as predict_y returns it"), levels=LEVELS)
def forecast(
    times: Any, predictive: Predictive, past: Any = None, y: Any = None, *, levels: Sequence[float] = FAN,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Plot predictions of a series as a fan: the median of y at each time, and central intervals.

    Args:
        times: Times of the predictions, as in `solution.forecast`.
        predictive: Distributions of y at these times.
        past: Times of observations to show.
        y: These observations.
        levels: Probabilities of the central intervals.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> import numpy as np
    >>> from quantprop import Markov, Model, infer, kernels, likelihoods, plots
    >>> t, y = np.arange(40.0), np.tile([3, 4, 5, 4], 10)
    >>> model = Model(kernels.Matern32(1.0, 20.0), likelihoods.Poisson(), process=Markov())
    >>> ahead = infer(model, t[:, None], y, "ep").forecast(5)
    >>> plots.forecast(ahead.times, ahead.y, t[-20:], y[-20:]).get_xlabel()
    'time'
    """
    at = finite_array(times, "times", ndim=1)
    if at.shape != np.shape(predictive.latent.mean):
        raise ValueError(f"times must have one entry per forecast, {len(predictive.latent.mean)}; got {len(at)}")
    ax, order = axes_of(ax), np.argsort(at)
    for level in sorted(levels, reverse=True):
        ends = (predictive.quantile(0.5 - 0.5 * level)[order], predictive.quantile(0.5 + 0.5 * level)[order])
        ax.fill_between(at[order], *ends, color=_tint(level), linewidth=0, label=f"{100 * level:g} %")
    ax.plot(at[order], predictive.quantile(0.5)[order], color=BLUE, label="median")
    if past is not None:
        ax.plot(finite_array(past, "past", ndim=1), finite_array(y, "y", ndim=1), ".", color=BLACK, label="data")
    return labelled(ax, xlabel="time", ylabel="y")


def decomposition(source: Any, *, scale: Scale | None = None, figure: Figure | None = None) -> list[Axes]:
    """Plot the decomposition of a series: f minus its prior mean, each term of the sum, and the residual of y.

    All terms must act on one column of X, time. Curves are means with the intervals that hold 50 % and 90 %; the panel
    of residuals is drawn if y is f plus noise. A periodic term of more than 20 periods is drawn over the last three.

    Args:
        source: A Solution, a Fitted, or a fitted estimator.
        scale: Names and formats of columns (`plots.effects.Scale`).
        figure: Figure to draw on; a new one by default.

    Returns:
        The list of Axes.

    >>> import numpy as np
    >>> from quantprop import Markov, Model, infer, kernels, likelihoods, plots
    >>> t = np.arange(40.0)
    >>> kernel = kernels.Matern32(1.0, 20.0).on(0) + kernels.Periodic(1.0, 1.0, 7.0).on(0)
    >>> solution = infer(Model(kernel, likelihoods.Gaussian(0.1), process=Markov()), t[:, None], np.sin(t), "ep")
    >>> [ax.get_title(loc="left") for ax in plots.decomposition(solution)]
    ['all terms', 'matern32(0)', 'periodic(0, period=7)', 'rest']
    """
    solution = solution_of(source)
    column, y = time_of(solution), _observed(solution)
    if column is None:
        raise ValueError("a decomposition needs a kernel whose terms all depend on one column of X, time; "
                         "plots.effects draws terms of several columns")  # fmt: skip
    scale = scale_of(source, solution) if scale is None else scale
    time, shift = solution.X[:, column], scale.centre.get(column, 0.0)
    at = np.unique(np.concatenate([time, np.linspace(time.min(), time.max(), CURVE_POINTS)]))
    at = at[:: -(-len(at) // MAX_TIMES)]
    curves = _parts(solution, column, at)
    count = len(curves) + (y is not None)
    figure = plt.figure(figsize=(8.0, 1.8 * count), layout="constrained") if figure is None else figure
    axes = list(figure.subplots(count, squeeze=False)[:, 0])
    periods = {panel.name: _period(panel) for panel in panels(solution)}
    for ax, (name, curve) in zip(axes, curves.items(), strict=False):
        banded(ax, at + shift, Normal(scale.of_y * curve.mean, scale.of_y**2 * curve.variance))
        ax.set_title(plain(name), fontsize="medium", loc="left")
        if is_fast := periods.get(name, np.inf) * MAX_PERIODS_OF_ALL_TIMES < np.ptp(at):
            ax.set_xlim(at[-1] + shift - PERIODS_SHOWN * periods[name], at[-1] + shift)
        ax.tick_params(labelbottom=is_fast)
    if y is not None:
        for ax, less in ((axes[0], solution.model.prior_mean(solution.X)), (axes[-1], solution.marginals.mean)):
            ax.plot(time + shift, scale.of_y * (y - less), ".", color=BLACK, markersize=2)
        axes[-1].set_title("rest", fontsize="medium", loc="left")
    axes[-1].tick_params(labelbottom=True)
    axes[-1].set_xlabel(scale.name(column))
    if column in scale.dates:
        for ax in axes:
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator := AutoDateLocator()))
            ax.xaxis.set_major_locator(locator)
    return axes


def _period(panel: Panel) -> float:
    """The period of a term; infinite if it has none."""
    parts = [leaf for term in panel.terms if term is not None for leaf, _ in leaves(term)]
    return min((float(leaf.period) for leaf in parts if isinstance(leaf, Periodic)), default=np.inf)


def time_of(solution: Solution) -> int | None:
    """The column that all terms see, where it is one."""
    seen = {column for panel in panels(solution) for column in panel.columns}
    return seen.pop() if len(seen) == 1 else None


def _parts(solution: Solution, column: int, at: np.ndarray) -> dict[str, Normal]:
    """All terms together, and each that can be drawn, at these times."""
    x = np.repeat(solution.X[:1], len(at), axis=0)
    x[:, column] = at
    whole, each = solution.predict(x), solution.terms(x)
    sums = Normal(whole.mean - solution.model.prior_mean(x), whole.variance)
    return {"all terms": sums} | {panel.name: each[panel.name] for panel in panels(solution)}


def _observed(solution: Solution) -> np.ndarray | None:
    """y of rows that count, where it is f and noise."""
    likelihood = solution.model.plain_likelihood
    if solution.data is None or not isinstance(likelihood, Additive) or likelihood.columns > 1:
        return None
    return solution.data.y if solution.weights is None else np.where(solution.weights > 0, solution.data.y, np.nan)


def _tint(level: float) -> tuple[float, ...]:
    """Blue, the paler the more probability is inside; opaque, so that the legend shows what the fan does."""
    strength = 0.2 + 0.6 * (1.0 - level)
    return tuple(1.0 - strength * (1.0 - part) for part in to_rgb(BLUE))
