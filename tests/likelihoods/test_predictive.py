"""The distribution of new y against scipy's conditional distributions, averaged over f by brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.scipy.special import ndtr
from scipy import stats
from scipy.special import expit

from quantprop import likelihoods
from quantprop.gaussian import Normal
from quantprop.likelihoods import moment_matched_negative_binomial
from quantprop.predictive import Predictive
from quantprop.project import values

MEANS, VARIANCES = np.array([0.3, -0.6, 1.0, 0.5]), np.array([0.3, 0.5, 0.2, 0.05])
EXPOSURE, TRIALS = np.array([1.0, 2.5, 0.7, 4.0]), np.array([1.0, 3.0, 10.0, 40.0])
RATES = {"exp": np.exp, "square": np.square, "softplus": lambda f: np.logaddexp(0.0, f)}
PROBABILITIES = {"probit": stats.norm.cdf, "logit": expit}
COUNTS, REALS, POSITIVE, UNIT = np.arange(64.0), (-2.0, 3.0), (0.2, 4.0), (0.1, 0.9)


@dataclass(frozen=True)
class Case:
    """A likelihood, scipy's distribution of y given (f, exposure, trials), and values of y to look at."""

    name: str
    likelihood: likelihoods.Likelihood
    conditional: Callable
    y: Any  # all values that a discrete y may have (up to 63), or two ends for a continuous one
    scales: dict = field(default_factory=dict)

    @property
    def discrete(self) -> bool:
        return isinstance(self.y, np.ndarray)

    def predictive(self, repeats: int = 1) -> Predictive:
        """Predictions at the four latent Gaussians, each repeated."""
        latent = Normal(np.repeat(MEANS, repeats), np.repeat(VARIANCES, repeats))
        scales = {"exposure": np.ones(4), "trials": np.ones(4)} | self.scales
        return Predictive(
            values(self.likelihood), latent, **{k: np.repeat(s, repeats) for k, s in scales.items()}
        )


def signs(p: np.ndarray) -> Any:
    return stats.rv_discrete(values=([-1, 1], [1 - p, p])) if np.ndim(p) == 0 else TwoPoint(p)


class TwoPoint:
    """P(1) = p, P(−1) = 1 − p, for an array of p."""

    def __init__(self, p: np.ndarray) -> None:
        self.p = p

    def pmf(self, y: float) -> np.ndarray:
        return self.p if y == 1 else 1 - self.p

    def cdf(self, y: float) -> np.ndarray:
        return np.where(y < -1, 0.0, np.where(y < 1, 1 - self.p, 1.0))

    def mean(self) -> np.ndarray:
        return 2 * self.p - 1

    def var(self) -> np.ndarray:
        return 4 * self.p * (1 - self.p)
