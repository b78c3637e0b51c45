"""Several classes: independent functions seen through differences."""

from quantprop.priors.classes.choice import holding_classes, holding_functions
from quantprop.priors.classes.inducing import ClassesInducingPrior
from quantprop.priors.classes.points import ClassesInducing, TwoClassesInducing
from quantprop.priors.classes.prior import ClassesPrior
from quantprop.priors.classes.process import Classes

__all__ = [
    "Classes",
    "ClassesInducing",
    "ClassesInducingPrior",
    "ClassesPrior",
    "TwoClassesInducing",
    "holding_classes",
    "holding_functions",
]
