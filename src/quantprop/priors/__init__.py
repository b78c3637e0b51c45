"""Prior backends; one file each."""

from quantprop.priors.base import Posterior, Prior
from quantprop.priors.dense import DensePrior, dense_prior

__all__ = ["DensePrior", "Posterior", "Prior", "dense_prior"]
