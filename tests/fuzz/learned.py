"""Estimators that learn from adversarial data: what they predict must be numbers, or they must say why not.

A fit is a function of its number alone. Rows fill one padded size, so that fits of one pair of likelihood and method
share compiled programs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz.observations import TROUBLES, between
from fuzz.problems import FAMILIES, SHAPES, inputs

from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, likelihoods

ROWS = 32
SCALED = (
    "gaussian",
    "student-t",
    "double-exponential",
    "censored",
    "weibull",
    "log-logistic",
    "warped",
)  # y may have any unit
CLASSES = ("probit", "logit")
PAIRS = (
    ("gaussian", "ep"), ("probit", "laplace"), ("poisson, exp", "laplace"), ("student-t", "laplace"),
    ("probit", "qp"), ("logit", "ep"), ("double-exponential", "ep"), ("censored", "laplace"),
    ("negative-binomial, exp", "laplace"), ("gamma, exp", "laplace"), ("beta, probit", "laplace"),
    ("binomial, logit", "laplace"), ("ordinal", "laplace"), ("student-t", "vb"), ("poisson, exp", "vb"),
    ("double-exponential", "vb"), ("gaussian", "qp"), ("probit", "vb"), ("student-t", "qp"), ("poisson, exp", "qp"),
    ("weibull", "laplace"), ("log-logistic", "ep"), ("zero-inflated-poisson, exp", "laplace"), ("warped", "ep"),
    ("zero-inflated-negative-binomial, exp", "vb"),
)  # fmt: skip
NAMES = {
    "zero-inflated-poisson, exp": "zero-inflated-poisson",
    "zero-inflated-negative-binomial, exp": "zero-inflated-negative-binomial",
    "poisson, exp": "poisson", "negative-binomial, exp": "negative-binomial", "gamma, exp": "gamma",
    "beta, probit": "beta", "gaussian": likelihoods.Gaussian(), "binomial, logit": likelihoods.Binomial("logit"),
    "ordinal": likelihoods.Ordinal([-0.5, 0.5]),
}  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """One fit: an estimator, its data, and rows to predict; `about` names what is troublesome."""

    number: int
    about: str
    estimator: Any
    x: np.ndarray
    y: np.ndarray
    trials: dict[str, np.ndarray]
    new: np.ndarray


def fit_of(number: int, pairs: tuple[tuple[str, str], ...] = PAIRS) -> Fit:
    """The fit of a number."""
    rng = np.random.default_rng([number, 34])
    family, method = pairs[number % len(pairs)]
    n, d = int(rng.integers(3, ROWS + 1)), int(rng.choice([1, 2]))
    shape, trouble = str(rng.choice(SHAPES)), str(rng.choice(TROUBLES))
    x = inputs(rng, shape, n, d) * between(rng, 1e-6, 1e6)
    score = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    y = FAMILIES[family].draw(rng, 2.0 * np.sin(score @ rng.normal(size=d)), trouble)
    y = y * between(rng, 1e-6, 1e6) if family in SCALED else y
    trials = {"trials": y + np.round(np.exp(rng.uniform(0, 9, n)))} if FAMILIES[family].tried else {}
    kernel, mean = [(None, "zero"), (None, "constant"), ("ard", "zero")][rng.choice(3, p=[0.6, 0.2, 0.2])]
    if family in CLASSES:
        y[0], y[1] = 1.0, -1.0
        estimator = GaussianProcessClassifier(kernel, method=method, likelihood=family)
    else:
        mean = "zero" if family == "ordinal" else mean
        estimator = GaussianProcessRegressor(kernel, method=method, likelihood=NAMES.get(family, family), mean=mean)
    new = np.concatenate([x[:2], x[:1] + x.std(0) * rng.normal(size=(1, d)), 1e3 * x[:1] + 1.0])
    about = f"{family}, {method}, n={n}, d={d}, x {shape}, y {trouble}, kernel {kernel}, mean {mean}"
    return Fit(number, about, estimator, x, y, trials, new)


def faults(one: Fit) -> list[str]:
    """What is wrong with a fit: an exception, silence about what did not converge, predictions that are no numbers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            one.estimator.fit(one.x, one.y, **one.trials)
            fits = one.estimator.fitted_
            if not fits.converged:
                told = any("learning" in str(w.message) and fits.status.reason in str(w.message) for w in caught)
                return [] if told else [f"silent about {fits.status}; {fits.solution.status}"]
            return [f"{name}: {values}" for name, values in _predictions(one) if not np.isfinite(values).all()]
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]


def _predictions(one: Fit) -> list[tuple[str, np.ndarray]]:
    model, trials = one.estimator, {name: column[:1] for name, column in one.trials.items()}
    if isinstance(model, GaussianProcessClassifier):
        return [("log probabilities", model.predict_log_proba(one.new))]
    mean, deviation = model.predict(one.new, return_std=True, **trials)
    latent = model.solution_.predict(one.new)
    found = [("f", latent.mean), ("variance of f", latent.variance)]
    df = float(getattr(model.likelihood_, "df", np.inf))  # of moments that exist
    found += [("mean", mean)] if df > 1.0 else []
    # A variance of exp f beyond 1e308 is infinite, which is right.
    exponential = model.likelihood_.lattice is not None or model.likelihood_.interval == (0.0, np.inf)
    large = exponential and (latent.mean + latent.variance > 300.0).any()
    return found + ([("deviation", deviation)] if df > 2.0 and not large else [])
