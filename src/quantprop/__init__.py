"""Gaussian-process models with any factorised likelihood, by Quantile Propagation and its relatives."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quantprop import datasets, kernels, likelihoods, means, projections, storage
from quantprop.infer import infer
from quantprop.learn import Fitted, fit
from quantprop.many import fit_many
from quantprop.methods import EP, QP, VB, Laplace, PowerEP
from quantprop.model import Model
from quantprop.parameters import Parameter
from quantprop.predict_many import predict_many
from quantprop.project import project
from quantprop.solution import PrecisionWarning, Solution, Status

if TYPE_CHECKING:  # what `_LAZY` brings in on first use
    from quantprop import estimators, plots
    from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRegressor
    from quantprop.estimators.storage import load, save

__version__ = "0.1.0"

_LAZY = {  # what takes long to import, and where it is
    "GaussianProcessClassifier": "quantprop.estimators",
    "GaussianProcessRegressor": "quantprop.estimators",
    "estimators": "quantprop.estimators",
    "load": "quantprop.estimators.storage",
    "plots": "quantprop.plots",
    "save": "quantprop.estimators.storage",
}


Fitted.save = storage.save  # pyright: ignore[reportAttributeAccessIssue]  # files know results, not the reverse


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'quantprop' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if name in ("estimators", "plots") else getattr(module, name)


__all__ = [
    "EP",
    "QP",
    "VB",
    "Fitted",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "Laplace",
    "Model",
    "Parameter",
    "PowerEP",
    "PrecisionWarning",
    "Solution",
    "Status",
    "datasets",
    "estimators",
    "fit",
    "fit_many",
    "infer",
    "kernels",
    "likelihoods",
    "load",
    "means",
    "plots",
    "predict_many",
    "project",
    "projections",
    "save",
]
