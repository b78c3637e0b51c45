"""Likelihoods with scipy's distributions of y given f, and Gaussians of f over which these are averaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from scipy import stats
from scipy.special import expit

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.inference.predictive import Predictive

MEANS, VARIANCES = np.array([0.3, -0.6, 1.0, 0.5]), np.array([0.3, 0.5, 0.2, 0.05])
EXPOSURE = {"exposure": np.array([1.0, 2.5, 0.7, 4.0])}
TRIALS = {"trials": np.array([1.0, 3.0, 10.0, 40.0])}
RATES = {"exp": np.exp, "square": np.square, "softplus": lambda f: np.logaddexp(0.0, f)}
PROBABILITIES = {"probit": stats.norm.cdf, "logit": expit}
SIGNS, COUNTS = np.array([-1.0, 1.0]), np.arange(64.0)
REALS, POSITIVE, UNIT = (-2.0, 3.0), (0.2, 4.0), (0.1, 0.9)
CUTS = np.array([-1.0, 0.0, 1.5])


class Table:
    """A discrete distribution for every f: probabilities of the values 0, 1, ... (or those given)."""

    def __init__(self, *columns: np.ndarray, values: np.ndarray | None = None) -> None:
        self.p = np.stack(columns)
        self.values = np.arange(len(columns)) if values is None else values

    def pmf(self, y: float) -> np.ndarray:
        return self.p[self.values == y].sum(axis=0)

    def cdf(self, y: float) -> np.ndarray:
        return self.p[self.values <= y].sum(axis=0)

    def mean(self) -> np.ndarray:
        return self.values @ self.p

    def var(self) -> np.ndarray:
        return self.values**2 @ self.p - self.mean() ** 2


def signs(p: np.ndarray) -> Table:
    return Table(1 - p, p, values=SIGNS)


def ordinal(f: np.ndarray) -> Table:
    edges = np.array([-np.inf, *CUTS, np.inf])
    return Table(*np.diff(stats.norm.cdf(edges[:, None] - f), axis=0))


class Inflated:
    """A distribution of counts that is 0 with probability 0.2 whatever f is."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def pmf(self, y: float) -> np.ndarray:
        return 0.2 * (y == 0) + 0.8 * self.counts.pmf(y)

    def cdf(self, y: float) -> np.ndarray:
        return 0.2 * (y >= 0) + 0.8 * self.counts.cdf(y)

    def mean(self) -> np.ndarray:
        return 0.8 * self.counts.mean()

    def var(self) -> np.ndarray:
        return 0.8 * (self.counts.var() + self.counts.mean() ** 2) - self.mean() ** 2


class WarpedNormal:
    """y with y + 0.8 tanh(2y + 0.8) + 0.3 tanh(y/2 − 0.45) ~ N(f, 0.49/exposure); moments by panels in y."""

    def __init__(self, f: Any, exposure: float = 1.0) -> None:
        self.f, self.exposure = f, exposure

    def _normal(self) -> Any:
        return stats.norm(self.f, 0.7 / np.sqrt(self.exposure))

    def warp(self, y: Any) -> Any:
        return y + 0.8 * np.tanh(2.0 * y + 0.8) + 0.3 * np.tanh(0.5 * y - 0.45)

    def cdf(self, y: float) -> np.ndarray:
        return self._normal().cdf(self.warp(y))

    def pdf(self, y: Any) -> np.ndarray:
        slope = 1.0 + 1.6 / np.cosh(2.0 * y + 0.8) ** 2 + 0.15 / np.cosh(0.5 * y - 0.45) ** 2
        return self._normal().pdf(self.warp(y)) * slope

    def _moment(self, power: int) -> np.ndarray:
        x, w = np.polynomial.legendre.leggauss(16)
        ends = np.linspace(-20.0, 20.0, 161)
        half = 0.5 * np.diff(ends)[:, None]
        y, weight = (ends[:-1, None] + half * (1.0 + x)).ravel(), (half * w).ravel()
        return np.array([weight @ (y**power * WarpedNormal(f, self.exposure).pdf(y)) for f in self.f])

    def mean(self) -> np.ndarray:
        return self._moment(1)

    def var(self) -> np.ndarray:
        return self._moment(2) - self._moment(1) ** 2


@dataclass(frozen=True)
class Case:
    """A likelihood, scipy's distribution of y given f (and one scale), and the y to look at.

    `y` is an array of all values of a discrete y (the first 64 counts), or the two ends of a range.
    """

    likelihood: likelihoods.Likelihood
    conditional: Callable
    y: Any
    scales: dict = field(default_factory=dict)

    @property
    def discrete(self) -> bool:
        return isinstance(self.y, np.ndarray)

    def some_y(self) -> np.ndarray:
        """Four values of y, one for each latent Gaussian."""
        return (
            self.y[[0, 1, 1, min(5, len(self.y) - 1)]] if self.discrete else np.quantile(self.y, [0.2, 0.4, 0.5, 0.8])
        )

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """log p at the same y for every latent Gaussian: 4 rows."""
        scales = {"exposure": np.ones(4), "trials": np.ones(4)} | self.scales
        repeated = {key: np.repeat(scale, 64) for key, scale in scales.items()}
        at = np.tile(np.resize(y, 64), 4)
        if self.likelihood.columns == 2:
            at = np.stack([at, at], axis=1)
        latent = Normal(np.repeat(MEANS, 64), np.repeat(VARIANCES, 64))
        predictive = Predictive(values(self.likelihood), latent, **repeated)
        if "trials" in self.scales:  # no more successes than trials
            possible = at <= repeated["trials"]
            return np.where(possible, predictive.log_prob(np.where(possible, at, 0.0)), -np.inf).reshape(4, 64)
        return predictive.log_prob(at).reshape(4, 64)[:, : len(y)]

    def predictive(self) -> Predictive:
        scales = {"exposure": np.ones(4), "trials": np.ones(4)} | self.scales
        return Predictive(values(self.likelihood), Normal(MEANS, VARIANCES), **scales)


def rate_cases() -> dict[str, Case]:
    found = {}
    for link, g in RATES.items():
        found[f"poisson, {link}"] = Case(
            likelihoods.Poisson(link), lambda f, e, g=g: stats.poisson(e * g(f)), COUNTS, EXPOSURE
        )
        found[f"negative binomial, {link}"] = Case(
            likelihoods.NegativeBinomial(0.4, link),
            lambda f, e, g=g: stats.nbinom(1 / 0.4, 1 / (1 + 0.4 * e * g(f))),
            COUNTS,
            EXPOSURE,
        )
        found[f"zero-inflated poisson, {link}"] = Case(
            likelihoods.ZeroInflatedPoisson(0.2, link),
            lambda f, e, g=g: Inflated(stats.poisson(e * g(f))),
            COUNTS,
            EXPOSURE,
        )
        found[f"zero-inflated negative binomial, {link}"] = Case(
            likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.4, link),
            lambda f, e, g=g: Inflated(stats.nbinom(1 / 0.4, 1 / (1 + 0.4 * e * g(f)))),
            COUNTS,
            EXPOSURE,
        )
        found[f"gamma, {link}"] = Case(
            likelihoods.Gamma(1.7, link), lambda f, _, g=g: stats.gamma(1.7, scale=g(f) / 1.7), POSITIVE
        )
    return found


def probability_cases() -> dict[str, Case]:
    found = {}
    for link, p in PROBABILITIES.items():
        found[f"binomial, {link}"] = Case(
            likelihoods.Binomial(link), lambda f, n, p=p: stats.binom(n, p(f)), COUNTS, TRIALS
        )
        found[f"beta, {link}"] = Case(
            likelihoods.Beta(6.0, link), lambda f, _, p=p: stats.beta(6 * p(f), 6 * p(-f)), UNIT
        )
    return found


CASES = {
    "gaussian": Case(likelihoods.Gaussian(0.7), lambda f, e: stats.norm(f, 0.7 / np.sqrt(e)), REALS, EXPOSURE),
    "probit": Case(likelihoods.Probit(), lambda f, _: signs(stats.norm.cdf(f)), SIGNS),
    "logit": Case(likelihoods.Logit(), lambda f, _: signs(expit(f)), SIGNS),
    "heaviside": Case(likelihoods.Heaviside(0.05), lambda f, _: signs(np.where(f > 0, 0.95, 0.05)), SIGNS),
    "student-t": Case(likelihoods.StudentT(4.0, 0.7), lambda f, _: stats.t(4.0, f, 0.7), REALS),
    "double exponential": Case(likelihoods.DoubleExponential(0.7), lambda f, _: stats.laplace(f, 0.7), REALS),
    **rate_cases(),
    **probability_cases(),
    "ordinal": Case(likelihoods.Ordinal(CUTS), lambda f, _: ordinal(f), np.arange(4.0)),
    "censored": Case(likelihoods.Censored(0.7), lambda f, _: stats.norm(f, 0.7), REALS),
    "weibull": Case(likelihoods.Weibull(0.4), lambda f, _: stats.weibull_min(2.5, scale=np.exp(f)), POSITIVE),
    "log-logistic": Case(likelihoods.LogLogistic(0.4), lambda f, _: stats.fisk(2.5, scale=np.exp(f)), POSITIVE),
    "warped": Case(likelihoods.Warped(0.7, [0.8, 0.3], [0.5, 2.0], [-0.4, 0.9]), WarpedNormal, REALS, EXPOSURE),
    "custom": Case(
        likelihoods.Custom(
            lambda y, f: -0.5 * ((y - jnp.sin(f)) / 0.7) ** 2 - jnp.log(0.7 * jnp.sqrt(2.0 * jnp.pi)),
            mean=jnp.sin,
            variance=lambda f: 0.49 + 0.0 * f,
            cdf=lambda y, f: ndtr((y - jnp.sin(f)) / 0.7),
            draw=lambda rng, f: rng.normal(np.sin(f), 0.7),
        ),
        lambda f, _: stats.norm(np.sin(f), 0.7),
        REALS,
    ),
}
