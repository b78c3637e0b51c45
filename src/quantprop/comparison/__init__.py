"""Methods side by side on a table: cross-validated scores with their standard errors."""

from quantprop.comparison.compare import Comparison, Division, Evaluated, Fold, compare, folds, held_out
from quantprop.comparison.errors import Estimate
from quantprop.comparison.scores import ClassForecast, NumberForecast

__all__ = ["ClassForecast", "Comparison", "Division", "Estimate", "Evaluated", "Fold", "NumberForecast", "compare",
           "folds", "held_out"]  # fmt: skip
