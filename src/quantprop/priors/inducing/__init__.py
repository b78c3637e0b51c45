"""Inducing points: a prior of low rank plus a diagonal, for many rows."""

from quantprop.priors.inducing.choice import PointsWarning
from quantprop.priors.inducing.message import Message
from quantprop.priors.inducing.prior import InducingPrior
from quantprop.priors.inducing.process import Inducing

__all__ = ["Inducing", "InducingPrior", "Message", "PointsWarning"]
