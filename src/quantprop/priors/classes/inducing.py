"""Several functions by their values at inducing points, seen through differences: O(n C² M²) and one (C M)³ a sweep.

A function is f_c = g_c + ε_c, with g_c = V_cᵀ w_c and what the points leave unexplained, ε_c ~ N(0, d_c) at every datum
(`priors.inducing`). As in `priors.classes.prior` a datum of class y has sites (ν_j, τ_j) on v − f_j, v = u + f_y. With
κ = 1, of EP and QP, ε is integrated out: with a = 1 + τ d the sites on v − g_j are s = τ/a, r = ν/a, and v − g_y has
precision s_y = 1/(ω + d_y). With σ = Σ_c s_c and ŝ = s/σ,

    v | g ~ N(Σ_c ŝ_c g_c + Σ r/σ, 1/σ),

and integrating v out leaves the precision diag s − s sᵀ/σ and the pull ŝ Σ r − r on a datum's C values g: that of w is
B = I + Σ (blocks V_c diag(s_c) V_cᵀ) − Σ A σ Aᵀ, A = Σ_c ŝ_c e_c ⊗ V_c. With P = B⁻¹ and h = v − f,

    Var(v − g_c) = 1/σ + Aᵀ P A − 2 V_cᵀ (P A)_c + V_cᵀ P_cc V_c.

κ = 0 is the variational bound: sites are on u + g_y − g_j, and d_y + d_j is added to the variance of each row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.core.records import Record, field
from quantprop.core.sites import Marginal
from quantprop.numerics.triangular import gram_of_upper, triangular_inverse
from quantprop.priors.base import Conditioned, Prior
from quantprop.priors.classes.layout import LAYOUTS, Layout, without_datum
from quantprop.priors.classes.stack import Grid, Square, Stack, StackPredictor


class Local(Record):
    """Sites of every observation on its values g, class by class."""

    a: Grid  # 1 for the label
    s: Grid
    total: Float[Array, " n"]  # σ

    @property
    def share(self) -> Grid:
        """ŝ."""
        return self.s / self.total


class StackFactor(Record):
    """The posterior of w, and Var(v − g_c)."""

    covariance: Square  # P
    centre: Float[Array, " cm"]
    spread: Grid


class ClassesInducingPrior(Prior):
    """N(mean, K) of all rows h; `labels` are the data's classes, as floats; `rows` says what a row is (`layout`)."""

    mean: Float[Array, " rows"]
    v: Float[Array, "k s m c"]  # `Stack`
    residual: Float[Array, "s n"]  # d
    own: Float[Array, ""]  # ω
    labels: Float[Array, " n"]
    kappa: Float[Array, ""]
    classes: int = field(static=True)
    rows: str = field(default="differences", static=True)  # of `LAYOUTS`

    @property
    def layout(self) -> Layout:
        """Which row is which."""
        return LAYOUTS[self.rows](self.labels, self.classes, len(self.mean))

    @property
    def stack(self) -> Stack:
        """V."""
        return Stack(self.v, self.classes)

    @property
    def d(self) -> Grid:
        """The residual variance of every class."""
        return jnp.broadcast_to(self.residual, (self.classes, len(self.labels)))

    @property
    def largest_joint(self) -> int:
        """None at all where the response of a row to its site is not its covariance (κ = 0)."""
        return 1024 if np.asarray(self.kappa) == 1.0 else 0

    def for_shares(self, share: Float[Array, " rows"]) -> ClassesInducingPrior:
        """All rows have the same: weights are written out."""
        return replace(self, kappa=jnp.asarray(share, dtype=jnp.float64)[0])

    def is_psd(self) -> bool:
        return bool(jnp.isfinite(self.v).all())

    def scaled(self, by: Any) -> ClassesInducingPrior:
        return replace(self, v=jnp.sqrt(by) * self.v, residual=by * self.residual, own=by * self.own)

    def variances(self) -> Float[Array, " rows"]:
        explained = jnp.moveaxis(jnp.sum(self.v**2, axis=2), 0, 1).reshape(self.residual.shape)
        return self.own + self._pairs(explained + self.residual)

    def _pairs(self, each: Float[Array, "s n"]) -> Float[Array, " rows"]:
        """The sum of a number of a row's functions."""
        grid = jnp.broadcast_to(each, (self.classes, len(self.labels)))
        return self.layout.sums(grid)

    def local(self, sites: Natural) -> Local:
        """Precisions of the sites on v − g."""
        layout, d = self.layout, self.kappa * self.d
        tau = layout.grid(sites.tau, 0.0)
        a = 1.0 + tau * d
        s = layout.set_omitted(tau / a, 1.0 / (self.own + layout.of_omitted(d)))
        return Local(a, s, jnp.sum(s, axis=0) + layout.alone(self.own))

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        """Proper where a, σ and B are positive: the posterior of (w, ε, u) is taken apart into that of w and the others
        given w, whatever the signs of the sites.
        """
        stack, local, layout = self.stack, self.local(sites), self.layout
        mixed = local.s / jnp.sqrt(local.total)
        precision = stack.gram(local.s, mixed) + jnp.eye(stack.size)
        lower = jnp.linalg.cholesky(precision)
        covariance = gram_of_upper(triangular_inverse(lower).T)
        own, tied = stack.forms(covariance, local.share)
        away = own - 2.0 * tied + jnp.sum(local.share * tied, axis=0)  # Var(Σ ŝ g − g_c)
        spread = away + 1.0 / local.total
        centre, alpha, shift = self._means(covariance, local, sites)
        rest, d = (1.0 - self.kappa) * self._pairs(self.residual), self.kappa * self.d
        variance = layout.rows(d / local.a + spread / local.a**2) + rest
        left = 1.0 - local.share - local.s * away  # 1 − s Var(v − g)
        b = layout.rows(left / local.a) - sites.tau * rest
        own_share = layout.own_share(local.s, local.total, self.own)
        size = jnp.sum(jnp.log(local.a)) - jnp.sum(jnp.log(own_share)) + jnp.sum(sites.tau * rest)
        size = size + 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower)))
        proper = jnp.all(local.a > 0) & jnp.all(local.total > 0) & jnp.isfinite(size)
        marginals = Marginal(self.mean + shift, variance, alpha, b)
        return Conditioned(sites, marginals, size, proper, StackFactor(covariance, centre, spread))

    def _means(self, covariance: Square, local: Local, sites: Natural) -> tuple[Array, Array, Array]:
        """The posterior mean of w; α, and the posterior minus the prior mean of h."""
        nu = self.layout.grid(sites.nu - sites.tau * self.mean, 0.0)
        r = nu / local.a
        pull = local.share * jnp.sum(r, axis=0) - r
        centre = covariance @ self.stack.sent(pull)
        g = self.stack.received(centre)
        apart = jnp.sum(local.share * g, axis=0) + jnp.sum(r, axis=0) / local.total - g  # v − g
        alpha, shift = r - local.s * apart, (apart + self.kappa * self.d * nu) / local.a
        return centre, self.layout.rows(alpha), self.layout.rows(shift)

    def follow(self, given: Conditioned, nu: Float[Array, " rows"]) -> Marginal:
        sites = Natural(nu, given.sites.tau)
        _, alpha, shift = self._means(given.factor.covariance, self.local(sites), sites)
        return Marginal(self.mean + shift, given.marginals.variance, alpha, given.marginals.b)

    def functions_without(self, sites: Natural) -> tuple[Float[Array, "n classes"], Float[Array, "n classes classes"]]:
        """The functions at each datum, less their prior means, had the datum not been seen: ε is then as before."""
        factor, local = self.condition(sites, signed=False).factor, self.local(sites)
        r = self.layout.grid(sites.nu - sites.tau * self.mean, 0.0) / local.a
        g = self.stack.received(factor.centre)
        mean, covariance = without_datum(
            g, self.stack.covariances(factor.covariance), local.s, r, self.layout.alone(self.own)
        )
        return mean, covariance + jnp.eye(self.classes) * self.d.T[:, None, :]

    def evidence_slope(self, given: Conditioned, signed: bool) -> Prior:
        """∂/∂V_c = −α_c w_c − s_c ((P V)_cc − (P A)_c) and ∂/∂d_c = ½ κ (α_c² − s_c + s_c² Var(v − g_c)), w and P being
        those of the posterior; for κ = 0 the latter is −½ τ, of the datum's own class −½ Σ τ.
        """
        local, layout, factor, stack = self.local(given.sites), self.layout, given.factor, self.stack
        alpha = layout.balanced(given.marginals.alpha)
        blocks, w = stack.blocks(factor.covariance), factor.centre.reshape(self.classes, -1, 1)

        def shared(grid: Array) -> Array:
            return jnp.sum(grid, axis=0, keepdims=True) if len(self.residual) == 1 else grid

        def one(v: Array, alpha: Array, s: Array, share: Array) -> Array:
            tied = (factor.covariance @ stack.mixed(v, share)).reshape(self.classes, *v.shape[1:])
            return shared(-alpha[:, None] * w - s[:, None] * (jnp.matmul(blocks, v) - tied))

        by_v = stack.every(one, alpha, local.s, local.share)
        tau = layout.grid(given.sites.tau, 0.0)
        bound = layout.set_omitted(tau, jnp.sum(tau, axis=0))
        exact = alpha**2 - local.s + local.s**2 * factor.spread
        by_d = 0.5 * shared(self.kappa * exact - (1.0 - self.kappa) * bound)
        nothing = jnp.zeros(())
        still = replace(self, own=nothing, labels=jnp.zeros_like(self.labels), kappa=nothing)
        return replace(still, mean=given.marginals.alpha, v=by_v, residual=by_d)

    def predictor(self, sites: Natural, signed: bool) -> StackPredictor:
        factor = self.condition(sites, signed).factor
        return StackPredictor(factor.covariance, self.layout.sign * factor.centre)
