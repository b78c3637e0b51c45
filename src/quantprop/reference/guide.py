"""The Gaussian in whose coordinates the samplers move, and one step of elliptical slice sampling there.

p(f | y) ∝ N(f | m, K) Π p(y_i | f_i) is also q(f) Π p(y_i | f_i)/t_i(f_i), where q ∝ N(f | m, K) Π t_i(f_i) for
Gaussian sites t_i of any kind: a sampler for a Gaussian prior may take q as its prior and the ratios as its likelihood.
What it samples is the same; with sites like EP's it moves ten times as fast (Fagan, Bhandari and Cunningham 2016,
*Elliptical slice sampling with expectation propagation*). Sites of 0 give the prior itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.data import inputs
from quantprop.core.gaussian import Natural, Vector
from quantprop.core.records import Record
from quantprop.inference.inferring import infer
from quantprop.inference.solution import Solution
from quantprop.likelihoods.base import Datum, Likelihood, Scalar, encode
from quantprop.methods import EP
from quantprop.model import Model

SITE_FRACTION = 0.8  # weaker sites than EP's: the tails are wider than the posterior's, so no chain gets stuck


class Guide(Record):
    """q(f) at n training inputs, and what it implies for the conditional means at k new ones.

    With u ~ N(0, I), (f, E[f_new | f]) = centre + factor u. Rows of `factor` beyond n are the new inputs'.
    """

    likelihood: Likelihood
    data: Datum
    centre: Vector  # n + k
    factor: Vector  # (n + k) × n
    sites: Natural
    pull: Vector  # ν − τ μ: the sites' slope at q's mean μ
    log_normalizer: Scalar  # log ∫ N(f | m, K) Π t_i(f_i) df, with sites measured at μ, t_i(μ_i) = 1
    left: Vector  # Var[f_new | f]

    def residual(self, d: Float[Array, " n+k"]) -> Scalar:
        """Σ log p(y_i | f_i) − log t_i(f_i) at f = centre + d: the log-likelihood that q as a prior leaves."""
        n = len(self.pull)
        d = d[:n]
        log_prob = jax.vmap(self.likelihood.log_prob)(self.data, self.centre[:n] + d)
        return jnp.sum(log_prob - self.pull * d + 0.5 * self.sites.tau * d * d)


def guiding_sites(solution: Solution) -> Natural:
    """Sites to be guided by: a fraction of a solution's, without those of negative precision."""
    usable = np.isfinite(solution.sites.nu) & (solution.sites.tau > 0)
    return Natural(*(np.where(usable, SITE_FRACTION * part, 0.0) for part in (solution.sites.nu, solution.sites.tau)))


def guide(
    model: Model, X: Any, y: Any, sites: Natural | None, X_new: Any, exposure: Any, trials: Any
) -> Guide:  # fmt: skip
    """The guide of a model given data; without sites, by those of EP."""
    x = inputs(X, "X")
    new = x[:0] if X_new is None else inputs(X_new, "X_new", features=x.shape[1])
    likelihood = model.plain_likelihood
    data = encode(likelihood, y, (len(x),), exposure, trials)
    if sites is None:
        sites = guiding_sites(infer(model, x, y, EP(), exposure=exposure, trials=trials))
    root, across, own = _whitened(model, x, new)
    m, m_new = model.prior_mean(x), model.prior_mean(new) if len(new) else np.zeros(0)
    nu, tau = np.asarray(sites.nu, dtype=np.float64), np.asarray(sites.tau, dtype=np.float64)
    precision = np.eye(len(x)) + root.T @ (tau[:, None] * root)  # of the whitened z, f = m + root z, under q
    lower = np.linalg.cholesky(precision)
    z = np.linalg.solve(precision, root.T @ (nu - tau * m))
    rows = np.concatenate([root, across])
    centre = np.concatenate([m, m_new]) + rows @ z
    pull = nu - tau * centre[: len(x)]
    log_normalizer = -np.sum(np.log(np.diag(lower))) - 0.5 * (centre[: len(x)] - m) @ pull
    factor = np.linalg.solve(lower, rows.T).T
    left = np.maximum(own - np.sum(across**2, axis=1), len(x) * np.finfo(float).eps * own)  # above its rounding
    return Guide(likelihood, data, centre, factor, Natural(nu, tau), pull, log_normalizer, left)


def _whitened(model: Model, x: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """root with K = root rootᵀ, across with Cov(f_new, z) = across for f = m + root z, and the variances of f_new.

    By eigenvectors: no jitter is added to a kernel matrix of low numerical rank. Directions whose eigenvalue is below
    its rounding hold nothing that double precision can tell from 0.
    """
    kernel = model.plain_kernel
    values, vectors = np.linalg.eigh(np.asarray(kernel.gram(x)))
    kept = values > len(x) * np.finfo(float).eps * values[-1]
    scale = np.sqrt(np.where(kept, values, 0.0))
    if not len(new):
        return vectors * scale, np.zeros((0, len(x))), np.zeros(0)
    across = np.asarray(kernel.cross(new, x)) @ (vectors * np.where(kept, 1.0 / np.where(kept, scale, 1.0), 0.0))
    return vectors * scale, across, np.asarray(kernel.diagonal(new))


class ChainState(NamedTuple):
    """State of a chain: d, of prior N(0, factor factorᵀ), and the log-likelihood there."""

    d: Float[Array, " n"]
    value: Scalar


class SliceBracket(NamedTuple):
    """The last angle tried, the log-likelihood there, and the ends between which the next one is drawn."""

    key: Array
    angle: Scalar
    value: Scalar
    lower: Scalar
    upper: Scalar


def start(key: Array, log_likelihood: Callable, factor: Float[Array, "n r"]) -> ChainState:
    d = factor @ jax.random.normal(key, factor.shape[1:])
    return ChainState(d, log_likelihood(d))


def step(
    key: Array, state: ChainState, log_likelihood: Callable, factor: Float[Array, "n r"], beta: Scalar = 1.0
) -> ChainState:  # fmt: skip
    """A move that leaves N(d | 0, factor factorᵀ) exp(beta · log_likelihood(d)) invariant.

    One product with `factor` per step; along the ellipse everything linear in d follows by cosine and sine.
    """
    for_other, for_level, for_ends, key = jax.random.split(key, 4)
    other = factor @ jax.random.normal(for_other, factor.shape[1:])  # Fig. 2, line 1: the ellipse
    level = beta * state.value - jax.random.exponential(for_level)  # line 2: log y = log L(f) + log u
    upper = jax.random.uniform(for_ends, maxval=2.0 * jnp.pi)  # line 3; the first angle is drawn from the whole ellipse

    def at(angle: Scalar) -> Float[Array, " n"]:
        return state.d * jnp.cos(angle) + other * jnp.sin(angle)  # line 4

    def tried(bracket: SliceBracket) -> SliceBracket:
        """Lines 8 to 10: a rejected angle becomes an end; angle 0, where the chain is, stays inside."""
        key, _, _, lower, upper = bracket
        key, drawn = jax.random.split(key)
        angle = jax.random.uniform(drawn, minval=lower, maxval=upper)
        lower, upper = jnp.where(angle < 0, angle, lower), jnp.where(angle < 0, upper, angle)
        return SliceBracket(key, angle, log_likelihood(at(angle)), lower, upper)

    first = SliceBracket(key, upper, -jnp.inf, upper - 2.0 * jnp.pi, upper)
    end = jax.lax.while_loop(lambda bracket: ~(beta * bracket.value > level), tried, first)
    return ChainState(at(end.angle), end.value)
