"""Several classes: independent functions seen through differences."""

from quantprop.priors.classes.prior import ClassesPrior
from quantprop.priors.classes.process import Classes, holding_classes

__all__ = ["Classes", "ClassesPrior", "holding_classes"]
