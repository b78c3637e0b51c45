"""Pictures of learning, and of the posterior of hyperparameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantprop.inference.integrated import Integrated
from quantprop.plots.canvas import BLACK, BLUE, GREY, RED, Axes, axes_of, labelled
from quantprop.runtime.arguments import NUMBER, checked


def trace(fitted: Any, ax: Axes | None = None) -> Axes:
    """Plot the objective (left) and the largest entry of the projected gradient (right) at every evaluation.

    Crosses at the foot are evaluations at which inference failed, dotted lines are restarts.

    Args:
        fitted: What `fit` returned.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> from quantprop import Model, fit, kernels, likelihoods, plots
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [-1, -1, 1, -1]
    >>> fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, "ep")
    >>> plots.trace(fitted).get_ylabel()
    'evidence'
    """
    steps = getattr(fitted, "trace", None)
    if not steps:
        raise TypeError(f"fitted must be what fit returned; got {type(fitted).__name__}")
    ax = axes_of(ax)
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


@checked(point=NUMBER)
def hyperparameter(source: Any, name: str, point: float | None = None, ax: Axes | None = None) -> Axes:
    """Plot the posterior density of one hyperparameter with its median and 95 % interval.

    A hyperparameter that is learned on a log scale has a logarithmic axis, and the density is that of the logarithm.

    Args:
        source: What `integrate` returned, or an estimator with hyperparameters="integrated".
        name: Name of the hyperparameter, as in `integrated.parameters`.
        point: A value to mark, such as an estimate.
        ax: Axes to draw on; a new figure by default.

    Returns:
        The Axes.

    >>> import numpy as np
    >>> from quantprop import Model, fit, integrate, kernels, likelihoods, plots
    >>> X = np.linspace(-2, 2, 12)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.3 * np.cos(9 * X[:, 0])
    >>> integrated = integrate(fit(Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3)), X, y, method="ep"))
    >>> plots.hyperparameter(integrated, "kernel.lengthscale").get_xscale()
    'log'
    """
    integrated = getattr(source, "posterior_", source)
    if not isinstance(integrated, Integrated):
        raise TypeError(
            "source must be what integrate returned, or an estimator with hyperparameters='integrated'; got "
            f"{type(source).__name__}"
        )
    marginal, found, logarithmic = integrated.marginal(name), integrated.parameters[name], integrated.logarithmic[name]
    first, last = (float(end[0]) for end in marginal.quantile(np.array([0.001, 0.999])))
    at = np.linspace(first, last, 300)
    height = np.exp([marginal.log_prob(value)[0] for value in at])
    shown = np.exp(at) if logarithmic else at
    inside = (shown >= found.lower) & (shown <= found.upper)
    ax = axes_of(ax)
    ax.plot(shown, height, color=BLUE)
    ax.fill_between(shown[inside], height[inside], color=BLUE, alpha=0.25, label="95 % interval")
    ax.axvline(found.median, color=BLACK, linewidth=1.0, label="median")
    if point is not None:
        ax.axvline(point, color=GREY, linestyle="--", linewidth=1.0, label="point estimate")
    scale, density = ("log", "density of its logarithm") if logarithmic else ("linear", "density")
    return labelled(ax, xlabel=name, xscale=scale, ylabel=density)
