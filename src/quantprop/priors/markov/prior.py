"""The prior of a chain of states under sites: marginals, and derivatives without differentiating a loop backwards.

Marginals come from cavities: the state given data before (m, P) and after (η, J) its own site makes N(μ_c, σ_c²) of
f, and then b = 1/(1 + τ σ_c²), σ² = b σ_c², α = b (ν − τ μ_c), without a difference of large numbers.

log Z, the log integral of prior times sites, has closed derivatives in the chain's matrices (`_slope`), and itself
generates the marginals: ∂ log Z/∂ν = μ, ∂ log Z/∂τ = −½ (σ² + μ²). So a cotangent of the marginals reaches the prior as
the derivative of that slope along a move of the sites, a forward derivative: memory stays O(n).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.core.sites import Marginal, unit
from quantprop.priors.base import Conditioned, Cotangent, Moves, Prior, Response
from quantprop.priors.markov.algebra import (
    Layout,
    Matrix,
    Slots,
    Vector,
    before,
    dot,
    identity,
    in_line,
    inverse,
    outer,
    product,
    times,
    to_rows,
    to_slots,
)
from quantprop.priors.markov.prediction import MarkovPredictor
from quantprop.priors.markov.recursion import Chain, Filtered, Flow, cavity, filtered, flow_of, flowed, pivot, updated
from quantprop.runtime.programs import part


class MarkovPrior(Prior):
    """f = m + hᵀx + noise at the training inputs, x a chain of states."""

    mean: Float[Array, " n"]
    chain: Chain
    noise: Slots  # variances that no two data share
    prior_variance: Float[Array, " n"]  # of f: follows from the chain and the noise; for messages
    layout: Layout

    def scaled(self, by: Any) -> MarkovPrior:
        chain = self.chain._replace(q=by * self.chain.q)
        return MarkovPrior(self.mean, chain, by * self.noise, by * self.prior_variance, self.layout)

    def variances(self) -> Float[Array, " n"]:
        return self.prior_variance

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        return Conditioned(sites, *_CONDITIONED[signed](self, sites), None)

    def evidence_slope(self, given: Conditioned, signed: bool) -> MarkovPrior:
        return _slope(self, given.sites)

    def response(self, given: Conditioned, signed: bool) -> MarkovResponse:
        return MarkovResponse(self, given, *_flow(self, given.sites))

    def predictor(self, sites: Natural, signed: bool) -> MarkovPredictor:
        under = _under(self, sites)
        chain, states, (nu, tau) = jax.tree.map(in_line, (self.chain, under.states, under.own))
        return MarkovPredictor(chain, states, nu, tau, signed)


class MarkovResponse(Response):
    """Responses of the marginals by the chain's own recursions, and forward derivatives of the evidence's slope."""

    prior: MarkovPrior
    given: Conditioned
    flow: Flow
    weaker: Slots  # by how much of a change of hᵀx the value f follows, and its site is felt: 1 without noise

    def answer(self, moves: Moves) -> Moves:
        variance = self.given.marginals.variance
        units = jnp.stack([unit(variance), unit(variance) ** 2])
        own = jnp.where(variance == 0.0, 0.0, moves)
        return own + _answered(self.prior.layout, self.flow, self.weaker, moves / units) / units

    def to_prior(self, by: Cotangent) -> MarkovPrior:
        """Σ c_i μ_i + e_i σ_i² is the derivative of log Z along δτ = −2e, δν = c + μ δτ."""
        at, sites = self.given.marginals, self.given.sites
        sd = unit(at.variance)
        by_mean, by_variance = by.answer[0] / sd, -by.answer[1] / sd**2
        by_tau = -2.0 * by_variance
        towards = Natural(by_mean + at.mean * by_tau, by_tau)
        moved = _moved_slope(self.prior, sites, towards)
        # log |I + S K| = −2 log Z where all ν and the mean are 0
        level = Natural(sites.tau * self.prior.mean, sites.tau)
        size = _slope(self.prior, level)
        found = jax.tree.map(lambda a, b: a - 2.0 * by.log_determinant * b, moved, size)
        return MarkovPrior(found.mean + by.mean, found.chain, found.noise, found.prior_variance, found.layout)


# --- under sites -----------------------------------------------------------------------------------------------------


class Under(NamedTuple):
    """Sites on f less the prior mean, by time; those on hᵀx, which noise weakens; and the states under them."""

    nu: Slots
    tau: Slots
    own: tuple[Slots, Slots]
    states: Filtered


def _under(prior: MarkovPrior, sites: Natural) -> Under:
    nu, tau = to_slots(prior.layout, sites.nu - sites.tau * prior.mean), to_slots(prior.layout, sites.tau)
    weaker = 1.0 / pivot(tau, prior.noise)
    own = (nu * weaker, tau * weaker)
    return Under(nu, tau, own, filtered(prior.chain, *own))


def _marginals(prior: MarkovPrior, under: Under, mean: Slots, variance: Slots) -> Marginal:
    variance = variance + prior.noise
    b = 1.0 / pivot(under.tau, variance)
    parts = (b * (mean + under.nu * variance), b * variance, b * (under.nu - under.tau * mean), b)
    found = Marginal(*(to_rows(prior.layout, part) for part in parts))
    return Marginal(prior.mean + found.mean, found.variance, found.alpha, found.b)


def _conditioned(prior: MarkovPrior, sites: Natural, signed: bool) -> tuple[Marginal, Array, Array]:
    """Marginals, log |I + S K|, and whether the posterior is proper."""
    under = _under(prior, sites)
    marginals = _marginals(prior, under, *jax.vmap(partial(cavity, signed=signed))(under.states, prior.chain.h))
    ahead = jax.vmap(lambda p, h: dot(h, times(p, h)))(under.states.p, prior.chain.h)  # Var hᵀx by the data before
    pivots = pivot(under.tau, ahead + prior.noise)
    finite = jnp.all(jnp.isfinite(marginals.mean)) & jnp.all(jnp.isfinite(marginals.variance))
    # K + S⁻¹ has pivots (1 + τ s)/τ; the posterior is proper if as many of them are negative as there are τ < 0.
    negative, passed = under.tau < 0, pivots < 0
    proper = finite & (jnp.sum(passed & negative) == jnp.sum(passed & ~negative))
    return marginals, jnp.sum(jnp.log(jnp.abs(pivots))), proper


@part
def _flow(prior: MarkovPrior, sites: Natural) -> tuple[Flow, Slots]:
    under = _under(prior, sites)
    return flow_of(prior.chain, under.states, under.own[1]), 1.0 / pivot(under.tau, prior.noise)


@part
def _answered(layout: Layout, flow: Flow, weaker: Slots, moves: Moves) -> Moves:
    """Change of means, and of variances with the opposite sign, by moves of all other sites: (δν − μ δτ, δτ)."""
    weights = (weaker, weaker**2)
    found = flowed(flow, *(w * to_slots(layout, move) for w, move in zip(weights, moves, strict=True)))
    return jnp.stack([to_rows(layout, w * part) for w, part in zip(weights, found, strict=True)])


_CONDITIONED = {signed: part(partial(_conditioned, signed=signed)) for signed in (False, True)}


# --- derivatives -----------------------------------------------------------------------------------------------------


@part
def _slope(prior: MarkovPrior, sites: Natural) -> MarkovPrior:
    """∂ log Z in all parameters of the prior, with the sites fixed.

    log Z sees a step only through m = A m′ and P = A P′Aᵀ + Q, (m′, P′) being the state before. With (η, J) of the data
    from then on, r = (I + J P)⁻¹(η − J m) and N = (I + J P)⁻¹ J, it changes by rᵀδm + ½ tr (r rᵀ − N) δP.
    """
    under = _under(prior, sites)
    states, chain, (nu, tau) = under.states, prior.chain, under.own
    last = jax.vmap(updated)(states.m, states.p, chain.h, nu, tau)
    *by_chain, mean, spread = jax.vmap(_step_slope)(states, chain, nu, tau, before(last[0]), before(last[1]))
    alpha = nu - tau * mean
    # (K + S⁻¹)⁻¹ on its diagonal, from that of hᵀx, whose site is (ν, τ)/(1 + τ noise)
    precision = tau * (1.0 - tau * spread)
    rows = to_rows(prior.layout, alpha)
    nothing = jax.tree.map(jnp.zeros_like, (prior.prior_variance, prior.layout))
    return MarkovPrior(rows, Chain(*by_chain), 0.5 * (alpha**2 - precision), *nothing)


@part
def _moved_slope(prior: MarkovPrior, sites: Natural, towards: Natural) -> MarkovPrior:
    """Change of the gradient along a move of the sites."""
    return jax.jvp(lambda sites: _slope(prior, sites), (sites,), (towards,))[1]


def _step_slope(
    at: Filtered, step: Chain, nu: Array, tau: Array, m: Vector, p: Matrix
) -> tuple[Matrix, Matrix, Vector, Array, Array]:
    """∂ log Z in A, Q and h of one step; mean and variance of hᵀx."""
    h = step.h
    eta, j = at.eta + h * nu, at.j + outer(h, h) * tau
    back = inverse(identity(at.p) + product(j, at.p))
    r, n = times(back, eta - times(j, at.m)), product(back, j)
    by_q = 0.5 * (outer(r, r) - n)
    by_a = 2.0 * product(by_q, product(step.a, p)) + outer(r, m)
    mean, seen = at.m + times(at.p, r), times(at.p, times(back, h))
    by_h = (nu - tau * dot(h, mean)) * mean - tau * seen
    return by_a, by_q, by_h, dot(h, mean), dot(h, seen)
