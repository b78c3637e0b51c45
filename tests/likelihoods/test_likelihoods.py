"""Every likelihood by itself: log p(y | f), its derivatives, its flags and its support."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import comb, expit

from quantprop import likelihoods, project, projections
from quantprop.core.gaussian import Normal
from quantprop.core.records import changed
from quantprop.likelihoods import Datum
from quantprop.numerics.special import log_ndtr

F = np.linspace(-5.2, 4.7, 12)
PROBIT, LOGIT = stats.norm.cdf, expit
RATES = {"exp": np.exp, "square": np.square, "softplus": lambda f: np.logaddexp(0.0, f)}


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def at(y, exposure=1.0, trials=1.0) -> Datum:
    return Datum(*(np.asarray(value, dtype=float) for value in (y, exposure, trials)))


def log_prob(likelihood, datum: Datum, f) -> np.ndarray:
    """log p(y | f) for one datum and many f."""
    return np.asarray(jax.vmap(lambda f: likelihood.log_prob(datum, f))(jnp.asarray(f, float)))


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
TIMES = {"observed": [1.3, 1.3], "outlived": [0.7, np.inf], "died before": [0.0, 0.7], "between": [0.5, 2.0]}


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


AWKWARD = {
    "poisson, square, none at 0": (likelihoods.Poisson("square"), at(0), 0.0),
    "negative binomial, square, none at 0": (likelihoods.NegativeBinomial(0.5, "square"), at(0), 0.0),
    "poisson, softplus, far below": (likelihoods.Poisson("softplus"), at(0), -800.0),
    "negative binomial, exp, far above": (likelihoods.NegativeBinomial(), at(0), 800.0),
    "binomial, no success": (likelihoods.Binomial("logit"), at(0, trials=5), -800.0),
    "binomial, no failure": (likelihoods.Binomial("probit"), at(5, trials=5), 60.0),
    "beta, p underflows": (likelihoods.Beta(2.0), at(0.4), -60.0),
    "ordinal, first": (likelihoods.Ordinal([0.0, 1.0]), at(0), 40.0),
    "ordinal, last": (likelihoods.Ordinal([0.0, 1.0]), at(2), -40.0),
    "censored, observed": (likelihoods.Censored(), at([0.3, 0.3]), 0.3),
    "censored, below": (likelihoods.Censored(), at([-np.inf, 0.3]), 40.0),
    "censored, above": (likelihoods.Censored(), at([0.3, np.inf]), -40.0),
    "censored, inside": (likelihoods.Censored(), at([-0.5, 0.3]), 40.0),
    **{
        f"{kind.name}, {row_name}": (kind(0.8), at(row), f)
        for kind in (likelihoods.Weibull, likelihoods.LogLogistic)
        for row_name, row in TIMES.items()
        for f in (-300.0, 0.3, 300.0)
    },
    "zero-inflated poisson, far above": (likelihoods.ZeroInflatedPoisson(), at(0), 800.0),
    "zero-inflated poisson, square, none at 0": (likelihoods.ZeroInflatedPoisson(0.1, "square"), at(0), 0.0),
    "zero-inflated negative binomial, far above": (likelihoods.ZeroInflatedNegativeBinomial(), at(0), 800.0),
}


@pytest.mark.parametrize(("likelihood", "datum", "f"), AWKWARD.values(), ids=AWKWARD)
def test_derivatives_are_finite_where_terms_vanish(likelihood, datum, f):
    assert np.isfinite(value_and_derivatives(likelihood, datum, f)).all()


@jax.jit
def value_and_derivatives(likelihood, datum, f):
    def value(f):
        return likelihood.log_prob(datum, f)

    return value(f), jax.grad(value)(f), jax.grad(jax.grad(value))(f)


def test_square_link_gamma_is_impossible_at_zero():
    values = log_prob(likelihoods.Gamma(1.3, "square"), at(0.8), [-1e-3, 0.0, 1e-200])
    assert values[0] < -1e5
    assert np.isneginf(values[1:]).all()


CURVES = {
    "gaussian": (likelihoods.Gaussian(0.7), [at(0.3)]),
    "probit": (likelihoods.Probit(), [at(1), at(-1)]),
    "logit": (likelihoods.Logit(), [at(1), at(-1)]),
    "student-t": (likelihoods.StudentT(), [at(0.3)]),
    "double exponential": (likelihoods.DoubleExponential(0.5), [at(0.3)]),
    "ordinal": (likelihoods.Ordinal([-1.0, 0.0, 1.5]), [at(y) for y in range(4)]),
    "censored": (
        likelihoods.Censored(0.5),
        [at(row) for row in ([0.3, 0.3], [0.3, np.inf], [-np.inf, 0.3], [-1, 2])],
    ),
    "weibull": (likelihoods.Weibull(0.5), [at(row) for row in TIMES.values()]),
    "log-logistic": (likelihoods.LogLogistic(0.5), [at(row) for row in TIMES.values()]),
    "zero-inflated poisson": (likelihoods.ZeroInflatedPoisson(0.3), [at(0, exposure=2.5)]),
    "zero-inflated negative binomial": (likelihoods.ZeroInflatedNegativeBinomial(0.3), [at(0, exposure=2.5)]),
    "warped": (likelihoods.Warped(0.7, [0.8], [0.6], [0.4]), [at(0.3)]),
    **{
        f"binomial, {link}": (likelihoods.Binomial(link), [at(y, trials=10) for y in (0, 3, 10)])
        for link in ("probit", "logit")
    },
    **{
        f"beta, {link}": (likelihoods.Beta(12.0, link), [at(y) for y in (0.01, 0.4, 0.999)])
        for link in ("probit", "logit")
    },
    **{
        f"{kind.name}, {link}": (kind(link=link), [at(y, exposure=2.5) for y in observed])
        for kind, observed in (
            (likelihoods.Poisson, (0, 3, 150)),
            (likelihoods.NegativeBinomial, (0, 3, 150)),
            (likelihoods.Gamma, (0.02, 1.3, 40)),
        )
        for link in RATES
    },
}


@pytest.mark.parametrize(("likelihood", "data"), CURVES.values(), ids=CURVES)
def test_log_concave_says_whether_it_bends_upwards_anywhere(likelihood, data):
    f = np.linspace(-25.0, 25.0, 2502)  # 0, where the square link has its pole, is not among them
    bends = []
    for datum in data:
        value = log_prob(likelihood, datum, f)
        bends.append(np.max(np.diff(value, 2) / (1.0 + np.abs(value[1:-1]))))
    assert likelihood.log_concave == (max(bends) < 1e-12)
    assert likelihood.log_concave or max(bends) > 1e-6


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


LEARNED = {
    "negative binomial, small": (likelihoods.NegativeBinomial(1e-4), at(150), "dispersion"),
    "negative binomial, large": (likelihoods.NegativeBinomial(3.0, "square"), at(0), "dispersion"),
    "gamma": (likelihoods.Gamma(1.7), at(0.9), "shape"),
    "beta": (likelihoods.Beta(6.0), at(0.3), "precision"),
    "double exponential": (likelihoods.DoubleExponential(0.5), at(0.3), "scale"),
    "censored": (likelihoods.Censored(0.5), at([-np.inf, 0.3]), "scale"),
    "censored, observed": (likelihoods.Censored(0.5), at([0.3, 0.3]), "scale"),
    **{
        f"{kind.name}, {row_name}": (kind(0.5), at(row), "scale")
        for kind in (likelihoods.Weibull, likelihoods.LogLogistic)
        for row_name, row in TIMES.items()
    },
    "zero-inflated poisson, none": (likelihoods.ZeroInflatedPoisson(0.2), at(0), "inflation"),
    "zero-inflated poisson, some": (likelihoods.ZeroInflatedPoisson(0.2, "softplus"), at(3), "inflation"),
    "zero-inflated negative binomial, share": (likelihoods.ZeroInflatedNegativeBinomial(0.2), at(0), "inflation"),
    "zero-inflated negative binomial": (likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.7), at(0), "dispersion"),
    **{
        f"warped, {name}": (likelihoods.Warped(0.5, [0.8], [0.6], [0.4]), at(0.3), name)
        for name in ("scale", "heights", "widths", "centres")
    },
}


@pytest.mark.parametrize(("likelihood", "datum", "name"), LEARNED.values(), ids=LEARNED)
def test_derivative_in_a_parameter(likelihood, datum, name):
    def value(parameter):
        moved = changed(likelihood, **{name: parameter})
        return moved.log_prob(datum, 1.1)

    here, both = np.asarray(getattr(likelihood, name)), jax.jit(jax.value_and_grad(value))
    difference = (both(here * (1 + 1e-5))[0] - both(here * (1 - 1e-5))[0]) / np.sum(2e-5 * here)
    assert np.sum(both(here)[1]) == pytest.approx(float(difference), rel=1e-6)


@pytest.mark.parametrize("y", [0, 1, 2])
def test_derivative_in_the_cutpoints(y):
    def value(cutpoints):
        return likelihoods.Ordinal(cutpoints).log_prob(at(y), 0.2)

    cuts, step = jnp.array([-0.3, 0.8]), 1e-6 * jnp.eye(2)
    difference = [(value(cuts + e) - value(cuts - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(jax.grad(value)(cuts), difference, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("y", [0.0, 3.0])
@pytest.mark.parametrize("kind", [likelihoods.Poisson, likelihoods.NegativeBinomial, likelihoods.Gamma])
def test_square_links_start_from_the_positive_mode(kind, y):
    likelihood, datum = (
        kind(link="square"),
        at(y or (0.5 if kind is likelihoods.Gamma else 0.0), exposure=2.5),
    )
    nu, tau = likelihood.start(datum)
    slope = jax.grad(lambda f: likelihood.log_prob(datum, f))
    mode = float(nu / tau)
    assert float(slope(mode)) == pytest.approx(0.0, abs=1e-12)
    assert float(tau) == pytest.approx(-float(jax.grad(slope)(mode)), rel=1e-12)


EXPECTED = {
    "gamma": (likelihoods.Gamma(1.7), at(0.9), lambda f: stats.gamma.logpdf(0.9, 1.7, scale=np.exp(f) / 1.7)),
    "double exponential": (
        likelihoods.DoubleExponential(0.5),
        at(0.3),
        lambda f: stats.laplace.logpdf(0.3, f, 0.5),
    ),
    "heaviside": (likelihoods.Heaviside(0.02), at(-1.0), lambda f: np.log(0.98 if f < 0 else 0.02)),
    **{f"weibull, {row_name}": SCIPY[f"weibull, {row_name}"] for row_name in ("observed", "outlived")},
    "weibull, between": (
        likelihoods.Weibull(0.8),
        at([0.5, 2.0]),
        lambda f: -((0.5 * np.exp(-f)) ** 1.25) + np.log(-np.expm1((0.5**1.25 - 2.0**1.25) * np.exp(-1.25 * f))),
    ),
}


@pytest.mark.parametrize(("likelihood", "datum", "log_p"), EXPECTED.values(), ids=EXPECTED)
def test_expected_log_prob_and_its_derivatives(likelihood, datum, log_p):
    m, v = 0.7, 0.6

    def average(weight):
        def integrand(u):
            return weight(u) * log_p(m + v**0.5 * u) * stats.norm.pdf(u)

        return integrate.quad(integrand, -12, 12, points=[(0.3 - m) / v**0.5, -m / v**0.5], epsabs=1e-12, limit=200)[0]

    got = likelihood.expected_log_prob(datum, Normal(jnp.array(m), jnp.array(v)))
    weights = (lambda u: 1.0, lambda u: u / v**0.5, lambda u: (u * u - 1) / (2 * v))
    np.testing.assert_allclose(got, [average(weight) for weight in weights], rtol=1e-9)


@pytest.mark.parametrize(("noise", "power"), [(0.02, 0.5), (1e-6, 0.1), (0.0, 0.5)])
def test_powers_of_a_threshold(noise, power):
    m, v = -0.8, 0.6
    got = likelihoods.Heaviside(noise).tempered_moments(at(1.0), Normal(jnp.array(m), jnp.array(v)), power)

    def average(weight):
        sides = ((-12.0, 0.0, noise**power), (0.0, 12.0, (1.0 - noise) ** power))
        return sum(p * integrate.quad(lambda f: weight(f) * stats.norm.pdf(f, m, v**0.5), a, b)[0] for a, b, p in sides)

    mass = average(lambda f: 1.0)
    mean = average(lambda f: f) / mass
    ratio = average(lambda f: (f - mean) ** 2) / mass / v
    found = [got.log_normalizer, m + got.shift, got.ratio, got.shrink]
    np.testing.assert_allclose(found, [np.log(mass), mean, ratio, 1.0 - ratio], rtol=1e-7)


@pytest.mark.parametrize(
    "projection",
    [
        pytest.param(projections.Wasserstein(2), id="W2"),
        pytest.param(projections.KL(), id="KL", marks=pytest.mark.campaign),
    ],
)
def test_custom_probit_projects_as_probit(projection):
    rng = np.random.default_rng(2)
    cavity = rng.normal(0, 4, 16), 10 ** rng.uniform(-3, 4, 16)
    y = np.where(rng.uniform(size=16) < 0.5, 1.0, -1.0)
    custom = project(likelihoods.Custom(lambda y, f: log_ndtr(y * f)), y, cavity, projection)
    probit = project(likelihoods.Probit(), y, cavity, projection)
    sd = np.sqrt(probit.variance)
    np.testing.assert_allclose((custom.mean - probit.mean) / sd, 0.0, atol=1e-9)
    np.testing.assert_allclose(np.sqrt(custom.variance) / sd, 1.0, rtol=1e-9)
    np.testing.assert_allclose(custom.log_normalizer, probit.log_normalizer, rtol=1e-9)


@pytest.mark.parametrize("likelihood", [likelihoods.Probit(), likelihoods.Heaviside(), likelihoods.Heaviside(0.1)])
def test_slopes_of_the_moments_of_thresholds(likelihood):
    """Closed formulas against central differences, in the mean (in cavity deviations) and in log variance."""
    mean, log_v, y = (
        part.ravel() for part in np.meshgrid([-30.0, -3.0, -0.4, 0.0, 2.0, 8.0], [-8.0, 0.0, 6.0], [1.0, -1.0])
    )

    def moments(mean, log_v, y):
        v = jnp.exp(log_v)
        made = likelihood.moments(Datum(y, 1.0, 1.0), Normal(mean * jnp.sqrt(v), v))
        return jnp.stack([made.log_normalizer, made.shift / jnp.sqrt(v), made.ratio, made.shrink])

    with jax.enable_x64(True):
        each = jax.jit(jax.vmap(moments))
        slopes = jax.jit(jax.vmap(jax.jacfwd(moments, argnums=(0, 1))))(mean, log_v, y)
        for slope, by in zip(slopes, ((1e-5, 0.0), (0.0, 1e-5)), strict=True):
            up, down = (each(mean + s * by[0], log_v + s * by[1], y) for s in (1.0, -1.0))
            np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=2e-7, atol=1e-8)
