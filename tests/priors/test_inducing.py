"""Inducing points against the dense process, closed forms, repeated rows, finite differences and another library."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from priors.inducing_cases import DATA, KERNEL, METHODS, NEW, REALS, X, Z, fitc, point

from quantprop import (
    EP,
    QP,
    VB,
    Inducing,
    Laplace,
    Model,
    Parameter,
    PowerEP,
    fit,
    infer,
    kernels,
    likelihoods,
    predict_many,
)
from quantprop.core.gaussian import Natural
from quantprop.priors.base import Cotangent
from quantprop.priors.inducing import rows

CHEAP = {("probit", "ep")}


CELLS = [
    pytest.param(name, method, marks=[] if (name, method) in CHEAP else pytest.mark.campaign, id=f"{name}, {method}")
    for name in DATA
    for method in METHODS
]


# --- Z = X -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method"), CELLS)
def test_with_the_inputs_as_points_everything_is_dense(name, method):
    """No jitter: the two are the same Gaussian process, whatever the power."""
    (likelihood, y), method = DATA[name], METHODS[method]
    models = Model(KERNEL, likelihood, 0.2), Model(KERNEL, likelihood, 0.2, Inducing(X, jitter=0.0))
    dense, low = (infer(model, X, y, method, tol=1e-10) for model in models)
    assert low.converged
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)
    np.testing.assert_allclose(low.marginals.mean, dense.marginals.mean, atol=1e-7)
    np.testing.assert_allclose(low.marginals.variance, dense.marginals.variance, rtol=1e-7)
    np.testing.assert_allclose(low.loo, dense.loo, atol=1e-7)
    one, other = low.predict(NEW, full_cov=True), dense.predict(NEW, full_cov=True)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-7)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-7)


@pytest.mark.campaign
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("method", METHODS)
def test_with_the_inputs_as_points_gradients_are_dense(name, method):
    (likelihood, y), method = DATA[name], METHODS[method]
    models = Model(KERNEL, likelihood, 0.2), Model(KERNEL, likelihood, 0.2, Inducing(X, jitter=0.0))
    there, here = (point(model, y, method) for model in models)
    assert here.usable
    np.testing.assert_allclose(here.gradient, there.gradient, atol=1e-7)


# --- powers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.5, *(pytest.param(one, marks=pytest.mark.campaign) for one in (0.0, 0.01, 1.0))])
def test_a_gaussian_likelihood_has_the_closed_form_of_its_power(power):
    model = Model(KERNEL, likelihoods.Gaussian(0.3), process=Inducing(Z, jitter=0.0))
    value, mean, covariance = fitc(power, REALS, 0.3)
    solution = infer(model, X, REALS, PowerEP(power) if power else VB(), tol=1e-12)
    assert solution.log_evidence == pytest.approx(value, abs=1e-8)
    found = solution.predict(NEW, full_cov=True)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-8)


@pytest.mark.parametrize("method", [PowerEP(0.5), VB()], ids=str)
def test_leaving_a_row_out_is_a_fit_without_it(method):
    """Exactly so under Gaussian noise, where sites do not depend on each other; and the loo objective is refused."""
    model = Model(KERNEL, likelihoods.Gaussian(0.3), process=Inducing(Z, jitter=0.0))
    loo = infer(model, X, REALS, method, tol=1e-10).loo
    for i in (0, 11):
        weights = np.where(np.arange(len(X)) == i, 0.0, 1.0)
        rest = infer(model, X, REALS, method, tol=1e-10, weights=weights).predict_y(X[[i]])
        assert loo[i] == pytest.approx(rest.log_prob(REALS[[i]])[0], abs=1e-8)
    with pytest.raises(ValueError, match="use EP or QP"):
        fit(model, X, REALS, method, objective="loo")


@pytest.mark.campaign
@pytest.mark.parametrize("name", list(DATA))
def test_power_ep_tends_to_the_variational_bound_linearly(name):
    likelihood, y = DATA[name]
    model = Model(KERNEL, likelihood, process=Inducing(Z))
    limit = infer(model, X, y, VB(), tol=1e-10)
    near, nearer = (infer(model, X, y, PowerEP(power), tol=1e-10) for power in (0.001, 0.0005))
    assert near.log_evidence - limit.log_evidence == pytest.approx(
        2 * (nearer.log_evidence - limit.log_evidence), rel=0.03
    )
    moved = [np.abs(s.predict(NEW).mean - limit.predict(NEW).mean).max() for s in (near, nearer)]
    assert moved[0] == pytest.approx(2 * moved[1], rel=0.03)


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "method"),
    [("probit", EP()), ("probit", QP()), ("poisson", PowerEP(0.5)), ("poisson", VB()), ("poisson", Laplace())],
)
def test_whole_weights_are_repeated_rows(name, method):
    """Copies have residuals of their own, and so have equal rows; white noise in the kernel is one of them."""
    likelihood, y = DATA[name]
    model = Model(KERNEL + kernels.White(0.05), likelihood, 0.2, Inducing(Z))
    weights = np.ones(len(X))
    weights[[3, 11, 20]], weights[[7, 8, 15, 22, 26, 29]] = (2.0, 3.0, 5.0), 0.0  # as many rows either way: one program
    each = np.repeat(np.arange(len(X)), weights.astype(int))
    short = infer(model, X, y, method, weights=weights, tol=1e-12)
    long = infer(model, X[each], y[each], method, tol=1e-12)
    assert short.log_evidence == pytest.approx(long.log_evidence, abs=1e-9)
    kept = weights > 0
    first = np.unique(each, return_index=True)[1]
    np.testing.assert_allclose(short.marginals.mean[kept], long.marginals.mean[first], atol=1e-9)
    np.testing.assert_allclose(short.marginals.variance[kept], long.marginals.variance[first], atol=1e-9)
    np.testing.assert_allclose(short.predict(NEW).mean, long.predict(NEW).mean, atol=1e-9)
    (other,) = predict_many([short], [NEW])
    np.testing.assert_allclose(other.variance, long.predict(NEW).variance, atol=1e-9)
    one, two = point(model, y, method, weights), point(model, y[each], method, x=X[each])
    np.testing.assert_allclose(one.gradient, two.gradient, atol=1e-7)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("probit", Laplace()),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in (
                ("probit", QP()),
                ("probit", EP()),
                ("probit", EP(QP().projection, 0.7)),
                ("poisson", PowerEP(0.5)),
                ("poisson", VB()),
                ("student-t", EP()),
                ("student-t", QP()),
                ("student-t", Laplace()),
            )
        ),
    ],
)
def test_gradients_are_finite_differences(name, method):
    """In the kernel's numbers, the mean, the likelihood's and the points."""
    likelihood, y = DATA[name]
    start = Z[:4] + np.array([[0.1], [-0.05], [0.02], [0.0]])
    kernel = kernels.SquaredExponential(1.3, 0.9) + kernels.White(0.1)
    model = Model(kernel, likelihood, Parameter(0.2), Inducing(start, learn=True))
    here = point(model, y, method)
    assert here.usable
    assert len(here.theta) == 4 + 4 + (2 if name == "student-t" else 0)
    for way in np.random.default_rng(1).normal(size=(2, len(here.theta))):
        values = [point(model, y, method, theta=here.theta + k * 1e-4 * way).value for k in (-2, -1, 1, 2)]
        difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12e-4
        assert here.gradient @ way == pytest.approx(difference, rel=1e-5, abs=1e-6)


@pytest.mark.campaign
@pytest.mark.parametrize("share", [0.3, 1.0, 0.0])
def test_chunks_and_what_is_held_change_nothing(share, monkeypatch):
    """One chunk with V held, and ten whose V is computed whenever it is needed."""
    rng = np.random.default_rng(1)
    x, tau = rng.normal(size=(40, 2)), rng.uniform(0.1, 2.0, 40)
    process = Inducing(x[:6], learn=True)
    sites, moves = Natural(rng.normal(size=40), tau), jnp.asarray(rng.normal(size=(2, 40)))
    by = Cotangent(jnp.asarray(rng.normal(size=(2, 40))), jnp.asarray(0.3), jnp.asarray(rng.normal(size=40)))

    def all_of(hold):
        prior = process.prior(kernels.Matern52(1.2, np.array([0.8, 1.1])), jnp.zeros(40), jnp.asarray(x))
        prior = replace(prior, share=share * prior.share, hold=hold).for_sweeps()
        given = prior.condition(sites, False)
        response = prior.response(given, False)
        slopes = prior.evidence_slope(given, False), response.to_prior(by)
        return (
            given.marginals,
            given.log_determinant,
            prior.follow(given, sites.nu + 1.0),
            response.answer(moves),
            slopes,
        )

    with jax.enable_x64(True):
        once = jax.jit(all_of, static_argnums=0)(True)
        monkeypatch.setattr(rows, "CPU_CHUNK", 4 * 8 * 6)
        assert rows.chunks_of(40, 6) == 10
        for one, other in zip(jax.tree.leaves(once), jax.tree.leaves(jax.jit(lambda: all_of(False))()), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("share", [0.4, pytest.param(0.0, marks=pytest.mark.campaign)])
def test_responses_are_derivatives_of_the_marginals_for_any_power(share):
    """Against finite differences of `condition`: the contract suite has the whole shares."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(12, 1))
    with jax.enable_x64(True):
        prior = Inducing(x[:4]).prior(KERNEL, jnp.asarray(rng.normal(size=12)), jnp.asarray(x))
        prior = prior.for_shares(np.full(12, share))
        sites = Natural(rng.normal(size=12), rng.uniform(0.3, 3.0, 12))
        under = jax.jit(lambda sites: prior.condition(sites, False))
        given, moves = under(sites), rng.normal(size=(2, 12))
        at, sd = given.marginals, np.sqrt(given.marginals.variance)

        def after(h):
            d_tau = h * moves[1] / at.variance
            return under(Natural(sites.nu + h * moves[0] / sd + at.mean * d_tau, sites.tau + d_tau))

        ends = after(1e-5), after(-1e-5)
        mean, variance, size = (
            (get(ends[0]) - get(ends[1])) / 2e-5
            for get in (lambda c: c.marginals.mean, lambda c: c.marginals.variance, lambda c: c.log_determinant)
        )
        found = jax.jit(lambda given, moves: prior.response(given, False).answer(moves))(given, moves)
        np.testing.assert_allclose(found, np.stack([mean / sd, -variance / at.variance]), rtol=1e-6, atol=1e-8)
        assert size == pytest.approx(moves[1].sum(), rel=1e-7)  # ∂ log |I + S K| = Σ σ² δτ, whatever the power


# --- another library -------------------------------------------------------------------------------------------------

STORED = Path(__file__).parent / "svgp.json"


def test_the_bound_and_its_posterior_are_svgps():
    """GPyTorch's SVGP, by studies/inducing/svgp_reference.py."""
    told = json.loads(STORED.read_text())
    x, y, z, new = (np.array(told[name]) for name in ("x", "y", "z", "new"))
    model = Model(kernels.Matern32(told["variance"], told["lengthscale"]), likelihoods.Probit(),
                  process=Inducing(z, jitter=told["jitter"]))  # fmt: skip
    solution = infer(model, x, y, VB(), tol=1e-9)
    assert solution.log_evidence == pytest.approx(told["bound"], abs=1e-5)
    found = solution.predict(new, full_cov=True)
    np.testing.assert_allclose(found.mean, told["mean"], atol=1e-5)
    np.testing.assert_allclose(found.covariance, told["covariance"], atol=1e-5)
