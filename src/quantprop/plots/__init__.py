"""Pictures of posteriors, of the terms of a sum, of calibration, of single sites and of learning.

Every function draws on `ax`, or on a new figure without one, and returns the Axes. Where it takes a `source`, that is a
Solution, what `fit` returned, or a fitted estimator.
"""

from quantprop.plots.calibration import pit, reliability, rootogram
from quantprop.plots.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, RED
from quantprop.plots.classes import class_regions, class_reliability
from quantprop.plots.effects import effect, effects
from quantprop.plots.hyperparameters import hyperparameter
from quantprop.plots.learning import trace
from quantprop.plots.posteriors import class_probability, posterior, variances
from quantprop.plots.series import decomposition, forecast
from quantprop.plots.sites import site, variance_ratio

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "RED",
    "class_probability",
    "class_regions",
    "class_reliability",
    "decomposition",
    "effect",
    "effects",
    "forecast",
    "hyperparameter",
    "pit",
    "posterior",
    "reliability",
    "rootogram",
    "site",
    "trace",
    "variance_ratio",
    "variances",
]
