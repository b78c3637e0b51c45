"""Gaussian-process models with any factorised likelihood, by Quantile Propagation and its relatives."""

from quantprop import datasets, kernels, likelihoods, means, projections
from quantprop.infer import infer
from quantprop.learn import Fitted, fit
from quantprop.methods import EP, QP, VB, Laplace, PowerEP
from quantprop.model import Model
from quantprop.parameters import Parameter
from quantprop.project import project
from quantprop.solution import PrecisionWarning, Solution, Status

__version__ = "0.1.0"

__all__ = [
    "EP",
    "QP",
    "VB",
    "Fitted",
    "Laplace",
    "Model",
    "Parameter",
    "PowerEP",
    "PrecisionWarning",
    "Solution",
    "Status",
    "datasets",
    "fit",
    "infer",
    "kernels",
    "likelihoods",
    "means",
    "project",
    "projections",
]
