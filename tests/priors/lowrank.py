"""A second backend, as short as the contract allows: low rank plus diagonal, everything else by differentiation.

With V = L_uu⁻¹ K_uf and d_n = k_nn − |V_n|² the prior is VᵀV + diag d (Quiñonero-Candela and Rasmussen 2005, FITC).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from quantprop.core.gaussian import Normal
from quantprop.core.sites import Marginal
from quantprop.priors.base import Conditioned, Cost, Predictor, Prior, Process
from quantprop.storage import register


@register
class LowRank(Process):
    points: Any

    def prepare(self, kernel, x):
        return x

    def prior(self, kernel, mean, prepared):
        v = self.cross(kernel, prepared, prepared)
        return LowRankPrior(mean, v, kernel.diagonal(prepared) - jnp.sum(v**2, axis=0))

    def cross(self, kernel, x, new):
        lower = jnp.linalg.cholesky(kernel.cross(self.points, self.points))
        return solve_triangular(lower, kernel.cross(self.points, new), lower=True)

    def cost(self, n):
        one = 8 * n * len(self.points)
        return Cost(12 * one, one, 1.0 * n * len(self.points) ** 2, f"a prior of low rank over {n} rows", "12 factors")


class LowRankPrior(Prior):
    mean: Any
    v: Any
    d: Any

    def scaled(self, by):
        return LowRankPrior(self.mean, jnp.sqrt(by) * self.v, by * self.d)

    def variances(self):
        return jnp.sum(self.v**2, axis=0) + self.d

    def condition(self, sites, signed):
        a, pull = 1.0 + sites.tau * self.d, sites.nu - sites.tau * self.mean
        lower = jnp.linalg.cholesky(jnp.eye(len(self.v)) + (self.v * (sites.tau / a)) @ self.v.T)
        inner = solve_triangular(lower, self.v, lower=True)
        spread = jnp.sum(inner**2, axis=0)
        g = inner.T @ (inner @ (pull / a))
        marginals = Marginal(
            self.mean + (g + self.d * pull) / a,
            self.d / a + spread / a**2,
            (pull - sites.tau * g) / a,
            (1.0 - sites.tau / a * spread) / a,
        )
        size = jnp.sum(jnp.log(a)) + 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower)))
        return Conditioned(sites, marginals, size, jnp.all(a > 0) & jnp.isfinite(size), None)

    def predictor(self, sites, signed):
        a, pull = 1.0 + sites.tau * self.d, sites.nu - sites.tau * self.mean
        lower = jnp.linalg.cholesky(jnp.eye(len(self.v)) + (self.v * (sites.tau / a)) @ self.v.T)
        return LowRankPredictor(lower, solve_triangular(lower, self.v @ (pull / a), lower=True))


class LowRankPredictor(Predictor):
    lower: Any
    c: Any

    def at(self, mean, cross, own):
        inner = solve_triangular(self.lower, cross, lower=True)
        if own.ndim == 1:
            return Normal(mean + inner.T @ self.c, own - jnp.sum(cross**2, axis=0) + jnp.sum(inner**2, axis=0))
        joint = own - cross.T @ cross + inner.T @ inner
        return Normal(mean + inner.T @ self.c, jnp.diagonal(joint), joint)
