"""The distribution of new y against scipy's conditional distributions, averaged over f by brute force."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import mpmath
import numpy as np
import pytest
from likelihoods.distributions import CASES, EXPOSURE, MEANS, TRIALS, VARIANCES, Case, WarpedNormal
from scipy import stats

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.inference.predictive import Predictive
from quantprop.likelihoods import Datum, moment_matched_negative_binomial

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
