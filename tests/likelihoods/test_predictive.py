"""The distribution of new y against scipy's conditional distributions, averaged over f by brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.scipy.special import ndtr
from scipy import stats
from scipy.special import expit

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.inference.predictive import Predictive
from quantprop.likelihoods import Datum, moment_matched_negative_binomial

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
# Averages over f are one piece of code for all likelihoods, whose own part is compared with
# scipy in the first test. So by default one or two of each kind are run (a program takes seconds to compile).
BY_QUADRATURE = {"double exponential", "gamma, exp"}
CLOSED_FORMS = {"gaussian", "probit", "poisson, square", "ordinal"}


def cases(default: set[str]) -> pytest.MarkDecorator:
    """All cases, those outside `default` in campaigns only."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=name, marks=() if name in default else pytest.mark.campaign)
            for name, case in CASES.items()
        ],
    )


each_case = cases(BY_QUADRATURE | CLOSED_FORMS)
every_case = cases(set(CASES))  # what compiles nothing


def average(case: Case, row: int, of: Callable, kink: float = 0.0) -> float:
    """E[of(distribution of y given f)] over the row's latent Gaussian: panels of 32 nodes, cut at kinks."""
    m, sd = MEANS[row], np.sqrt(VARIANCES[row])
    ends = np.unique(np.clip([*np.linspace(m - 10 * sd, m + 10 * sd, 41), 0.0, kink], m - 10 * sd, m + 10 * sd))
    x, w = np.polynomial.legendre.leggauss(32)
    half = 0.5 * np.diff(ends)[:, None]
    f = (ends[:-1, None] + half * (1 + x)).ravel()
    weight = (half * w).ravel() * stats.norm.pdf(f, m, sd)
    scale = next(iter(case.scales.values()))[row] if case.scales else 1.0
    return float(weight @ (of(case.conditional(f, scale)) * np.ones_like(f)))


def by_brute_force(case: Case, of: Callable, y: np.ndarray) -> np.ndarray:
    """`of(distribution, y)`, averaged, for the four rows."""
    return np.array([average(case, row, lambda d, row=row: of(d, y[row]), y[row]) for row in range(4)])


@cases(set(CASES) - {"warped"})  # whose moments scipy lacks: by quadrature they take longer than all others
def test_given_f_the_distribution_is_scipys(case):
    f = np.linspace(-2.1, 2.3, 5)
    ys = case.y[:4] if case.discrete else np.linspace(*case.y, 4)
    exposure = 2.5 if "exposure" in case.likelihood.scaled_by else 1.0
    datum = Datum(np.array(0.0), np.array(exposure), np.array(3.0))
    reference = case.conditional(f, 3.0 if "trials" in case.scales else exposure)
    with jax.enable_x64(True):
        mean, variance = (
            jax.vmap(partial(method, datum))(f) for method in (case.likelihood.mean, case.likelihood.variance)
        )
        np.testing.assert_allclose(mean, reference.mean() * np.ones_like(f), rtol=1e-12)
        np.testing.assert_allclose(variance, reference.var() * np.ones_like(f), rtol=1e-12)
        for y in (*ys, ys[1] + 0.3):
            cdf = case.likelihood.cdf(datum._replace(y=y), f)
            np.testing.assert_allclose(cdf, reference.cdf(y) * np.ones_like(f), rtol=1e-11)


@each_case
def test_log_prob_is_the_average_of_the_conditional_one(case):
    y = case.some_y()
    density = (lambda d, at: d.pmf(at)) if case.discrete else (lambda d, at: d.pdf(at))
    np.testing.assert_allclose(np.diag(case.log_prob(y)), np.log(by_brute_force(case, density, y)), atol=1e-8)


@every_case
def test_cdf_is_the_average_of_the_conditional_one(case):
    y = case.some_y()
    np.testing.assert_allclose(case.predictive().cdf(y), by_brute_force(case, lambda d, at: d.cdf(at), y), atol=1e-10)


@each_case
def test_probabilities_add_up(case):
    predictive = case.predictive()
    if case.discrete:
        total, upper = np.exp(case.log_prob(case.y)).sum(axis=1), case.y[-1]
        lower = 0.0
    else:
        x, w = np.polynomial.legendre.leggauss(64)
        half = 0.5 * (case.y[1] - case.y[0])
        total = np.exp(case.log_prob(case.y[0] + half * (1 + x))) @ (half * w)
        lower, upper = predictive.cdf(case.y[0]), case.y[1]
    np.testing.assert_allclose(lower + total + (1 - predictive.cdf(upper)), 1.0, atol=1e-8)


@each_case
def test_moments_are_those_of_the_mixture(case):
    predictive = case.predictive()
    mean = np.array([average(case, row, lambda d: d.mean()) for row in range(4)])
    second = np.array([average(case, row, lambda d: d.var() + d.mean() ** 2) for row in range(4)])
    np.testing.assert_allclose(predictive.mean, mean, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(predictive.variance, second - mean**2, rtol=1e-8)


@every_case
def test_quantile_inverts_the_cdf(case):
    predictive = case.predictive()
    low, high = predictive.quantile(0.1), predictive.quantile(0.93)
    for level, y in ((0.1, low), (0.93, high)):
        if case.discrete:
            step = 2.0 if case.y[0] < 0 else 1.0
            assert (predictive.cdf(y) >= level).all()
            assert (predictive.cdf(y - step) < level).all()
        else:
            np.testing.assert_allclose(predictive.cdf(y), level, atol=1e-10)
    assert (low <= high).all()


@cases(CLOSED_FORMS | BY_QUADRATURE | {"poisson, exp", "negative binomial, exp", "gamma, square"})
def test_samples_have_the_mean(case):
    predictive, n = case.predictive(), 4000
    draws = predictive.sample(n, seed=3)
    assert draws.shape == (n, 4)
    assert (np.abs(draws.mean(axis=0) - predictive.mean) < 5 * np.sqrt(predictive.variance / n)).all()


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("gaussian", (-np.inf, np.inf)),
        ("probit", (-1, 1)),
        ("ordinal", (0, 3)),
        ("gamma, exp", (0, np.inf)),
        ("poisson, exp", (0, np.inf)),
        ("binomial, probit", (0, TRIALS["trials"])),
        ("beta, logit", (0, 1)),
    ],
)
def test_extreme_quantiles_are_the_ends_of_the_support(name, ends):
    predictive = CASES[name].predictive()
    for level, end in zip((0.0, 1.0), ends, strict=True):
        np.testing.assert_array_equal(predictive.quantile(level), np.broadcast_to(end, 4))


@pytest.mark.parametrize("name", ["binomial, logit", "ordinal", "gamma, exp"])
def test_cdf_outside_the_support(name):
    predictive = CASES[name].predictive()
    np.testing.assert_array_equal(predictive.cdf(-0.5), 0.0)
    np.testing.assert_allclose(predictive.cdf(1e6), 1.0, rtol=1e-12)


def test_censored_rows_have_the_probability_of_their_interval():
    predictive = CASES["censored"].predictive()
    rows = np.array([[-0.5, 1.0], [-np.inf, 0.2], [0.4, np.inf], [0.3, 0.3]])
    noise = stats.norm(MEANS, np.sqrt(VARIANCES + 0.49))
    expected = np.log(noise.cdf(rows[:, 1]) - noise.cdf(rows[:, 0]) + (rows[:, 0] == rows[:, 1]) * noise.pdf(0.3))
    np.testing.assert_allclose(predictive.log_prob(rows), expected, rtol=1e-10)


def test_moments_of_log_logistic_times_that_do_not_exist():
    latent, ones = Normal(np.array([0.3, 0.3]), np.array([0.2, 0.0])), np.ones(2)
    broad, broader = (Predictive(values(likelihoods.LogLogistic(s)), latent, ones, ones) for s in (0.7, 1.2))
    mean = np.exp([0.4, 0.3]) * 0.7 * np.pi / np.sin(0.7 * np.pi)
    np.testing.assert_allclose(broad.mean, mean, rtol=1e-12)
    np.testing.assert_array_equal([broad.variance, broader.mean, broader.variance], np.full((3, 2), np.inf))


def test_quantiles_of_a_warped_y_are_those_of_its_transform():
    predictive = CASES["warped"].predictive()
    for q in (1e-6, 0.05, 0.5, 0.95, 1.0 - 1e-6):
        y = predictive.quantile(q)
        warped = WarpedNormal(0.0).warp(y)
        np.testing.assert_allclose(
            warped, stats.norm.ppf(q, MEANS, np.sqrt(VARIANCES + 0.49 / EXPOSURE["exposure"])), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("y", [0, 1, 7, 150])
def test_square_link_poisson_has_the_hypergeometric_probability(y):
    predictive = CASES["poisson, square"].predictive()
    for row, got in enumerate(predictive.log_prob(y)):
        e, m, v = (mpmath.mpf(x[row]) for x in (EXPOSURE["exposure"], MEANS, VARIANCES))
        h = m**2 / (1 + 2 * e * v)
        z = (2 * e * v / (1 + 2 * e * v)) ** y / mpmath.sqrt(1 + 2 * e * v) * mpmath.gamma(y + mpmath.mpf("0.5"))
        z *= mpmath.exp(-e * h) * mpmath.hyp1f1(-y, 0.5, -h / (2 * v)) / (mpmath.sqrt(mpmath.pi) * mpmath.factorial(y))
        assert got == pytest.approx(float(mpmath.log(z)), rel=1e-12, abs=1e-12)


def test_moment_matched_forecast_is_the_papers():
    forecast = moment_matched_negative_binomial(Normal(MEANS, VARIANCES), EXPOSURE["exposure"])
    square = MEANS**2 + VARIANCES
    spread = 2 * VARIANCES * (2 * MEANS**2 + VARIANCES)
    k, c = square**2 / spread, EXPOSURE["exposure"] * spread / square
    paper = stats.nbinom(k, 1 / (1 + c))
    np.testing.assert_allclose(forecast.mean, paper.mean(), rtol=1e-13)
    np.testing.assert_allclose(forecast.variance, paper.var(), rtol=1e-13)
    np.testing.assert_array_equal(forecast.mode, np.where(k > 1, np.floor(c * (k - 1)), 0))
    for y in (0, 2, 30):
        np.testing.assert_allclose(forecast.log_prob(y), paper.logpmf(y), rtol=1e-11)
    exact = CASES["poisson, square"].predictive()
    np.testing.assert_allclose(forecast.mean, exact.mean, rtol=1e-13)
    np.testing.assert_allclose(forecast.variance, exact.variance, rtol=1e-13)


@pytest.mark.parametrize("what", ["mean", "cdf", "draw"])
def test_custom_says_what_it_needs_for_predictions(what):
    bare = likelihoods.Custom(lambda y, f: -0.5 * (y - f) ** 2)
    predictive = Predictive(bare, Normal(MEANS, VARIANCES), np.ones(4), np.ones(4))
    ask = {
        "mean": lambda: predictive.mean,
        "cdf": lambda: predictive.cdf(0.0),
        "draw": lambda: predictive.sample(2),
    }
    with pytest.raises(ValueError, match=f"pass {what}=, a function of"):
        ask[what]()
