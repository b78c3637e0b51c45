"""Methods side by side on a table: cross-validated scores with their standard errors."""

from quantprop.comparison.choice import Candidate, Choice, Standing, candidates, choose
from quantprop.comparison.compare import Comparison, Division, Evaluated, Fold, compare, folds, held_out
from quantprop.comparison.origins import backtest, origins
from quantprop.comparison.scores import ClassForecast, Estimate, NumberForecast
from quantprop.comparison.survival import survival_scores

__all__ = ["Candidate", "Choice", "ClassForecast", "Comparison", "Division", "Estimate", "Evaluated", "Fold",
           "NumberForecast", "Standing", "backtest", "candidates", "choose", "compare", "folds", "held_out",
           "origins", "survival_scores"]  # fmt: skip
