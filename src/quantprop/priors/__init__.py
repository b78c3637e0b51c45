"""Priors: how a Gaussian process is represented at its inputs; one file or folder per backend."""

from quantprop.priors.base import Conditioned, Cost, Prior, Process
from quantprop.priors.classes import Classes, ClassesInducing, ClassesInducingPrior, ClassesPrior, TwoClassesInducing
from quantprop.priors.dense import Dense, DensePrior
from quantprop.priors.inducing import Inducing, InducingPrior
from quantprop.priors.markov import Markov, MarkovPrior
from quantprop.priors.neighbours import Neighbours, NeighboursPrior
from quantprop.priors.per_function import PerFunction, PerFunctionPrior

PROCESSES: tuple[type[Process], ...] = tuple(Process.__subclasses__())  # those imported above: the library's own

__all__ = [
    "PROCESSES",
    "Classes",
    "ClassesInducing",
    "ClassesInducingPrior",
    "ClassesPrior",
    "Conditioned",
    "Cost",
    "Dense",
    "DensePrior",
    "Inducing",
    "InducingPrior",
    "Markov",
    "MarkovPrior",
    "Neighbours",
    "NeighboursPrior",
    "PerFunction",
    "PerFunctionPrior",
    "Prior",
    "Process",
    "TwoClassesInducing",
]
