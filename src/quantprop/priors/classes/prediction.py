"""Predictions of the functions of several classes, and of combinations of them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from quantprop.gaussian import Normal
from quantprop.priors.base import Predictor
from quantprop.priors.classes.stack import Stack


class ClassesCross(NamedTuple):
    """What ties new values Σ_c w_c f_c(x) to the data: covariances of every class (or one for all), and the weights."""

    k: Float[Array, "classes m k"]
    weights: Float[Array, "k classes"]


class ClassesPredictor(Predictor):
    """Weights of the means, and the factors of every class and of v."""

    alpha: Float[Array, "classes m"]
    root: Float[Array, "classes m"]  # D½
    inverse: Float[Array, "classes m m"]  # L⁻¹ of I + D½ K D½
    lower: Float[Array, "m m"]  # of M

    def apart(self, k: Float[Array, "classes m k"]) -> tuple[Array, Array, Array]:
        """Of every class, kᵀα and kᵀ E k, the variance explained given v; and L⁻¹ E k, what v adds."""

        def one(c):
            cross = k[jnp.minimum(c, len(k) - 1)]
            v = self.inverse[c] @ (self.root[c][:, None] * cross)
            tie = solve_triangular(self.lower, self.root[c][:, None] * (self.inverse[c].T @ v), lower=True)
            return cross.T @ self.alpha[c], jnp.sum(v**2, axis=0), tie

        return jax.lax.map(one, jnp.arange(len(self.alpha)))

    def functions(
        self, k: Float[Array, "classes m k"], own: Float[Array, "classes k"]
    ) -> tuple[Float[Array, "k classes"], Float[Array, "k classes classes"]]:
        """The functions of all classes at k new inputs: means less the prior's, and covariances between classes."""
        pulled, explained, tie = self.apart(k)
        return -pulled.T, jnp.einsum("ank,bnk->kab", tie, tie) + jnp.eye(len(own)) * (own - explained).T[:, None, :]

    def at(self, mean: Float[Array, " k"], cross: ClassesCross, own: Float[Array, "..."]) -> Normal:
        k, w = cross
        pulled, explained, tie = self.apart(k)
        mean = mean - jnp.sum(w.T * pulled, axis=0)
        tied = jnp.einsum("kc,cnk->nk", w, tie)
        if own.ndim == 1:
            return Normal(mean, own - jnp.sum(w.T**2 * explained, axis=0) + jnp.sum(tied**2, axis=0))

        def one(c):
            v = self.inverse[c] @ (self.root[c][:, None] * k[jnp.minimum(c, len(k) - 1)]) * w[:, c]
            return v.T @ v

        joint = own - jnp.sum(jax.lax.map(one, jnp.arange(len(self.alpha))), axis=0) + tied.T @ tied
        return Normal(mean, jnp.diagonal(joint), joint)


class StackPredictor(Predictor):
    """The posterior of the whitened values at the points of all classes, N(centre, P); new values are tied by V."""

    covariance: Float[Array, "cm cm"]
    centre: Float[Array, " cm"]

    def functions(
        self, v: Float[Array, "s m k"], own: Float[Array, "classes k"]
    ) -> tuple[Float[Array, "k classes"], Float[Array, "k classes classes"]]:
        """The functions of all classes at k new inputs: means less the prior's, and covariances between classes."""
        stack = Stack(v[None], len(own))
        left = own - jnp.sum(v**2, axis=1)
        return stack.received(self.centre).T, stack.covariances(self.covariance) + jnp.eye(len(own)) * left.T[:, None]

    def at(self, mean: Float[Array, " k"], cross: ClassesCross, own: Float[Array, "..."]) -> Normal:
        v, w = cross
        stack = Stack(v[None], w.shape[1])
        mixed = stack.mixed(v, w.T)
        mean, inner = mean + mixed.T @ self.centre, self.covariance @ mixed
        if own.ndim == 1:
            return Normal(mean, own + jnp.sum(mixed * (inner - mixed), axis=0))
        joint = own + mixed.T @ (inner - mixed)
        return Normal(mean, jnp.diagonal(joint), joint)


class InFull(Predictor):
    """The predictor of the covariance written out, for sites of either sign."""

    rows: Predictor
    weights: Float[Array, "n classes"]
    datum: Int[Array, " n"]

    def at(self, mean: Float[Array, " k"], cross: ClassesCross, own: Float[Array, "..."]) -> Normal:
        k = jnp.broadcast_to(cross.k, (cross.weights.shape[1], *cross.k.shape[1:]))[:, self.datum]
        return self.rows.at(mean, jnp.einsum("nc,cnk,kc->nk", self.weights, k, cross.weights), own)
