"""What a dense prior may leave out of its derivatives, and how wrong they are without it."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import QP, Model, fit, kernels, likelihoods
from quantprop.gaussian import Natural
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.learning.search import FLAT
from quantprop.parameters import packed
from quantprop.priors import Dense
from quantprop.priors.base import Cotangent
from quantprop.priors.dense import CHOSEN, MANY
from quantprop.records import changed

N = 3 * MANY


@partial(jax.jit, static_argnames="signed")
def slopes(x: jax.Array, sites: Natural, by: Cotangent, signed: bool) -> tuple[jax.Array, jax.Array]:
    """∂J of the logarithms of variance and lengthscale, and each datum's share of the first."""
    process = Dense()

    def prior(logarithms):
        kernel = kernels.SquaredExponential(*(jnp.array([2.0, 0.5]) * jnp.exp(logarithms)))
        return process.prior(kernel, jnp.zeros(N), process.prepare(kernel, x))

    at, pulled = jax.vjp(prior, jnp.zeros(2))
    given = at.condition(sites, signed)
    transfer = at.joint(given, signed).transfer
    spread = jnp.sum((transfer @ at.k) * transfer, axis=1)  # A K Aᵀ from K itself
    share = -by.answer[1] / given.marginals.variance * spread
    return pulled(at.response(given, signed).to_prior(by))[0], share


@pytest.mark.parametrize("signed", [False, True])
def test_what_is_left_out_changes_the_slope_of_the_variance_by_no_more_than_the_slack(signed):
    rng = np.random.default_rng(0)
    tau = rng.gamma(0.5, 2.0, N) * np.where(signed & (rng.uniform(size=N) < 0.05), -0.01, 1.0)
    x, sites = np.sort(rng.uniform(0.0, 9.0, N))[:, None], Natural(rng.normal(size=N), tau)
    answer = np.stack([rng.normal(size=N), rng.normal(size=N) * rng.exponential(size=N) ** 3])
    with jax.enable_x64(True):
        by = Cotangent(jnp.asarray(answer), jnp.asarray(0.3), jnp.asarray(rng.normal(size=N)))
        exact, share = map(np.asarray, slopes(x, sites, by, signed))
        sizes = np.sort(np.abs(share))
        few, half = (sizes[: N - int(share * N)].sum() for share in CHOSEN)
        ways = {"all": 0.999 * half, "half": 1.001 * half, "still half": 0.999 * few, "few": 1.001 * few}
        found = {
            name: np.asarray(slopes(x, sites, changed(by, slack=jnp.asarray(slack)), signed)[0])
            for name, slack in ways.items()
        }
    np.testing.assert_allclose(found["all"], exact, rtol=1e-11)
    np.testing.assert_array_equal(found["half"], found["still half"])
    order = np.argsort(-np.abs(share))
    for name, part in zip(("few", "half"), CHOSEN, strict=True):
        missing = exact[0] - found[name][0]
        np.testing.assert_allclose(missing, share[order[int(part * N) :]].sum(), rtol=1e-8, atol=1e-9)
        assert 0 < abs(missing) <= ways[name]
    assert abs(found["half"][1] - exact[1]) < abs(found["few"][1] - exact[1])


@pytest.mark.parametrize("tol", [1e-8, 1e-4])
def test_nothing_is_left_out_of_the_slope_at_the_end_of_a_search(tol):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 2))
    y = np.where(np.sin(2.0 * x[:, 0]) + x[:, 1] > 0.7 * rng.logistic(size=N), 1, -1)
    fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), x, y, "qp", tol=tol)
    again = Landscape(fitted.model, prepare(fitted.model, x, y, QP(), None, None, None), QP(), Evidence())
    slope = np.abs(again.from_cold(packed(again.parts)).gradient).max()
    assert fitted.status.reason == "converged"
    assert slope <= FLAT
    assert abs(slope - fitted.status.gradient) <= max(1e-7, 0.2 * tol)
