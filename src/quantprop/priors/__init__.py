"""Priors: how a Gaussian process is held at its inputs; one file a backend."""

from quantprop.priors.base import Conditioned, Cost, Prior, Process
from quantprop.priors.dense import Dense, DensePrior

PROCESSES: tuple[type[Process], ...] = (Dense,)  # of the library

__all__ = ["PROCESSES", "Conditioned", "Cost", "Dense", "DensePrior", "Prior", "Process"]
