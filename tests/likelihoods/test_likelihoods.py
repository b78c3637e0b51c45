"""Every likelihood by itself: log p(y | f), its support, and arguments that are refused."""

from __future__ import annotations

import jax
import mpmath
import numpy as np
import pytest
from likelihoods.rows import RATES, TIMES, at, log_prob
from scipy import stats
from scipy.special import comb, expit

from quantprop import likelihoods, project

F = np.linspace(-5.2, 4.7, 12)
PROBIT, LOGIT = stats.norm.cdf, expit


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def binomial(y: float, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """log P(y successes in 10); scipy takes p only, and so loses small q."""
    return np.log(comb(10, y)) + y * np.log(p) + (10 - y) * np.log(q)


SCIPY = {
    "gaussian": (likelihoods.Gaussian(0.7), at(0.3), lambda f: stats.norm.logpdf(0.3, f, 0.7)),
    "probit": (likelihoods.Probit(), at(-1), lambda f: stats.norm.logcdf(-f)),
    "logit": (likelihoods.Logit(), at(1), lambda f: -np.logaddexp(0, -f)),
    "heaviside": (likelihoods.Heaviside(0.1), at(1), lambda f: np.log(np.where(f > 0, 0.9, 0.1))),
    "student-t": (likelihoods.StudentT(3.0, 0.5), at(0.3), lambda f: stats.t.logpdf(0.3, 3.0, f, 0.5)),
    "double exponential": (
        likelihoods.DoubleExponential(0.5),
        at(0.3),
        lambda f: stats.laplace.logpdf(0.3, f, 0.5),
    ),
    "ordinal, first": (likelihoods.Ordinal([-1.0, 0.4]), at(0), lambda f: stats.norm.logcdf(-1.0 - f)),
    "ordinal, middle": (
        likelihoods.Ordinal([-1.0, 0.4]),
        at(1),
        lambda f: np.log(np.abs(stats.norm.sf(np.abs(f + 0.3) - 0.7) - stats.norm.sf(np.abs(f + 0.3) + 0.7))),
    ),
    "censored, observed": (
        likelihoods.Censored(0.5),
        at([0.3, 0.3]),
        lambda f: stats.norm.logpdf(0.3, f, 0.5),
    ),
    "censored, below": (
        likelihoods.Censored(0.5),
        at([-np.inf, 0.3]),
        lambda f: stats.norm.logcdf(0.3, f, 0.5),
    ),
    "censored, above": (
        likelihoods.Censored(0.5),
        at([0.3, np.inf]),
        lambda f: stats.norm.logsf(0.3, f, 0.5),
    ),
}


def survival(law, row):
    """log p of a row of survival times from scipy's law given f; between two ends from the tail that is smaller."""
    low, high = row

    def log_p(f):
        given = law(f)
        if low == high:
            return given.logpdf(low)
        if np.isinf(high) or low == 0.0:
            return given.logsf(low) if np.isinf(high) else given.logcdf(high)
        died, outlived = given.cdf(high) - given.cdf(low), given.sf(low) - given.sf(high)
        return np.log(np.where(given.sf(low) < 0.5, outlived, died))

    return log_p


for row_name, row in TIMES.items():
    SCIPY[f"weibull, {row_name}"] = (
        likelihoods.Weibull(0.8), at(row),
        survival(lambda f: stats.weibull_min(1.25, scale=np.exp(f)), row),
    )  # fmt: skip
    SCIPY[f"log-logistic, {row_name}"] = (
        likelihoods.LogLogistic(0.8), at(row), survival(lambda f: stats.fisk(1.25, scale=np.exp(f)), row),
    )  # fmt: skip
SCIPY["warped"] = (
    likelihoods.Warped(0.5, [0.8, 0.3], [0.5, 2.0], [-0.4, 0.9]),
    at(0.3),
    lambda f: (
        stats.norm.logpdf(0.3 + 0.8 * np.tanh(1.4) + 0.3 * np.tanh(-0.3), f, 0.5)
        + np.log(1.0 + 1.6 / np.cosh(1.4) ** 2 + 0.15 / np.cosh(0.3) ** 2)
    ),
)
for link, g in RATES.items():
    for y in (0.0, 3.0, 150.0):
        SCIPY[f"zero-inflated poisson, {link}, {y:g}"] = (
            likelihoods.ZeroInflatedPoisson(0.2, link),
            at(y, exposure=2.5),
            lambda f, g=g, y=y: np.logaddexp(
                np.log(0.2) if y == 0 else -np.inf, np.log(0.8) + stats.poisson.logpmf(y, 2.5 * g(f))
            ),
        )
        SCIPY[f"zero-inflated negative binomial, {link}, {y:g}"] = (
            likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.05, link),
            at(y, exposure=2.5),
            lambda f, g=g, y=y: np.logaddexp(
                np.log(0.2) if y == 0 else -np.inf,
                np.log(0.8) + stats.nbinom.logpmf(y, 20, 20 / (20 + 2.5 * g(f))),
            ),
        )
        SCIPY[f"poisson, {link}, {y:g}"] = (
            likelihoods.Poisson(link),
            at(y, exposure=2.5),
            lambda f, g=g, y=y: stats.poisson.logpmf(y, 2.5 * g(f)),
        )
        SCIPY[f"negative binomial, {link}, {y:g}"] = (
            likelihoods.NegativeBinomial(0.05, link),
            at(y, exposure=2.5),
            lambda f, g=g, y=y: stats.nbinom.logpmf(y, 20, 20 / (20 + 2.5 * g(f))),
        )
    SCIPY[f"gamma, {link}"] = (
        likelihoods.Gamma(1.7, link),
        at(0.9),
        lambda f, g=g: stats.gamma.logpdf(0.9, 1.7, scale=g(f) / 1.7),
    )
for link, p in {"probit": PROBIT, "logit": LOGIT}.items():
    for y in (0.0, 3.0, 10.0):
        SCIPY[f"binomial, {link}, {y:g}"] = (
            likelihoods.Binomial(link),
            at(y, trials=10.0),
            lambda f, p=p, y=y: binomial(y, p(f), p(-f)),
        )
    SCIPY[f"beta, {link}"] = (
        likelihoods.Beta(6.0, link),
        at(0.3),
        lambda f, p=p: stats.beta.logpdf(0.3, 6 * p(f), 6 * p(-f)),
    )


@pytest.mark.parametrize(("likelihood", "datum", "reference"), SCIPY.values(), ids=SCIPY)
def test_log_prob_is_scipys(likelihood, datum, reference):
    np.testing.assert_allclose(log_prob(likelihood, datum, F), reference(F), rtol=1e-12, atol=1e-12)


def exact(name: str, f: float) -> mpmath.mpf:
    """log p(y | f) far out, at 500 digits: differences of tails cancel."""
    with mpmath.workdps(500):
        x = mpmath.mpf(f)
        match name:
            case "binomial, probit":
                return mpmath.log(45) + 2 * mpmath.log(mpmath.ncdf(x)) + 8 * mpmath.log(mpmath.ncdf(-x))
            case "negative binomial, exp":
                r, mean = mpmath.mpf(1e-6) ** -1, mpmath.exp(x)
                rising = mpmath.loggamma(r + 3) - mpmath.loggamma(r) - mpmath.log(6)
                return rising + 3 * mpmath.log(mean / (r + mean)) + r * mpmath.log(r / (r + mean))
            case "ordinal":
                return mpmath.log(mpmath.ncdf(mpmath.mpf(0.4) - x) - mpmath.ncdf(-1 - x))
            case "beta, probit":
                a, b = 6 * mpmath.ncdf(x), 6 * mpmath.ncdf(-x)
                y = mpmath.mpf(0.3)
                return (a - 1) * mpmath.log(y) + (b - 1) * mpmath.log(1 - y) - mpmath.log(mpmath.beta(a, b))
            case "weibull, between" | "weibull, died before":
                low, high = (0, 0.7) if "before" in name else (0.5, 2)
                alive, after = (mpmath.exp(-((mpmath.mpf(end) * mpmath.exp(-x)) ** 2)) for end in (low, high))
                return mpmath.log(alive - after)
            case "log-logistic, between":
                alive, after = (1 / (1 + (mpmath.mpf(end) * mpmath.exp(-x)) ** 2) for end in (0.5, 2))
                return mpmath.log(alive - after)
            case "zero-inflated poisson":
                return mpmath.log(mpmath.mpf(0.2) + (1 - mpmath.mpf(0.2)) * mpmath.exp(-mpmath.exp(x)))
    raise KeyError(name)


FAR = {
    "binomial, probit": (likelihoods.Binomial("probit"), at(2, trials=10), (-30.0, 9.0, 30.0)),
    "negative binomial, exp": (likelihoods.NegativeBinomial(1e-6), at(3), (-700.0, 1.0, 30.0, 700.0)),
    "ordinal": (likelihoods.Ordinal([-1.0, 0.4]), at(1), (-30.0, 9.0, 30.0)),
    "beta, probit": (likelihoods.Beta(6.0), at(0.3), (-30.0, 9.0, 30.0)),
    "weibull, between": (likelihoods.Weibull(0.5), at([0.5, 2.0]), (-3.0, 1.5, 30.0, 300.0)),
    "weibull, died before": (likelihoods.Weibull(0.5), at([0.0, 0.7]), (-0.6, 9.0, 30.0, 300.0)),
    "log-logistic, between": (likelihoods.LogLogistic(0.5), at([0.5, 2.0]), (-300.0, 1.5, 300.0)),
    "zero-inflated poisson": (likelihoods.ZeroInflatedPoisson(0.2), at(0), (-5.0, 3.4, 4.0, 6.0)),
}


@pytest.mark.parametrize("name", FAR)
def test_log_prob_keeps_its_digits_in_the_tails(name):
    likelihood, datum, places = FAR[name]
    expected = [float(exact(name, f)) for f in places]
    np.testing.assert_allclose(log_prob(likelihood, datum, places), expected, rtol=1e-12)


SUPPORT = {
    "gaussian": (likelihoods.Gaussian(), [0.3, np.inf], "inf", {}),
    "probit": (likelihoods.Probit(), [1, 3], "3.0", {}),
    "poisson": (likelihoods.Poisson(), [2, np.inf], "inf", {}),
    "negative binomial": (likelihoods.NegativeBinomial(), [2, -1], "-1.0", {}),
    "binomial, too many": (likelihoods.Binomial(), [2, 5], "5.0", {"trials": [3, 4]}),
    "binomial, half a trial": (likelihoods.Binomial(), [2, 1], "1.0", {"trials": [3, 1.5]}),
    "gamma": (likelihoods.Gamma(), [1, 0], "0.0", {}),
    "beta": (likelihoods.Beta(), [0.5, 1], "1.0", {}),
    "ordinal": (likelihoods.Ordinal([0.0, 1.0]), [2, 3], "3.0", {}),
    "double exponential": (likelihoods.DoubleExponential(), [0, -np.inf], "-inf", {}),
    "censored, no information": (likelihoods.Censored(), [[0, 1], [-np.inf, np.inf]], r"\[-inf  inf\]", {}),
    "censored, reversed": (likelihoods.Censored(), [[0, 1], [2, 1]], r"\[2. 1.\]", {}),
    "weibull, negative": (likelihoods.Weibull(), [[1, 1], [-1, 1]], r"\[-1.  1.\]", {}),
    "weibull, zero": (likelihoods.Weibull(), [[1, 1], [0, 0]], r"\[0. 0.\]", {}),
    "log-logistic, no information": (likelihoods.LogLogistic(), [[1, 2], [0, np.inf]], r"\[ 0. inf\]", {}),
    "zero-inflated poisson": (likelihoods.ZeroInflatedPoisson(), [2, 0.5], "0.5", {}),
    "zero-inflated negative binomial": (likelihoods.ZeroInflatedNegativeBinomial(), [2, -1], "-1.0", {}),
    "warped": (likelihoods.Warped(), [0.3, np.inf], "inf", {}),
    "custom": (likelihoods.Custom(lambda y, f: y * f, support=lambda y: y < 4), [1, 4], "4.0", {}),
}


@pytest.mark.parametrize(("likelihood", "y", "bad", "scales"), SUPPORT.values(), ids=SUPPORT)
def test_impossible_data_are_named(likelihood, y, bad, scales):
    with pytest.raises(ValueError, match=rf"y\[1\] = {bad} is outside the support of the {likelihood.name}"):
        project(likelihood, np.array(y, dtype=float), (0.0, 1.0), **scales)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: likelihoods.NegativeBinomial(link="probit"), "NegativeBinomial: link must be one of exp"),
        (lambda: likelihoods.Gamma(link="log"), "Gamma: link must be one of exp"),
        (lambda: likelihoods.Binomial(link="exp"), "Binomial: link must be one of probit"),
        (lambda: likelihoods.Beta(link="exp"), "Beta: link must be one of probit"),
        (lambda: likelihoods.Ordinal([0.0, 0.0]), "cutpoints must be finite, increasing"),
        (lambda: likelihoods.Ordinal(np.array([[0.0]])), "cutpoints must be finite, increasing"),
        (lambda: likelihoods.Custom(lambda y, f: f, interval=(1.0, 2.0)), "interval must be one of"),
        (lambda: likelihoods.ZeroInflatedPoisson(link="log"), "ZeroInflatedPoisson: link must be one of exp"),
        (
            lambda: likelihoods.ZeroInflatedNegativeBinomial(0.1, 1.0, "log"),
            "ZeroInflatedNegativeBinomial: link must be one of exp",
        ),
        (lambda: likelihoods.Warped(1.0, [0.5, 0.5]), "heights, widths and centres must have the same length"),
        (lambda: likelihoods.Warped(1.0, [-0.5], [1.0], [0.0]), "heights must be positive"),
        (lambda: likelihoods.Warped(1.0, [0.5], [0.0], [0.0]), "widths must be positive"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
