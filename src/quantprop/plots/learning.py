"""Pictures of learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantprop.plots.canvas import BLACK, BLUE, GREY, RED, Axes, _axes


def trace(fitted: Any, ax: Axes | None = None) -> Axes:
    """How learning went: objective (left) and largest entry of the projected gradient (right) at every evaluation.

    Crosses at the foot are evaluations at which inference failed, dotted lines are restarts.

    >>> from quantprop import Model, fit, kernels, likelihoods, plots
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [-1, -1, 1, -1]
    >>> fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, "ep")
    >>> plots.trace(fitted).get_ylabel()
    'evidence'
    """
    steps = getattr(fitted, "trace", None)
    if not steps:
        raise TypeError(f"fitted must be what fit returned; got {type(fitted).__name__}")
    ax = _axes(ax)
    number = np.arange(1, len(steps) + 1)
    value, gradient = (np.array([getattr(step, name) for step in steps]) for name in ("value", "gradient"))
    failed = np.array([step.reason != "converged" for step in steps])
    restart = np.array([step.restart for step in steps])
    ax.plot(number, np.where(failed, np.nan, value), ".-", color=BLUE)
    if failed.any():  # a line without points that is not clipped would upset the layout
        foot = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot(number[failed], np.zeros(failed.sum()), "x", color=BLACK, **foot)
    for first in number[1:][np.diff(restart) != 0]:
        ax.axvline(first - 0.5, color=GREY, linestyle=":", linewidth=1.0)
    ax.set(xlabel="evaluation", ylabel=fitted.objective)
    right = ax.twinx()
    right.plot(number, np.where(failed | (gradient <= 0), np.nan, gradient), ".--", color=RED)
    right.set(ylabel="gradient", yscale="log")
    ax.yaxis.label.set_color(BLUE)
    right.yaxis.label.set_color(RED)
    return ax
