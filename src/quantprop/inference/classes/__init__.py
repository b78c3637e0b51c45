"""Several classes: the posterior of their functions, and the distribution of the class."""

from quantprop.inference.classes.predictive import ClassPredictive
from quantprop.inference.classes.solution import ClassSolution, as_classes, as_factors, in_terms_of
from quantprop.inference.factors import factors_of

__all__ = ["ClassPredictive", "ClassSolution", "as_classes", "as_factors", "factors_of", "in_terms_of"]
