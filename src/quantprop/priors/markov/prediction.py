"""Predictions between, before and after the data: each new time needs its two neighbours only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from quantprop.core.gaussian import Normal
from quantprop.core.records import field
from quantprop.priors.base import Predictor
from quantprop.priors.markov.algebra import cholesky, dot, identity, inverse, outer, product, times
from quantprop.priors.markov.forms import Form
from quantprop.priors.markov.recursion import Chain, Filtered, cavity, moved_back, moved_on, pivot, updated


class Ties(NamedTuple):
    """Positions of new times among those of the data, and the steps to and from their neighbours."""

    left: Float[Array, " k"]  # how many data are not later
    order: Float[Array, " k"]  # of the new times
    to: Form  # from the left neighbour, or from itself where there is none
    onward: Form  # to the right neighbour, or to itself where there is none
    between: Form  # from the new time before it, in their order
    noise: Float[Array, " k"]


def ties_of(
    form: Callable[..., Form], noise: Float[Array, " k"], x: Float[Array, " n"], new: Float[Array, " k"]
) -> Ties:
    """By bisection of the sorted times; `form` has the steps between two times."""
    data, order = jnp.sort(x), jnp.argsort(new)
    left = jnp.searchsorted(data, new, side="right")
    earlier = jnp.where(left > 0, data[jnp.maximum(left - 1, 0)], new)
    later = jnp.where(left < len(x), data[jnp.minimum(left, len(x) - 1)], new)
    line = new[order]
    between = form(jnp.concatenate([line[:1], line[:-1]]), line)
    floats = (left.astype(x.dtype), order.astype(x.dtype))
    return Ties(*floats, form(earlier, new), form(new, later), between, noise)


class MarkovPredictor(Predictor):
    """The chain, its states under the sites, and the sites, by time along the last axis."""

    chain: Chain
    states: Filtered
    nu: Float[Array, " n"]
    tau: Float[Array, " n"]
    signed: bool = field(static=True)

    def at(self, mean: Float[Array, " k"], cross: Ties, own: Float[Array, "..."]) -> Normal:
        here = self._states(cross)
        change, variance = cavity(here, cross.to.h, self.signed)
        mean, variance = mean + change, variance + cross.noise
        return Normal(mean, variance) if own.ndim == 1 else Normal(mean, variance, self._joint(here, cross, variance))

    def _joint(self, here: Filtered, ties: Ties, variance: Float[Array, " k"]) -> Float[Array, "k k"]:
        order = ties.order.astype(int)
        here, left, to, onward = jax.tree.map(lambda x: x[..., order], (here, ties.left, ties.to, ties.onward))
        by_time = _covariances(self, here, left, to, onward, ties.between)
        own = jnp.eye(len(order), dtype=bool)
        return jnp.where(own, variance, jnp.zeros_like(by_time).at[order[:, None], order].set(by_time))

    def _states(self, ties: Ties) -> Filtered:
        """The states at new times, given all data."""
        left, n = ties.left.astype(int), self.tau.shape[0]
        some, more = left > 0, left < n
        m, p, h, nu, tau = _at((self.states.m, self.states.p, self.chain.h, self.nu, self.tau), left - 1)
        m, p = moved_on(*updated(m, p, h, nu, tau), ties.to.a, ties.to.q)
        eta, j, h, nu, tau = _at((self.states.eta, self.states.j, self.chain.h, self.nu, self.tau), left)
        eta, j = moved_back(eta + h * nu, j + outer(h, h) * tau, ties.onward.a, cholesky(ties.onward.q))
        return Filtered(
            jnp.where(some, m, 0.0),
            jnp.where(some, p, ties.to.p),
            jnp.where(more, eta, 0.0),
            jnp.where(more, j, 0.0),
        )


def _at(arrays: Any, times_: Int[Array, " k"]) -> Any:
    """Columns of arrays; those beyond an end are replaced by the caller."""
    return jax.tree.map(lambda x: x[..., jnp.clip(times_, 0, x.shape[-1] - 1)], arrays)


def _covariances(
    by: MarkovPredictor, here: Filtered, left: Array, to: Form, onward: Form, between: Form
) -> Float[Array, "k k"]:
    """Posterior covariances of new values, in the order of time.

    `ties` are the covariances of all values so far with the state in hand, given the data so far. A datum on the way
    changes them by its gain, and what is known from later data by (I + J P)⁻¹.
    """
    k, left = len(left), left.astype(int)

    def passed(i, ties):
        """Over a datum, from the state at its time."""
        p, h, tau = _at((by.states.p, by.chain.h, by.tau), i)
        seen = times(p, h)
        return ties - outer(ties @ h, seen) * (tau / pivot(tau, dot(h, seen)))

    def over_data(b, ties):
        ties = passed(left[b - 1], ties @ onward.a[..., b - 1].T)
        ties = jax.lax.fori_loop(left[b - 1] + 1, left[b], lambda i, t: passed(i, t @ by.chain.a[..., i].T), ties)
        return ties @ to.a[..., b].T

    def step(ties, b):
        ahead = jax.lax.cond(left[b] > left[b - 1], lambda: over_data(b, ties), lambda: ties @ between.a[..., b].T)
        p, j, h = here.p[..., b], here.j[..., b], to.h[..., b]
        ties = jnp.where((jnp.arange(k) == b)[:, None], h @ p, jnp.where(b > 0, ahead, 0.0))
        return ties, ties @ (inverse(identity(p) + product(j, p)) @ h)

    _, found = jax.lax.scan(step, jnp.zeros((k, len(to.h))), jnp.arange(k))
    upper = jnp.triu(found.T)
    return upper + jnp.triu(upper, 1).T
