"""Estimators with scikit-learn's interface; the only part of the library that imports it."""

from quantprop.estimators import further_rows, storage  # noqa: F401  # so that `active` and `save` take estimators
from quantprop.estimators.classifier import GaussianProcessClassifier
from quantprop.estimators.ranker import GaussianProcessRanker
from quantprop.estimators.regressor import GaussianProcessRegressor
from quantprop.estimators.translate import from_sklearn, to_sklearn

__all__ = [
    "GaussianProcessClassifier",
    "GaussianProcessRanker",
    "GaussianProcessRegressor",
    "from_sklearn",
    "to_sklearn",
]
