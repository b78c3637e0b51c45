"""Several classes: independent functions seen through differences."""

from quantprop.priors.classes.inducing import ClassesInducingPrior
from quantprop.priors.classes.prior import ClassesPrior
from quantprop.priors.classes.process import (
    Classes,
    ClassesInducing,
    TwoClassesInducing,
    holding_classes,
    holding_functions,
)

__all__ = [
    "Classes",
    "ClassesInducing",
    "ClassesInducingPrior",
    "ClassesPrior",
    "TwoClassesInducing",
    "holding_classes",
    "holding_functions",
]
