"""Several classes: as scalar data, and back."""

from quantprop.inference.classes.factors import factors_of
from quantprop.inference.classes.predictive import ClassPredictive
from quantprop.inference.classes.solution import ClassSolution
from quantprop.inference.classes.translation import as_classes, as_factors, by_factors, each_by_factors

__all__ = [
    "ClassPredictive",
    "ClassSolution",
    "as_classes",
    "as_factors",
    "by_factors",
    "each_by_factors",
    "factors_of",
]
