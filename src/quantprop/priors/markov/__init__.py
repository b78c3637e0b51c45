"""Gaussian processes in time as Markov chains of states: linear cost."""

from quantprop.priors.markov.forms import NotMarkov
from quantprop.priors.markov.prior import MarkovPrior
from quantprop.priors.markov.process import Markov, applies

__all__ = ["Markov", "MarkovPrior", "NotMarkov", "applies"]
