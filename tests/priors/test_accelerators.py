"""What an accelerator computes by halves of matrices, and a CPU by more blocks of them, is the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import Inducing, kernels
from quantprop.core.gaussian import Natural
from quantprop.numerics import triangular
from quantprop.priors import DensePrior, Prior
from quantprop.priors.base import Cotangent
from quantprop.priors.cholesky import dominant

N = 210  # rows of several blocks
RNG = np.random.default_rng(11)
X = RNG.uniform(-3.0, 3.0, (N, 2))
MOVES, MEAN = RNG.normal(size=(2, N)), RNG.normal(size=N)


def priors() -> dict[str, Prior]:
    kernel = kernels.Matern32(2.0, 1.5) + kernels.White(0.01)
    k, inducing = kernel.gram(jnp.asarray(X)), Inducing(X[::2])
    by_points = inducing.prior(kernel, jnp.asarray(MEAN), jnp.asarray(X))
    return {
        "dense": DensePrior(jnp.asarray(MEAN), k),
        "split": DensePrior(jnp.asarray(MEAN), 1e7 * k, dominant(1e7 * k)),
        "inducing": by_points,
    }


def doubled(slope):
    """Of two entries (i, j) and (j, i) of a slope in a symmetric matrix only the sum counts."""
    return slope + slope.T if slope.shape == (N, N) else slope


def answers(prior: Prior, sites: Natural, signed: bool):
    def all_of(prior: Prior, sites: Natural, by: Cotangent):
        given = prior.condition(sites, signed)
        response = prior.response(given, signed)
        positive = prior.condition(Natural(sites.nu, jnp.abs(sites.tau)), signed=False)
        return (
            given.marginals,
            given.log_determinant,
            prior.follow(positive, sites.nu + 1.0).mean,
            response.answer(by.answer),
            jax.tree.map(doubled, (response.to_prior(by), prior.evidence_slope(given, signed))),
            prior.predictor(sites, signed),
        )

    by = Cotangent(jnp.asarray(MOVES), jnp.asarray(0.7), jnp.asarray(MEAN))
    text = str(jax.make_jaxpr(all_of)(prior, sites, by))
    return jax.jit(all_of)(prior, sites, by), text.count("dot_general")


DEFAULT = {("dense", True), ("split", False), ("inducing", False)}


@pytest.mark.parametrize(("name", "signed"), [
    pytest.param(name, signed, marks=[pytest.mark.campaign] * ((name, signed) not in DEFAULT))
    for name in ("dense", "split", "inducing") for signed in (False, True)
])  # fmt: skip
def test_halves_and_more_blocks_agree(name, signed, monkeypatch):
    with jax.enable_x64(True):
        prior, tau = priors()[name], RNG.uniform(0.2, 3.0, N)
        tau[[4, 100]] = (-1e-9, -2e-9) if signed else (0.0, 1e-3)
        sites = Natural(jnp.asarray(RNG.normal(size=N)), jnp.asarray(tau))
        monkeypatch.setattr(triangular, "in_many_blocks", lambda: True)
        by_blocks, many = answers(prior, sites, signed)
        monkeypatch.setattr(triangular, "in_many_blocks", lambda: False)
        by_halves, few = answers(prior, sites, signed)
    assert few < many
    for one, other in zip(jax.tree.leaves(by_blocks), jax.tree.leaves(by_halves), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * max(1.0, float(np.abs(one).max(initial=0.0))))
