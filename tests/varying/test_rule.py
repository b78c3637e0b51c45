"""The rule of a parameter that varies: moments and deviations of both latent values against sums over a fine grid."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from varying.families import FAMILIES, LEVEL, cavities, quantile_deviations, summed

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.likelihoods import Datum, Varying
from quantprop.likelihoods.derived import WithFewNodes
from quantprop.likelihoods.varying import few_node_pair, panel_pair
from quantprop.projections import Wasserstein
from quantprop.projections.base import projected


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


@pytest.mark.parametrize(("family", "n", "seed"), [
    ("student-t", 3, 2), *(pytest.param(family, 50, 2, marks=pytest.mark.campaign) for family in FAMILIES),
    *(pytest.param(family, 16, seed, marks=pytest.mark.campaign) for family in FAMILIES for seed in (3, 4)),
])  # fmt: skip
def test_other_families_are_double_integrals_too(family, n, seed):
    """EP's moments, and QP's deviations, of both latent values; on coarse grids where these are resolved."""
    base, parameter, log_prob, draws, centre, taken = FAMILIES[family]
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(0.0, 1.0, (n, 2)), np.exp(rng.uniform(-4.0, 1.0, (n, 2)))
    y = draws(rng, n)

    def rule(likelihood, datum, cavity):
        found, trusted = few_node_pair(likelihood, datum, cavity)
        exact = panel_pair(likelihood, datum, cavity)
        few, fine = (projected(Wasserstein(2.0), one, datum, cavity) for one in (WithFewNodes(likelihood), likelihood))
        return (jax.tree.map(lambda few, many: jnp.where(trusted, few, many), found, exact), few, fine), trusted

    with jax.enable_x64(True):
        data = Datum(taken(y), np.ones(n), np.ones(n))
        (found, *narrow), trusted = jax.jit(jax.vmap(partial(rule, Varying(base, parameter))))(
            data, Normal(mean, variance)
        )
        at, spread = np.asarray(mean + found.shift), np.asarray(variance * found.ratio)
        deviations = [np.sqrt(variance * one.ratio) for one in map(partial(jax.tree.map, np.asarray), narrow)]
    coarse = np.isfinite(deviations[0]).all(axis=1)
    assert np.mean(trusted) >= 0.6
    assert np.mean(coarse) >= 0.6
    for i in range(n):
        exact = summed(y[i], mean[i], variance[i], log_prob=log_prob, centre=centre(y[i]))
        got = [found.log_normalizer[i], at[i, 0], spread[i, 0], at[i, 1], spread[i, 1]]
        np.testing.assert_allclose(got, exact, rtol=0, atol=1e-8 * max(1.0, *variance[i]))
        exact = quantile_deviations(y[i], mean[i], variance[i], log_prob=log_prob, centre=centre(y[i]))
        np.testing.assert_allclose(deviations[1][i], exact, rtol=1e-8)
        if coarse[i]:
            np.testing.assert_allclose(deviations[0][i], exact, rtol=1e-8)


def test_what_no_grid_resolves_is_not_a_number():
    """A scale known up to a factor of e^40 either way."""
    cavity = Normal(np.array([0.0, 0.0]), np.array([1.0, 1600.0]))
    likelihood, datum = Varying(likelihoods.StudentT(4.0, LEVEL), "scale"), Datum(0.3, 1.0, 1.0)
    with jax.enable_x64(True):
        found = jax.jit(lambda: panel_pair(likelihood, datum, cavity))()
    assert np.isnan(np.asarray(found.log_normalizer))
