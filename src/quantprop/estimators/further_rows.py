"""`active.ask` and `active.tell` for estimators: inputs, levels and observations as their users have them."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_consistent_length

from quantprop.core.data import row_weights
from quantprop.core.gaussian import Natural
from quantprop.estimators.classifier import GaussianProcessClassifier
from quantprop.estimators.core import FittedCore
from quantprop.estimators.observations import check_factor, codes
from quantprop.estimators.ranker import GaussianProcessRanker, checked, compared, informative
from quantprop.estimators.reading import units_of
from quantprop.estimators.regressor import GaussianProcessRegressor
from quantprop.estimators.shaping import with_shape
from quantprop.estimators.two_class import two_class_problems
from quantprop.inference.active import ESTIMATORS, InOwnTerms, with_rows
from quantprop.inference.stacked import Stack
from quantprop.inference.task import more_columns, prepare
from quantprop.learning.fitting import fitted_at
from quantprop.likelihoods import Gaussian
from quantprop.likelihoods.ordinal import Ties


def asked(estimator: Any, candidates: Any, level: float | None) -> tuple[Any, Any, Any]:
    """The posterior of an estimator, and candidates and level in its terms."""
    x = estimator._new_inputs(candidates)
    return estimator.posterior_, x, None if level is None else float(units_of(estimator).inward(np.asarray(level)))


def pairs_asked(ranker: Any, candidates: Any, level: float | None) -> tuple[Any, Any, Any]:
    """The same for comparisons, each a row of two items next to each other."""
    ranker._check_fitted()
    return ranker.posterior_, candidates, level


def told(estimator: Any, X: Any, y: Any, **rows: Any) -> Any:
    """The estimator with further rows."""
    x, found = estimator._new_inputs(X), copy(estimator)
    check_consistent_length(x, y)
    if isinstance(estimator, GaussianProcessClassifier):
        found._finish(_classes_told(estimator, x, column_or_1d(y), rows))
    else:
        y = estimator._as_learned(y)
        core = _core_told(estimator, estimator._core, x, y, rows)
        if estimator._named(Gaussian):
            check_factor(core)
        which = np.append(estimator._rows, len(estimator._core.rows[0]) + np.arange(len(x)))
        found._finish(core, np.append(estimator.X_train_, x, axis=0), np.append(estimator.y_train_, y, axis=0), which)
    found._warn()
    return found


def _classes_told(estimator: Any, x: np.ndarray, y: np.ndarray, rows: dict[str, Any]) -> list[FittedCore]:
    """The models of a classifier with further rows; the models of pairs of classes with the rows of these."""
    codes(y, estimator.classes_)  # raises for an unknown label
    found, weights = estimator._cores(), row_weights(rows["weights"], len(x))
    if estimator._jointly():
        raise ValueError("tell is not supported with multi_class='joint': use multi_class='one_vs_rest', or fit(X, y) "
                         "with all rows")  # fmt: skip
    for i, (some, positive) in enumerate(two_class_problems(y, estimator.classes_, estimator.multi_class)):
        if some.any():
            signs, own = np.where(positive[some], 1.0, -1.0), {**rows, "weights": weights[some]}
            found[i] = _core_told(estimator, found[i], x[some], signs, own)
    return found


def pairs_told(ranker: Any, X: Any, pairs: Any, **rows: Any) -> Any:
    """A ranker with further comparisons: pairs of positions in X, the winner first."""
    if isinstance(ranker._core.fitted.model.likelihood, Ties):
        raise ValueError(
            "tell does not support comparisons that may end in a tie: fit(X, pairs, ties=...) with all of them"
        )
    items, found = ranker._new_inputs(X), copy(ranker)
    pairs = checked(pairs, len(items))
    x = compared(items, pairs)
    weights = informative(ranker._core.fitted.model, x, row_weights(rows["weights"], len(x)))
    found._core = _core_told(ranker, ranker._core, x, np.ones(len(x)), {**rows, "weights": weights})
    found.X_train_ = np.append(ranker.X_train_, items, axis=0)
    found.pairs_ = np.append(ranker.pairs_, len(ranker.X_train_) + pairs, axis=0)
    found.log_marginal_likelihood_value_ = np.float64(found._core.fitted.objective_value)
    found._warn()
    return found


def _core_told(estimator: Any, core: FittedCore, x: np.ndarray, y: np.ndarray, rows: dict[str, Any]) -> FittedCore:
    """A learned model with further rows at the same hyperparameters; virtual rows of a constraint are placed again."""
    old, before, theta = core.landscape, core.fitted.solution, core.fitted.theta
    if core.mixture is not None:
        chosen = "kernel='auto'" if isinstance(core.mixture, Stack) else "hyperparameters='integrated'"
        raise ValueError(f"tell adds rows to one model at its hyperparameters, and {chosen} averages several: use a "
                         f"different kernel or hyperparameters='point', or fit(X, y) with all rows")  # fmt: skip
    if before.posterior is not None:
        raise ValueError("tell needs all rows in one process, but the rows behind this model were divided or "
                         "streamed: fit(X, y) with all rows")  # fmt: skip
    X, y, more = with_rows(old.task, x, y, **rows)
    task = prepare(core.fitted.model, X, y, before.method, **more)  # chooses neighbours under the learned kernel
    model = replace(old.model, process=task.model.process)
    landscape = replace(old, model=model, task=task._replace(model=model), method=before.method, compiled=False)
    landscape.warmed(theta, Natural(*(more_columns(part, len(x)) for part in (before.sites.nu, before.sites.tau))))
    point = landscape.at(theta)
    ending = core.fitted.status if point.usable else replace(core.fitted.status, reason="inference-failed")
    found = replace(core, landscape=landscape, fitted=fitted_at(landscape, point, core.fitted.trace, ending))
    return with_shape(estimator, found, replace(estimator._fit_options(old.max_sweeps), optimizer=None))


ESTIMATORS |= {
    GaussianProcessRegressor: InOwnTerms(asked, told),
    GaussianProcessClassifier: InOwnTerms(asked, told),
    GaussianProcessRanker: InOwnTerms(pairs_asked, pairs_told),
}
