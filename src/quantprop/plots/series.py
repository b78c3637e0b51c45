"""Pictures of series in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quantprop.data import finite_array
from quantprop.inference.mixed import MixedPredictive
from quantprop.inference.predictive import Predictive
from quantprop.plots.canvas import BLACK, BLUE, Axes, _axes, to_rgb
from quantprop.runtime.arguments import BETWEEN, SEQUENCE, Rule, a, checked

FAN = (0.5, 0.8, 0.95)
LEVELS = Rule(
    "probabilities between 0 and 1",
    lambda levels: SEQUENCE.holds(levels) and len(levels) > 0 and all(map(BETWEEN.holds, levels)),
)


@checked(predictive=a((Predictive, MixedPredictive), "a distribution of y, as predict_y returns it"), levels=LEVELS)
def forecast(
    times: Any, predictive: Predictive, past: Any = None, y: Any = None, *, levels: Sequence[float] = FAN,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Forecasts as a fan: the median of y at each time, and central intervals that hold it with these probabilities.

    `times` and `predictive` are those of `solution.forecast`, or the times of rows given to `predict_y`; `past` and `y`
    are times and observations to show beside them, before or after the forecasts begin.

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
        raise ValueError(f"times must be those of the forecasts, {len(predictive.latent.mean)}; got {len(at)}")
    ax, order = _axes(ax), np.argsort(at)
    for level in sorted(levels, reverse=True):
        ends = (predictive.quantile(0.5 - 0.5 * level)[order], predictive.quantile(0.5 + 0.5 * level)[order])
        ax.fill_between(at[order], *ends, color=_tint(level), linewidth=0, label=f"{100 * level:g} %")
    ax.plot(at[order], predictive.quantile(0.5)[order], color=BLUE, label="median")
    if past is not None:
        ax.plot(finite_array(past, "past", ndim=1), finite_array(y, "y", ndim=1), ".", color=BLACK, label="data")
    ax.set(xlabel="time", ylabel="y")
    ax.legend()
    return ax


def _tint(level: float) -> tuple[float, ...]:
    """Blue, the paler the more probability is inside; opaque, so that the legend shows what the fan does."""
    strength = 0.2 + 0.6 * (1.0 - level)
    return tuple(1.0 - strength * (1.0 - part) for part in to_rgb(BLUE))
