"""Prior backends; one file each."""

from quantprop.priors.base import Posterior, Prior
from quantprop.priors.dense import DensePrior

__all__ = ["DensePrior", "Posterior", "Prior"]
