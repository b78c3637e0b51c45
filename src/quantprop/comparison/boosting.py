"""Gradient boosting by scikit-learn's histograms, with its own settings: a baseline with a distribution of y."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from quantprop import likelihoods
from quantprop.comparison.scores import DRAWS_PER_ROW, ClassForecast, Forecast, NumberForecast
from quantprop.tables import Problem

MAX_CATEGORIES = 255  # that histograms take
INNER_FOLDS = 5
DEGREES_OF_FREEDOM = (2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 1000.0)
ERRORS = "learned from cross-validated errors at training rows"


class Grades(NamedTuple):
    """Distributions over 0, 1, ... by their probabilities, with the methods of those of SciPy."""

    p: Float[np.ndarray, "n k"]

    def mean(self) -> Float[np.ndarray, " n"]:
        return self.p @ np.arange(self.p.shape[1])

    def logpmf(self, y: np.ndarray) -> Float[np.ndarray, " n"]:
        return _log(self.p[np.arange(len(self.p)), y.astype(int)])

    def cdf(self, y: np.ndarray) -> Float[np.ndarray, " n"]:
        below = np.pad(np.cumsum(self.p, axis=1), ((0, 0), (1, 0)))
        return below[np.arange(len(self.p)), y.astype(int) + 1]

    def rvs(self, size: tuple[int, int], random_state: np.random.Generator) -> np.ndarray:
        return np.sum(random_state.random((*size, 1)) > np.cumsum(self.p, axis=1)[:, :-1], axis=-1)


def described(likelihood: str) -> str:
    """The loss and the distribution of y, where the models have this likelihood."""
    if likelihood in likelihoods.names("classes", "ordered"):
        return "log loss and the probabilities of classes"
    if likelihood in likelihoods.names("successes"):
        return "log loss of successes and binomial probabilities"
    if likelihood in likelihoods.names("counts"):
        return "Poisson loss and Poisson probabilities"
    if likelihood == "gamma":
        return f"gamma loss and a gamma density whose shape is {ERRORS}"
    return f"squared loss and a density of errors, Student's t, that is {ERRORS}"


def forecast(problem: Problem, train: np.ndarray, test: np.ndarray) -> Forecast:
    import sklearn.ensemble  # noqa: F401  # whose threads can be limited once it is there

    target = problem.target
    if "weights" in target.rows:
        train = train[target.rows["weights"][train] > 0]
    with threadpool_limits(limits=1, user_api="openmp"):  # two on busy cores take thirty times as long as one
        if target.classes:
            labels, codes = np.unique(target.y, return_inverse=True)
            return ClassForecast(_log(_probabilities(problem, train, codes, test, len(labels))), codes[test])
        return _scored(_distribution(problem, train, test), target.y[test], int(test[0]))


def _distribution(problem: Problem, train: np.ndarray, test: np.ndarray) -> Any:
    from scipy import stats

    y, rows, likelihood, x = problem.target.y, problem.target.rows, problem.target.likelihood, problem.raw[test]
    if likelihood in likelihoods.names("ordered"):
        return Grades(_probabilities(problem, train, y.astype(int), test, len(problem.target.labels)))
    if likelihood in likelihoods.names("successes"):
        trials, labels = rows["trials"], np.repeat([1, 0], len(train))
        numbers = np.concatenate([y[train], trials[train] - y[train]])
        model = _learned(problem, "log_loss", np.tile(train, 2), labels, numbers)
        return stats.binom(trials[test].astype(int), model.predict_proba(x)[:, 1])
    if likelihood in likelihoods.names("counts"):
        exposure = rows.get("exposure", np.ones(len(y)))
        rates = _learned(problem, "poisson", train, y[train] / exposure[train], exposure[train])
        return stats.poisson(rates.predict(x) * exposure[test])
    loss = "gamma" if likelihood == "gamma" else "squared_error"
    mean, left_out = _learned(problem, loss, train, y[train]).predict(x), _left_out(problem, loss, train)
    if loss == "gamma":
        shape, _, scale = stats.gamma.fit(y[train] / left_out, floc=0.0)
        return stats.gamma(shape, scale=scale * mean)
    errors = y[train] - left_out
    fits = [stats.t.fit(errors, fdf=freedom, floc=0.0) for freedom in DEGREES_OF_FREEDOM]
    freedom, _, scale = max(fits, key=lambda fit: float(stats.t.logpdf(errors, *fit).sum()))
    return stats.t(freedom, mean, scale)


def _learned(problem: Problem, loss: str, rows: np.ndarray, y: np.ndarray, weights: Any = 1.0) -> Any:
    """A model of some rows and their y; `weights` multiply those of the table."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    columns = problem.encoding.columns
    coded = [column.treatment == "coded" and len(column.levels) <= MAX_CATEGORIES for column in columns]
    settings: dict[str, Any] = {"random_state": 0, "categorical_features": np.flatnonzero(coded)}
    of_labels = loss == "log_loss"
    model = HistGradientBoostingClassifier(**settings) if of_labels else HistGradientBoostingRegressor(loss, **settings)
    weights = weights * problem.target.rows.get("weights", np.ones(len(problem.raw)))[rows]
    return model.fit(problem.raw[rows], y, sample_weight=weights)


def _probabilities(
    problem: Problem, train: np.ndarray, codes: np.ndarray, test: np.ndarray, count: int
) -> Float[np.ndarray, "k codes"]:
    """Probabilities of the codes 0, ..., count − 1; 0 of one that no training row has."""
    model, p = _learned(problem, "log_loss", train, codes[train]), np.zeros((len(test), count))
    p[:, model.classes_] = model.predict_proba(problem.raw[test])
    return p


def _left_out(problem: Problem, loss: str, rows: np.ndarray) -> Float[np.ndarray, " n"]:
    """Each of some rows as predicted by a model of others of them."""
    part, found = np.random.default_rng(0).permutation(len(rows)) % INNER_FOLDS, np.empty(len(rows))
    for k in range(INNER_FOLDS):
        others = rows[part != k]
        found[part == k] = _learned(problem, loss, others, problem.target.y[others]).predict(
            problem.raw[rows[part == k]]
        )
    return found


def _log(p: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(p)


def _scored(of: Any, y: np.ndarray, seed: int) -> NumberForecast:
    rng = np.random.default_rng(seed)
    if hasattr(of, "logpmf"):
        drawn = of.rvs(size=(DRAWS_PER_ROW, len(y)), random_state=rng)
        pit = [np.stack([of.cdf(each - 1.0), of.cdf(each)], axis=1) for each in (y, *drawn)]
        return NumberForecast(of.mean(), of.logpmf(y), y, pit[0], np.stack(pit[1:], axis=1))
    at, uniform = of.cdf(y), np.repeat(rng.random((len(y), DRAWS_PER_ROW, 1)), 2, axis=2)
    return NumberForecast(of.mean(), of.logpdf(y), y, np.stack([at, at], axis=1), uniform)
