"""What is not known of a prior mean whose parameters were learned: generalised least squares, the sites fixed.

With the derivative H of the mean and pseudo-data of covariance K + S⁻¹ at the training inputs, a flat prior gives the
parameters β the covariance C = (Hᵀ (K + S⁻¹)⁻¹ H)⁻¹, and the posterior of f at x moves with β by
h(x) − k(x)ᵀ (K + S⁻¹)⁻¹ H (universal kriging).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop import means
from quantprop.inference.prediction import padded_prior, padded_sites, predictor_of, shares
from quantprop.model import Model
from quantprop.parameters import declared, is_parameter
from quantprop.priors.base import Predictor
from quantprop.runtime.programs import program

MEAN = "mean"
Solution = Any  # of `solution`, which imports `terms`

_alpha = program(
    lambda prior, share, sites, signed: prior.for_shares(share).condition(sites, signed).marginals.alpha,
    static_argnames="signed",
)


class LearnedMean(NamedTuple):
    """The p learned parameters of a prior mean, which is linear in them."""

    model: Model
    names: list[str]
    values: Float[np.ndarray, " p"]
    root: Float[np.ndarray, "p p"]  # their covariance is root · rootᵀ
    predictors: list[Predictor]  # of f under a mean greater by each column of the design

    def moves(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n p"]:
        """How the mean at inputs moves with each standardised parameter."""
        return _design(self.model, x)[2] @ self.root


def learned_mean(solution: Solution) -> LearnedMean:
    """Of a solution; with p = 0 where the mean was not learned, or is no number and no `means.Linear`."""
    model, x, n = solution.model, solution.X, len(solution.X)
    names, values, h = _design(model, x)
    if not names:
        return LearnedMean(model, names, values, np.zeros((0, 0)), [])
    if solution.posterior is not None:
        raise ValueError(
            "standard errors of a mean need all rows in one place, and these were divided among devices: infer once "
            "more on one device, or in one process, from fitted.model"
        )
    share, sites = shares(solution.method, solution.weights, n), padded_sites(solution.sites)
    signed = bool((sites.tau < 0).any())
    greater = [replace(model, mean=partial(_greater, model, i)) for i in range(h.shape[1])]
    alpha = [np.asarray(_alpha(padded_prior(each, x), share, sites, signed=signed))[:n] for each in (model, *greater)]
    information = h.T @ (alpha[0] - np.array(alpha[1:])).T  # α = (K + S⁻¹)⁻¹ (S⁻¹ν − m) is linear in m
    root = np.linalg.inv(np.linalg.cholesky(0.5 * (information + information.T))).T
    predictors = [predictor_of(each, solution.method, x, solution.sites, solution.weights) for each in greater]
    return LearnedMean(model, names, values, root, predictors)


def _greater(model: Model, column: int, x: np.ndarray) -> np.ndarray:
    """The mean of a model and a column of its design."""
    return model.prior_mean(x) + _design(model, x)[2][:, column]


def _design(model: Model, x: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names and values of the parameters of a linear or constant mean that were learned, and what each multiplies."""
    mean = model.mean
    if is_parameter(mean) and not mean.fixed:
        return [MEAN], np.atleast_1d(mean.value), np.ones((len(x), 1))
    if not isinstance(mean, means.Linear):
        return [], np.zeros(0), np.zeros((len(x), 0))
    parts: Any = declared(mean)
    columns = {"intercept": np.ones((len(x), 1)), "coefficients": mean.of(x)}
    free = [name for name in columns if not getattr(parts, name).fixed]
    names = [
        f"{MEAN}.{name}" + f"[{i}]" * (name == "coefficients") for name in free for i in range(columns[name].shape[1])
    ]
    values = np.concatenate([np.zeros(0), *(np.ravel(getattr(parts, name).value) for name in free)])
    return names, values, np.concatenate([np.zeros((len(x), 0)), *(columns[name] for name in free)], axis=1)
