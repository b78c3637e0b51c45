"""Priors: how a Gaussian process is held at its inputs; one file a backend."""

from quantprop.priors.base import Conditioned, Cost, Prior, Process
from quantprop.priors.dense import Dense, DensePrior

__all__ = ["Conditioned", "Cost", "Dense", "DensePrior", "Prior", "Process"]
