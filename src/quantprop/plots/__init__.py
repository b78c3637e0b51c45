"""Pictures of posteriors, of the terms of a sum, of calibration, of single sites and of learning.

Every function draws on `ax`, or on a new figure without one, and returns the Axes. Where it takes a `source`, that is a
Solution, what `fit` returned, or a fitted estimator.
"""

from quantprop.plots.calibration import class_reliability, pit, reliability, rootogram
from quantprop.plots.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, RED
from quantprop.plots.checks import check
from quantprop.plots.effects import effect, effects
from quantprop.plots.learning import hyperparameter, trace
from quantprop.plots.posteriors import class_probability, class_regions, posterior, variances
from quantprop.plots.series import decomposition, forecast
from quantprop.plots.sites import site, variance_ratio
from quantprop.plots.survival import survival

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "RED",
    "check",
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
    "survival",
    "trace",
    "variance_ratio",
    "variances",
]
