"""Priors: how a Gaussian process is held at its inputs; one file a backend."""

from quantprop.priors.base import Conditioned, Cost, Prior, Process
from quantprop.priors.dense import Dense, DensePrior
from quantprop.priors.markov import Markov, MarkovPrior

PROCESSES: tuple[type[Process], ...] = (Dense, Markov)  # of the library

__all__ = ["PROCESSES", "Conditioned", "Cost", "Dense", "DensePrior", "Markov", "MarkovPrior", "Prior", "Process"]
