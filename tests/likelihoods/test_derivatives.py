"""Derivatives of log p(y | f), in f and in parameters, and expectations over f."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from likelihoods.rows import RATES, TIMES, at, log_prob
from scipy import integrate, stats

from quantprop import likelihoods, project, projections
from quantprop.core.gaussian import Normal
from quantprop.core.records import changed
from quantprop.likelihoods import Datum
from quantprop.numerics.special import log_ndtr


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


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
    @jax.jit
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
    "weibull, observed": (
        likelihoods.Weibull(0.8),
        at(TIMES["observed"]),
        lambda f: stats.weibull_min.logpdf(1.3, 1.25, scale=np.exp(f)),
    ),
    "weibull, outlived": (
        likelihoods.Weibull(0.8),
        at(TIMES["outlived"]),
        lambda f: stats.weibull_min.logsf(0.7, 1.25, scale=np.exp(f)),
    ),
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

    expected = jax.jit(lambda *given: likelihood.expected_log_prob(*given))
    got = expected(datum, Normal(jnp.array(m), jnp.array(v)))
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
