"""Gaussian-process models with any factorised likelihood, by Quantile Propagation and its relatives.

Names are imported on first use: what only asks for help or the version does not wait for JAX.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from quantprop.runtime.system import uncollected

if TYPE_CHECKING:  # what `__getattr__` brings in on first use
    from quantprop import datasets, estimators, kernels, likelihoods, means, plots, projections, storage, tables
    from quantprop.core.parameters import LogNormal, Parameter
    from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRanker, GaussianProcessRegressor
    from quantprop.estimators.storage import load, save
    from quantprop.inference import active
    from quantprop.inference.batched import predict_many
    from quantprop.inference.closeness import closeness
    from quantprop.inference.inferring import FixedPointWarning, infer
    from quantprop.inference.integrated import Integrated
    from quantprop.inference.prediction import PrecisionWarning
    from quantprop.inference.prior_draws import prior_predictive
    from quantprop.inference.results import Fitted
    from quantprop.inference.solution import Solution, Status
    from quantprop.inference.stacked import Stack
    from quantprop.learning.checkpoints import checkpointed
    from quantprop.learning.fitting import fit
    from quantprop.learning.integration.integrating import integrate
    from quantprop.learning.many import fit_many
    from quantprop.learning.stacking import stack
    from quantprop.learning.starts import KernelWarning
    from quantprop.methods import EP, QP, VB, Laplace, PowerEP
    from quantprop.model import Model
    from quantprop.priors import Dense, Inducing, Markov, Neighbours
    from quantprop.priors.inducing import PointsWarning
    from quantprop.projections.base import project
    from quantprop.runtime.compiled import cache
    from quantprop.runtime.mesh import sharded

__version__ = "0.3.0.dev0"

_HOME = {
    **dict.fromkeys(("GaussianProcessClassifier", "GaussianProcessRanker", "GaussianProcessRegressor"), "estimators"),
    **dict.fromkeys(("load", "save"), "estimators.storage"),
    **dict.fromkeys(("EP", "QP", "VB", "Laplace", "PowerEP"), "methods"),
    **dict.fromkeys(("LogNormal", "Parameter"), "core.parameters"),
    **dict.fromkeys(("Solution", "Status"), "inference.solution"),
    **dict.fromkeys(("Dense", "Inducing", "Markov", "Neighbours"), "priors"),
    "Fitted": "inference.results",
    "FixedPointWarning": "inference.inferring",
    "Integrated": "inference.integrated",
    "KernelWarning": "learning.starts",
    "Model": "model",
    "PointsWarning": "priors.inducing",
    "PrecisionWarning": "inference.prediction",
    "cache": "runtime.compiled",
    "checkpointed": "learning.checkpoints",
    "closeness": "inference.closeness",
    "fit": "learning.fitting",
    "fit_many": "learning.many",
    "infer": "inference.inferring",
    "integrate": "learning.integration.integrating",
    "predict_many": "inference.batched",
    "prior_predictive": "inference.prior_draws",
    "project": "projections.base",
    "sharded": "runtime.mesh",
    "Stack": "inference.stacked",
    "stack": "learning.stacking",
}

_MODULES = {"active": "inference.active"}  # that are not where their names are


@uncollected()
def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(import_module(f"quantprop.{_HOME[name]}"), name)
        setattr(sys.modules[__name__], name, found)
        return found
    if not name.startswith("_"):
        try:
            return import_module(f"quantprop.{_MODULES.get(name, name)}")
        except ModuleNotFoundError as error:
            if error.name != f"quantprop.{name}":
                raise  # what the module itself needs is missing
    raise AttributeError(f"module 'quantprop' has no attribute {name!r}")


__all__ = [
    "EP",
    "QP",
    "VB",
    "Dense",
    "Fitted",
    "FixedPointWarning",
    "GaussianProcessClassifier",
    "GaussianProcessRanker",
    "GaussianProcessRegressor",
    "Inducing",
    "Integrated",
    "KernelWarning",
    "Laplace",
    "LogNormal",
    "Markov",
    "Model",
    "Neighbours",
    "Parameter",
    "PointsWarning",
    "PowerEP",
    "PrecisionWarning",
    "Solution",
    "Stack",
    "Status",
    "active",
    "cache",
    "checkpointed",
    "closeness",
    "datasets",
    "estimators",
    "fit",
    "fit_many",
    "infer",
    "integrate",
    "kernels",
    "likelihoods",
    "load",
    "means",
    "plots",
    "predict_many",
    "prior_predictive",
    "project",
    "projections",
    "save",
    "sharded",
    "stack",
    "storage",
    "tables",
]
