"""What a file may hold of an estimator: its parameters, its attributes, and kernels of scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk

from quantprop.estimators.classifier import GaussianProcessClassifier
from quantprop.estimators.columns import Coding
from quantprop.estimators.ranker import GaussianProcessRanker
from quantprop.estimators.regressor import GaussianProcessRegressor
from quantprop.kernels import Kernel, Terms
from quantprop.likelihoods import Likelihood
from quantprop.methods import Method
from quantprop.priors import Process
from quantprop.storage import records
from quantprop.storage.records import REGISTRY, Kind, Registry, Rule, encode, instance

_THEIRS = instance("a kernel of scikit-learn", sk.Kernel)
_BOUNDS = Rule("'fixed' or bounds", lambda value: records.numeric(value, 2) or str(value) == "fixed")
WHOLE = Rule("a whole number", lambda value: isinstance(value, (int, np.integer)) and not isinstance(value, bool))
_WHOLE_OR_NONE = Rule("a whole number or None", lambda value: value is None or WHOLE.holds(value))
_TEXT = instance("text", str)
_NUMBER = Rule("a number", lambda value: records.numeric(value, 0))
_KERNELS = (
    sk.ConstantKernel, sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct, sk.WhiteKernel,
    sk.Sum, sk.Product, sk.Exponentiation,
)  # fmt: skip


def _rule(name: str) -> Rule:
    rules = {**dict.fromkeys(("k1", "k2", "kernel"), _THEIRS), "exponent": records.NUMBER, "nu": _NUMBER}
    return rules.get(name, _BOUNDS if name.endswith("_bounds") else records.NUMBERS)


def _kind(name: str, make: type, rule: Callable[[str], Rule]) -> Kind:
    return Kind(name, make, {argument: rule(argument) for argument in inspect.signature(make).parameters})


def _is_levels(value: Any) -> bool:
    pairs = isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
    return pairs and all(type(column) is int and records.NAMES.holds(levels) for column, levels in value)


_CODING = Kind("estimators.Coding", Coding, {"names": records.NAMES, "levels": Rule("levels of columns", _is_levels)})
BOTH = Registry((*REGISTRY.kinds, _CODING, *(_kind(f"sklearn.{make.__name__}", make, _rule) for make in _KERNELS)))

LATER = {  # what files of older versions lack
    "process": "dense", "hyperparameters": "point", "_labels": None, "_coding": encode(Coding(), "_coding", BOTH),
}  # fmt: skip

_PARAMETERS = {
    "kernel": Rule(
        "a kernel, its name or None", lambda value: value is None or isinstance(value, (str, Kernel, Terms, sk.Kernel))
    ),
    "optimizer": Rule(
        "a name or None (a function cannot be stored: set_params(optimizer=None) after fitting drops it)",
        lambda value: value is None or isinstance(value, str),
    ),
    "random_state": Rule("a whole number or None (a generator cannot be stored)", _WHOLE_OR_NONE.holds),
    "n_jobs": _WHOLE_OR_NONE,
    "alpha": records.NUMBERS,
    **dict.fromkeys(("multi_class", "hyperparameters"), _TEXT),
    "process": instance("a name or a process", str, Process),
    "objective": _TEXT,
    "method": instance("a name or a method", str, Method),
    "likelihood": instance("a name or a likelihood", str, Likelihood),
    "mean": Rule(f"a name, {records.MEAN.words}", lambda value: isinstance(value, str) or records.MEAN.holds(value)),
    **dict.fromkeys(("n_restarts_optimizer", "max_iter_predict", "max_sweeps"), WHOLE),
    **dict.fromkeys(("warm_start", "copy_X_train", "normalize_y"), records.FLAG),
}


@dataclass(frozen=True)
class Family:
    """An estimator as a file knows it."""

    kind: Kind
    attributes: dict[str, Rule]


def _vector_of(kinds: str) -> Any:
    return lambda value: isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in kinds


_COMMON = {
    "n_features_in_": WHOLE,
    "feature_names_in_": Rule("names", lambda value: value is None or _vector_of("OU")(value)),
    "log_marginal_likelihood_value_": instance("a number", float),
    "_coding": instance("the coding of columns", Coding),
}
CLASSIFIER, RANKER, REGRESSOR = (
    Family(_kind(name, make, _PARAMETERS.__getitem__), {**_COMMON, **own})
    for name, make, own in (
        ("classifier", GaussianProcessClassifier, {"classes_": Rule("a vector of labels", _vector_of("biufUO"))}),
        ("ranker", GaussianProcessRanker, {}),
        (
            "regressor",
            GaussianProcessRegressor,
            {
                "_y_mean": records.NUMBER,
                "_y_std": records.NUMBER,
                "_labels": Rule(
                    "a vector of labels or None", lambda value: value is None or _vector_of("biufUO")(value)
                ),
            },
        ),
    )
)

FAMILIES = (CLASSIFIER, RANKER, REGRESSOR)
