"""Kalman filter and backward information filter of a chain of states under Gaussian sites, O(n) and parallel.

The chain is x_i = A_i x_{i−1} + q_i with q_i ~ N(0, Q_i), begun by A_1 = 0; a site is exp(ν h_iᵀx_i − ½ τ (h_iᵀx_i)²).
Sites come in information form, so that τ = 0 (no datum) needs no special case and τ < 0 only changes signs.

Time runs along the first axis and, in stretches of equal length, along the last: entry (l, b) is time b·L + l. All
stretches are filtered side by side. What a stretch as a whole does to the states before and after it is an element of
an associative product (Särkkä and García-Fernández 2021, Lemma 8), and a scan of these products gives each stretch the
state it begins with and what is known from beyond its end. With one stretch this is the usual sequential filter.

Marginals respond to small moves of the sites by two linear recursions, each the other's transpose. With Σ the posterior
covariance of the values v_i = h_iᵀx_i, means move by Σ δν and variances by −(Σ ∘ Σ) δτ where δν stands for δν − μ δτ.
For j before i, Σ_ij = w_iᵀ A_i L_{i−1} A_{i−1} ⋯ A_{j+1} k_j with

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
    Slots,
    Vector,
    accumulated,
    cholesky,
    dot,
    forward_solve,
    identity,
    inverse,
    outer,
    preceding,
    product,
    steps,
    symmetric,
    times,
    transposed,
)


class Chain(NamedTuple):
    """The states' prior, and the functional h that data see of each."""

    a: Float[Array, "l d d b"]
    q: Float[Array, "l d d b"]
    h: Float[Array, "l d b"]


class Element(NamedTuple):
    """A stretch of the chain with its data: given the state x before it, its last state is N(A x + b, C), and its data
    weigh x by exp(ηᵀx − ½ xᵀJ x).
    """

    a: Matrix
    b: Vector
    c: Matrix
    eta: Vector
    j: Matrix


class Filtered(NamedTuple):
    """For each time: its state given earlier data, N(m, P), and what later data say of it, exp(ηᵀx − ½ xᵀJ x)."""

    m: Float[Array, "l d b"]
    p: Float[Array, "l d d b"]
    eta: Float[Array, "l d b"]
    j: Float[Array, "l d d b"]


def pivot(tau: Array, s: Array) -> Array:
    """1 + τ s, by which an update divides; where a negative site makes it 0, the smallest number beside it."""
    found = 1.0 + tau * s
    return jnp.where(found == 0.0, jnp.finfo(found.dtype).eps, found)


def updated(m: Vector, p: Matrix, h: Vector, nu: Array, tau: Array) -> tuple[Vector, Matrix]:
    """A state after its own site."""
    seen = times(p, h)
    a = pivot(tau, dot(h, seen))
    return m + seen * ((nu - tau * dot(h, m)) / a), p - outer(seen, seen) * (tau / a)


def moved_on(m: Vector, p: Matrix, a: Matrix, q: Matrix) -> tuple[Vector, Matrix]:
    """The next state: A m, A P Aᵀ + Q."""
    return times(a, m), symmetric(product(product(a, p), transposed(a)) + q)


def moved_back(eta: Vector, j: Matrix, a: Matrix, root: Matrix) -> tuple[Vector, Matrix]:
    """Information on x_i = A x_{i−1} + R u, u ~ N(0, I), as information on x_{i−1}: one u after the other is
    integrated out.
    """

    def integrated(k, known):
        eta, j = known
        pushed = times(j, root[:, k])
        c = 1.0 + dot(root[:, k], pushed)
        return eta - pushed * (dot(root[:, k], eta) / c), j - outer(pushed, pushed) / c

    eta, j = steps(len(root), integrated, (eta, j))
    back = transposed(a)
    return times(back, eta), symmetric(product(product(back, j), a))


def filtered(chain: Chain, nu: Slots, tau: Slots) -> Filtered:
    """All states under their sites, by data before and data after."""
    begin, end = _ends(chain, nu, tau)

    def forward(state, at):
        (a, q, h), nu, tau = at
        m, p = moved_on(state[0], state[1], a, q)
        return updated(m, p, h, nu, tau), (m, p)

    def backward(known, at):
        a, root, h, nu, tau = at
        eta, j = known
        return moved_back(eta + h * nu, j + outer(h, h) * tau, a, root), known

    _, (m, p) = jax.lax.scan(forward, begin, (chain, nu, tau))
    roots = jax.vmap(cholesky)(chain.q)
    _, (eta, j) = jax.lax.scan(backward, end, (chain.a, roots, chain.h, nu, tau), reverse=True)
    return Filtered(m, p, eta, j)


def cavity(at: Filtered, h: Vector, signed: bool) -> tuple[Array, Array]:
    """Mean and variance of hᵀx without its own site.

    With P = L Lᵀ, (P⁻¹ + J)⁻¹ = L (I + LᵀJ L)⁻¹Lᵀ, whose pivots are at least 1. Where sites may be negative, so
    may P and J, and (I + P J)⁻¹ (m + P η, P h) takes its place.
    """
    if signed:
        left = times(transposed(inverse(identity(at.p) + product(at.p, at.j))), h)
        return dot(left, at.m + times(at.p, at.eta)), dot(left, times(at.p, h))
    root = cholesky(at.p)
    back = transposed(root)
    inner = cholesky(identity(at.p) + product(product(back, at.j), root), least=1.0)
    seen = forward_solve(inner, times(back, h))
    pull = forward_solve(inner, times(back, at.eta - times(at.j, at.m)))
    return dot(h, at.m) + dot(seen, pull), dot(seen, seen)


def _ends(chain: Chain, nu: Slots, tau: Slots) -> tuple[tuple[Vector, Matrix], tuple[Vector, Matrix]]:
    """The state that each stretch begins with, and what is known beyond its end."""
    nothing = jnp.zeros_like(chain.h[0]), jnp.zeros_like(chain.a[0])
    if nu.shape[1] == 1:
        return nothing, nothing
    whole = _stretches(chain, nu, tau)
    before, after = accumulated(joined, whole), accumulated(lambda later, it: joined(it, later), whole, reverse=True)
    return (preceding(before.b), preceding(before.c)), (preceding(after.eta, True), preceding(after.j, True))


def _stretches(chain: Chain, nu: Slots, tau: Slots) -> Element:
    """Each stretch as one element, its steps taken in one after the other."""

    def longer(whole: Element, at):
        (a, q, h), nu, tau = at
        b, c = moved_on(whole.b, whole.c, a, q)
        through, seen = product(a, whole.a), times(c, h)
        divisor = pivot(tau, dot(h, seen))
        left, sees = (nu - tau * dot(h, b)) / divisor, times(transposed(through), h)
        gain = tau / divisor
        return Element(
            through - outer(seen, sees) * gain,
            b + seen * left,
            c - outer(seen, seen) * gain,
            whole.eta + sees * left,
            whole.j + outer(sees, sees) * gain,
        ), None

    vector, matrix = jnp.zeros_like(chain.h[0]), jnp.zeros_like(chain.a[0])
    return jax.lax.scan(longer, Element(identity(matrix), vector, matrix, vector, matrix), (chain, nu, tau))[0]


def joined(one: Element, two: Element) -> Element:
    """A stretch followed by another."""
    back = inverse(identity(one.c) + product(one.c, two.j))
    through = product(two.a, back)
    pulled = product(two.j, product(back, one.a))
    return Element(
        product(through, one.a),
        times(through, one.b + times(one.c, two.eta)) + two.b,
        symmetric(product(product(through, one.c), transposed(two.a))) + two.c,
        times(transposed(one.a), times(transposed(back), two.eta - times(two.j, one.b))) + one.eta,
        symmetric(product(transposed(one.a), pulled)) + one.j,
    )


class Flow(NamedTuple):
    """Propagates a change of a site to the values before and after it."""

    a: Float[Array, "l d d b"]
    h: Float[Array, "l d b"]
    k: Float[Array, "l d b"]
    w: Float[Array, "l d b"]
    tau: Slots


class Change(NamedTuple):
    """The change of a state, by means and by variances: Σ_j φ_j δν_j and Σ_j φ_j φ_jᵀ δτ_j."""

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
    """The map of each whole stretch for a change before it, and for one after it."""

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
