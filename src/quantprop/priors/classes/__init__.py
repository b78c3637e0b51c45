"""Several classes: independent functions seen through differences."""

from quantprop.priors.classes.prior import ClassesPrior
from quantprop.priors.classes.process import Classes

__all__ = ["Classes", "ClassesPrior"]
