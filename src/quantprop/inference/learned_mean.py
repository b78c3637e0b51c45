"""A prior mean that was learned: how uncertain it is, and what that adds to predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop import means
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import declared, is_parameter
from quantprop.inference import prediction
from quantprop.model import Model
from quantprop.priors.base import Predictor
from quantprop.runtime.precision import float64

MEAN = "mean"
Solution = Any  # of `solution`, which imports this


class LearnedMean(NamedTuple):
    """The p learned parameters of a prior mean that is linear in them, by generalised least squares, the sites fixed.

    With the derivative H of the mean and pseudo-data of covariance K + S⁻¹ at the training inputs, a flat prior gives
    the parameters the covariance C = (Hᵀ (K + S⁻¹)⁻¹ H)⁻¹, and the posterior of f at x moves with them by
    h(x) − k(x)ᵀ (K + S⁻¹)⁻¹ H (universal kriging).
    """

    model: Model
    names: list[str]
    values: Float[np.ndarray, " p"]
    root: Float[np.ndarray, "p p"]  # C = root · rootᵀ
    predictors: list[Predictor]  # of f under a mean greater by each column of H

    def moves(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n p"]:
        """The change of the mean at inputs with each standardised parameter."""
        return _design(self.model, x)[2] @ self.root


def learned_mean(solution: Solution) -> LearnedMean:
    """The learned mean of a solution; p = 0 if it was not learned, or is neither a number nor a `means.Linear`."""
    model = solution.model
    names, values, h = _design(model, solution.X)
    if not names:
        return LearnedMean(model, names, values, np.zeros((0, 0)), [])
    if solution.posterior is not None:
        raise ValueError(
            "standard errors of a mean need all rows in one place, and these were divided among devices: run infer "
            "again on one device, or in one process, from fitted.model"
        )

    def greater(column: int) -> Model:
        return replace(model, mean=lambda x: model.prior_mean(x) + _design(model, x)[2][:, column])

    models = [greater(column) for column in range(len(values))]
    alpha = [prediction.alpha_of(solution, each) for each in (model, *models)]
    information = h.T @ (alpha[0] - np.array(alpha[1:])).T  # α = (K + S⁻¹)⁻¹ (S⁻¹ν − m) is linear in m
    root = np.linalg.inv(np.linalg.cholesky(0.5 * (information + information.T))).T
    return LearnedMean(model, names, values, root, [prediction.predictor_of(solution, each) for each in models])


@float64
def with_mean_uncertainty(solution: Solution, x: Float[np.ndarray, "k d"], latent: Normal) -> Normal:
    """The posterior of f at inputs with the uncertainty of a learned mean, which `latent` takes as known. All rows must
    be in one place: if they were divided among devices or streamed, the mean stays known.
    """
    if solution.posterior is not None or not (learned := solution._learned_mean).names:
        return latent
    predictors = (solution._predictor, *learned.predictors)
    known, *greater = (prediction.predicted(by, solution.model, solution.X, x, False).mean for by in predictors)
    moves = (_design(solution.model, x)[2] + np.transpose(greater) - known[:, None]) @ learned.root
    variance = latent.variance + np.sum(moves**2, axis=1)
    return Normal(latent.mean, variance, None if latent.covariance is None else latent.covariance + moves @ moves.T)


def _design(model: Model, x: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names and values of the learned parameters of a linear or constant mean, and the derivative H of the mean."""
    mean, one = model.mean, np.ones((len(x), 1))
    parts: list[Any] = [([MEAN], mean, one)] if is_parameter(mean) else []
    if isinstance(mean, means.Linear):
        own: Any = declared(mean)
        each = [f"{MEAN}.coefficients[{i}]" for i in range(np.size(own.coefficients.value))]
        parts = [([f"{MEAN}.intercept"], own.intercept, one), (each, own.coefficients, mean.of(x))]
    free = [part for part in parts if not part[1].fixed]
    values = [np.ravel(parameter.value) for _, parameter, _ in free]
    columns = [np.zeros((len(x), 0)), *(h for *_, h in free)]
    names = [name for part in free for name in part[0]]
    return names, np.concatenate([np.zeros(0), *values]), np.concatenate(columns, axis=1)
