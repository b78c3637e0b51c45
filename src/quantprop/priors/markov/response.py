"""How marginals of a chain respond to small moves of the sites: two linear recursions, each the other's transpose.

With Σ the posterior covariance of the values v_i = h_iᵀx_i, means move by Σ δν and variances by −(Σ ∘ Σ) δτ where δν
stands for δν − μ δτ. For j before i, Σ_ij = w_iᵀ A_i L_{i−1} A_{i−1} ⋯ A_{j+1} k_j with

    k = P h/(1 + τ hᵀP h),   L = I − τ k hᵀ,   w = (I + (J + τ h hᵀ) P)⁻¹ h,

(P, J) as in `Filtered`: k is what a site does to its own state, L A what the filter makes of an earlier change, w how
the value follows its state given later data. Squares of such products are the same products of x xᵀ instead of x.
Nothing here depends on the moves but what is added at each step, and P, J and their inverses are needed once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.priors.markov.algebra import (
    Matrix,
    Vector,
    accumulated,
    dot,
    identity,
    inverse,
    outer,
    preceding,
    product,
    times,
    transposed,
)
from quantprop.priors.markov.recursion import Chain, Filtered, pivot
from quantprop.priors.markov.slots import Slots


class Flow(NamedTuple):
    """What carries a change of a site to the values before and after it."""

    a: Float[Array, "l d d b"]
    h: Float[Array, "l d b"]
    k: Float[Array, "l d b"]
    w: Float[Array, "l d b"]
    tau: Slots


class Change(NamedTuple):
    """Of a state, by means and by variances: Σ_j φ_j δν_j and Σ_j φ_j φ_jᵀ δτ_j."""

    x: Vector
    xx: Matrix


def flow_of(chain: Chain, states: Filtered, tau: Slots) -> Flow:
    """The flow under sites of precision τ."""

    def at(state: Filtered, h: Vector, tau: Array) -> tuple[Vector, Vector]:
        seen = times(state.p, h)
        later = times(inverse(identity(state.p) + product(state.j, state.p)), h)
        return seen / pivot(tau, dot(h, seen)), later / pivot(tau, dot(seen, later))

    return Flow(chain.a, chain.h, *jax.vmap(at)(states, chain.h, tau), tau)


def flowed(flow: Flow, by_nu: Slots, by_tau: Slots) -> tuple[Slots, Slots]:
    """Σ δν and (Σ ∘ Σ) δτ without what each value owes to its own site."""

    def forward(last: Change, at) -> tuple[Change, tuple[Array, Array]]:
        (a, h, k, w, tau), by_nu, by_tau = at
        now = _through(a, last)
        return _added(_let_through(now, h, k, tau), k, by_nu, by_tau), _seen(now, w)

    def backward(later: Change, at) -> tuple[Change, tuple[Array, Array]]:
        (a, h, k, w, tau), by_nu, by_tau = at
        now = _added(_let_through(later, k, h, tau), w, by_nu, by_tau)
        return _through(transposed(a), now), _seen(later, k)

    begin, end = _transitions(flow)
    moves = (flow, by_nu, by_tau)
    earlier = _along(forward, moves, begin, reverse=False)
    later = _along(backward, moves, end, reverse=True)
    return earlier[0] + later[0], earlier[1] + later[1]


def _through(a: Matrix, change: Change) -> Change:
    return Change(times(a, change.x), product(product(a, change.xx), transposed(a)))


def _let_through(change: Change, h: Vector, k: Vector, tau: Array) -> Change:
    """(I − τ k hᵀ) x, and on both sides of x xᵀ."""
    seen = times(change.xx, h)
    mixed = outer(k, seen) * tau
    twice = outer(k, k) * (tau**2 * dot(h, seen))
    return Change(change.x - k * (tau * dot(h, change.x)), change.xx - mixed - transposed(mixed) + twice)


def _added(change: Change, k: Vector, by_nu: Array, by_tau: Array) -> Change:
    return Change(change.x + k * by_nu, change.xx + outer(k, k) * by_tau)


def _seen(change: Change, w: Vector) -> tuple[Array, Array]:
    return dot(w, change.x), dot(w, times(change.xx, w))


def _transitions(flow: Flow) -> tuple[Matrix, Matrix]:
    """What each stretch as a whole makes of a change before it, and of one after it."""

    def longer(whole: Matrix, at) -> tuple[Matrix, None]:
        a, h, k, tau = at
        moved = product(a, whole)
        return moved - outer(k, times(transposed(moved), h)) * tau, None

    whole, _ = jax.lax.scan(longer, identity(flow.a[0]), (flow.a, flow.h, flow.k, flow.tau))
    return whole, transposed(whole)


def _along(step, moves, transition: Matrix, reverse: bool) -> tuple[Slots, Slots]:
    """The recursion over all times: within each stretch from nothing, then from what the stretches before it leave."""
    nothing = Change(jnp.zeros_like(transition[0]), jnp.zeros_like(transition))
    start = nothing
    if transition.shape[-1] > 1:
        left, _ = jax.lax.scan(step, nothing, moves, reverse=reverse)
        _, every = accumulated(_joined, (transition, left), reverse)
        start = jax.tree.map(lambda x: preceding(x, reverse), every)
    return jax.lax.scan(step, start, moves, reverse=reverse)[1]


def _joined(first: tuple[Matrix, Change], then: tuple[Matrix, Change]) -> tuple[Matrix, Change]:
    """Two stretches as one: what it makes of a change before it, and what it leaves of its own."""
    (passed, change), (through, added) = first, then
    return product(through, passed), jax.tree.map(jnp.add, added, _through(through, change))
