"""Prior backends; one file each."""

from quantprop.priors.base import Posterior, Prior
from quantprop.priors.dense import DensePrior, dominant

__all__ = ["DensePrior", "Posterior", "Prior", "dominant"]
