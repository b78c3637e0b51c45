"""Gaussian-process models with any factorised likelihood, by Quantile Propagation and its relatives.

Names are imported on first use: what only asks for help or the version does not wait for JAX.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quantprop.garbage import uncollected

if TYPE_CHECKING:  # what `__getattr__` brings in on first use
    from quantprop import datasets, estimators, kernels, likelihoods, means, plots, projections, storage, tables
    from quantprop.compiled import cache
    from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRegressor
    from quantprop.estimators.storage import load, save
    from quantprop.infer import infer
    from quantprop.learn import Fitted, fit
    from quantprop.many import fit_many
    from quantprop.methods import EP, QP, VB, Laplace, PowerEP
    from quantprop.model import Model
    from quantprop.parameters import LogNormal, Parameter
    from quantprop.predict_many import predict_many
    from quantprop.priors import Dense
    from quantprop.project import project
    from quantprop.solution import PrecisionWarning, Solution, Status
    from quantprop.starts import KernelWarning

__version__ = "0.1.0"

_HOME = {
    **dict.fromkeys(("GaussianProcessClassifier", "GaussianProcessRegressor"), "estimators"),
    **dict.fromkeys(("load", "save"), "estimators.storage"),
    **dict.fromkeys(("Fitted", "fit"), "learn"),
    **dict.fromkeys(("EP", "QP", "VB", "Laplace", "PowerEP"), "methods"),
    **dict.fromkeys(("PrecisionWarning", "Solution", "Status"), "solution"),
    "Dense": "priors",
    "Model": "model",
    **dict.fromkeys(("LogNormal", "Parameter"), "parameters"),
    "KernelWarning": "starts",
    "cache": "compiled",
    "fit_many": "many",
    "infer": "infer",
    "predict_many": "predict_many",
    "project": "project",
}


class _Package(ModuleType):
    """Importing quantprop.infer binds that module to its name here, where users mean the function of this name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


@uncollected()
def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(import_module(f"quantprop.{_HOME[name]}"), name)
        setattr(sys.modules[__name__], name, found)
        return found
    if not name.startswith("_"):
        try:
            return import_module(f"quantprop.{name}")
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
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "KernelWarning",
    "Laplace",
    "LogNormal",
    "Model",
    "Parameter",
    "PowerEP",
    "PrecisionWarning",
    "Solution",
    "Status",
    "cache",
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
    "storage",
    "tables",
]
