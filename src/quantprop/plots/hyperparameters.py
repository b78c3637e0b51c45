"""Pictures of the posterior of hyperparameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantprop.inference.integrated import Integrated
from quantprop.plots.canvas import BLACK, BLUE, GREY, Axes, _axes
from quantprop.runtime.arguments import NUMBER, checked


@checked(point=NUMBER)
def hyperparameter(source: Any, name: str, point: float | None = None, ax: Axes | None = None) -> Axes:
    """The posterior density of one hyperparameter with its median and 95 % interval; `point` marks an estimate.

    `source` is what `integrate` returned, or an estimator with hyperparameters="integrated". A hyperparameter that is
    learned by its logarithm has a logarithmic axis, and the density is that of the logarithm.

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
    density = np.exp([marginal.log_prob(value)[0] for value in at])
    shown = np.exp(at) if logarithmic else at
    inside = (shown >= found.lower) & (shown <= found.upper)
    ax = _axes(ax)
    ax.plot(shown, density, color=BLUE)
    ax.fill_between(shown[inside], density[inside], color=BLUE, alpha=0.25, label="95 % interval")
    ax.axvline(found.median, color=BLACK, linewidth=1.0, label="median")
    if point is not None:
        ax.axvline(point, color=GREY, linestyle="--", linewidth=1.0, label="point estimate")
    if logarithmic:
        ax.set_xscale("log")
    ax.set_xlabel(name)
    ax.set_ylabel("density of its logarithm" if logarithmic else "density")
    ax.legend()
    return ax
