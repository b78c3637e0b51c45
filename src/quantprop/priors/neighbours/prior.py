"""The prior VᵀV + R, of which every row sees R of its nearest rows only, under Gaussian sites.

With every row's conditional N(a_i + w_iᵀu, r_i) given *earlier* neighbours the sites' Gaussian integral is that of
u ~ N(0, I) over the product of rows: with s = τ/(1 + τr) and ρ = ν/(1 + τr),

    B = I + Σ s w wᵀ,   h = Σ (ρ − s a) w,   log ∫ = Σ (−½ log(1 + τr) + ρ a + ½ ρ ν r − ½ s a²) + ½ hᵀB⁻¹h − ½ log |B|.

A row's cavity is its conditional given neighbours on *all* sides, with u as under all sites but the row's own: with
that conditional's a, w, r, p = τ/(1 + τr), q = wᵀB⁻¹w, g = wᵀB⁻¹h and κ = ν/(1 + τr) − p a,

    mean a + (g − κ q)/(1 − p q),   variance r + q/(1 − p q).

Its marginal is its cavity times its whole site. Where all other rows are neighbours, both are exact. Otherwise
marginals and log integral are not of one Gaussian: the evidence moves with the sites, and responses are not symmetric.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import Record, field
from quantprop.core.sites import Marginal
from quantprop.numerics.triangular import triangular_inverse
from quantprop.priors.base import Conditioned, Predictor, Prior
from quantprop.priors.neighbours.bases import Bases
from quantprop.priors.neighbours.conditionals import Conditional, Residual, Rows, conditional, indices

STORED = 2**32  # bytes of covariances up to which sweeps share them


class Factor(Record):
    """The posterior of u, and every row given u and its neighbours."""

    inverse: Float[Array, "M M"]  # L_B⁻¹
    centre: Float[Array, " M"]  # B⁻¹ h
    rows: tuple[Conditional, Conditional]  # given earlier neighbours, and given those on all sides


class NeighboursPrior(Prior):
    """N(mean, VᵀV + R by neighbours). Learned are `bases` and `mean`."""

    one_gaussian: ClassVar[bool] = False

    mean: Float[Array, " n"]
    bases: Bases
    x: Float[Array, "n d"]
    earlier: Float[Array, "n m"]
    around: Float[Array, "n m"]
    held: tuple[Residual, Rows, Rows] | None = None  # while many sweeps need them
    moving: bool = field(default=False, static=True)  # whether the points are learned

    @property
    def largest_joint(self) -> int:
        """None: rows that are no neighbours have no covariance of their own."""
        return 0

    def seen(self) -> tuple[Residual, Rows, Rows]:
        """The residual covariance; each row with its earlier neighbours, and with those on all sides."""
        if self.held is not None:
            return self.held
        bases, x = self.bases.still(self.moving), jax.lax.stop_gradient(self.x)
        v = bases.whitened(bases.kernel, x)
        residual = Residual(bases, bases.kernel, x, v)
        return residual, residual.rows(x, v, self.earlier), residual.rows(x, v, self.around)

    def for_sweeps(self) -> NeighboursPrior:
        residual, *rows = self.seen()
        n, m = self.earlier.shape
        if 2 * 8 * n * m**2 <= STORED:
            rows = [residual.stored(part) for part in rows]
        return replace(self, held=(residual, *rows))

    def for_derivatives(self, factor: Any) -> tuple[NeighboursPrior, Any]:
        return replace(self, held=None), None

    def scaled(self, by: Any) -> NeighboursPrior:
        return replace(self, bases=replace(self.bases, scale=by * self.bases.scale), held=None)

    def variances(self) -> Float[Array, " n"]:
        return self.bases.scale * self.bases.kernel.diagonal(self.x)

    def is_psd(self) -> bool:
        return all(bool(jnp.isfinite(basis.whitening()).all()) for basis in self.bases.parts)

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        residual, *rows = self.seen()
        pulled = self._pulled(sites)
        row, other = (conditional(part, residual, pulled) for part in rows)
        inverse, sent = posterior_of_u(row, pulled)
        factor = Factor(inverse, inverse.T @ sent, (row, other))
        at = marginals(other, pulled, factor)
        integral, positive = log_integral(row, pulled, at, inverse, sent)
        determinant = -2.0 * integral - jnp.sum(at.mean * at.alpha)
        proper = positive & jnp.all(at.variance >= 0) & jnp.isfinite(determinant)
        return Conditioned(sites, replace(at, mean=self.mean + at.mean), determinant, proper, factor)

    def follow(self, given: Conditioned, nu: Float[Array, " n"]) -> Marginal:
        pulled, factor = self._pulled(Natural(nu, given.sites.tau)), given.factor
        sets = (self.earlier, self.around)
        row, other = (part.under(near, pulled.nu) for part, near in zip(factor.rows, sets, strict=True))
        sent = factor.inverse @ sent_to_u(row, pulled)
        at = marginals(other, pulled, replace(factor, centre=factor.inverse.T @ sent))
        return replace(at, mean=self.mean + at.mean)

    def _pulled(self, sites: Natural) -> Natural:
        """The sites of f less its prior mean."""
        return Natural(sites.nu - sites.tau * self.mean, sites.tau)

    def predictor(self, sites: Natural, signed: bool) -> NeighboursPredictor:
        factor = self.condition(sites, signed).factor
        return NeighboursPredictor(factor.inverse, factor.centre, self._pulled(sites))


class NeighboursPredictor(Predictor):
    """The posterior of u, and the sites that new values see of their neighbours."""

    inverse: Float[Array, "M M"]  # L_B⁻¹
    centre: Float[Array, " M"]  # B⁻¹ h
    pulled: Natural

    def at(self, mean: Float[Array, " k"], cross: Tie, own: Float[Array, "..."]) -> Normal:
        variances = own if own.ndim == 1 else jnp.diagonal(own)
        split = jnp.split(variances, np.cumsum([len(rows.at) for _, rows in cross.parts])[:-1])
        each = [
            conditional(replace(rows, own=variance - jnp.sum(rows.v**2, axis=1)), residual, self.pulled)
            for (residual, rows), variance in zip(cross.parts, split, strict=True)
        ]
        row = jax.tree.map(lambda *parts: jnp.concatenate(parts), *each)
        spread = row.w @ self.inverse.T
        latent = Normal(mean + row.a + row.w @ self.centre, row.r + jnp.sum(spread**2, axis=1))
        if own.ndim == 1:
            return latent
        return replace(latent, covariance=self._errors(cross, row, own) - row.w @ row.w.T + spread @ spread.T)

    def _errors(self, cross: Tie, row: Conditional, own: Float[Array, "k k"]) -> Float[Array, "k k"]:
        """The covariance of f_i − bᵢᵀz_N, what neighbours leave of each value, before V is taken off: with b = τc,

        k_ij − bᵢᵀ k_Nj − bⱼᵀ k_Ni + bᵢᵀ K_NN bⱼ + Σ τ cᵢ cⱼ over shared neighbours.
        """
        neighbours = jnp.concatenate([rows.neighbours for _, rows in cross.parts])
        residual, all_near = cross.parts[0][0], neighbours.ravel()
        b = row.c * jnp.where(neighbours >= 0, self.pulled.tau[indices(neighbours)], 0.0)
        kernel, x, scale = residual.bases.kernel, residual.x, residual.bases.scale

        def against_all(given: tuple[Array, Array]) -> tuple[Array, Array]:
            near, by = given
            there = x[indices(near)]
            ties = [part.kernel.cross(rows.at, there) @ by for part, rows in cross.parts]
            shared = ((near[:, None] == all_near) & (all_near >= 0)).astype(by.dtype)
            white = kernel.diagonal(there) - jnp.diagonal(kernel.cross(there, there))
            among = scale * (by @ (kernel.cross(there, x[indices(all_near)]) + white[:, None] * shared))
            both = among.reshape(b.shape) * b + (by @ shared).reshape(b.shape) * row.c
            return scale * jnp.concatenate(ties), jnp.sum(both, axis=1)

        ties, both = jax.lax.map(against_all, (neighbours, b))
        return own - ties - ties.T + both


class Tie(Record):
    """New values of one function or several: the residual covariances of each, and its values with their neighbours."""

    parts: tuple[tuple[Residual, Rows], ...]


def posterior_of_u(row: Conditional, pulled: Natural) -> tuple[Array, Array]:
    """L_B⁻¹ and L_B⁻¹ h."""
    weight = 1.0 / (1.0 + pulled.tau * row.r)
    precision = jnp.eye(row.w.shape[1]) + (row.w.T * (pulled.tau * weight)) @ row.w
    inverse = triangular_inverse(jnp.linalg.cholesky(precision))
    return inverse, inverse @ sent_to_u(row, pulled)


def sent_to_u(row: Conditional, pulled: Natural) -> Float[Array, " M"]:
    """h."""
    return ((pulled.nu - pulled.tau * row.a) / (1.0 + pulled.tau * row.r)) @ row.w


def marginals(row: Conditional, pulled: Natural, factor: Factor) -> Marginal:
    """Every cavity times its whole site."""
    nu, tau = pulled.nu, pulled.tau
    weight = 1.0 / (1.0 + tau * row.r)
    p, kappa = tau * weight, (nu - tau * row.a) * weight
    q, g = jnp.sum((row.w @ factor.inverse.T) ** 2, axis=1), row.w @ factor.centre
    left = 1.0 - p * q
    mean, variance = row.a + (g - kappa * q) / left, row.r + q / left
    b = 1.0 / (1.0 + tau * variance)
    return Marginal((mean + nu * variance) * b, variance * b, (nu - tau * mean) * b, b)


def log_integral(row: Conditional, pulled: Natural, at: Marginal, inverse: Array, sent: Array) -> tuple[Array, Array]:
    """log ∫ prior Π exp(ν (f − μ) − ½ τ (f² − μ²)) df, and whether R⁻¹ + S is positive definite.

    Sites are measured at the marginals' means, where ν becomes α: their own size, ν²/τ, cancels. By the additivity of
    inertia R⁻¹ + S has as many negative eigenvalues as 1 + τr at τ < 0, less those at τ > 0.
    """
    tau, alpha, shift = pulled.tau, at.alpha, row.a - at.mean
    size = 1.0 + tau * row.r
    terms = (alpha * shift + 0.5 * alpha**2 * row.r - 0.5 * tau * shift**2) / size - 0.5 * jnp.log(jnp.abs(size))
    of_u = 0.5 * jnp.sum(sent**2) + jnp.sum(jnp.log(jnp.diagonal(inverse)))
    return jnp.sum(terms) + of_u, jnp.sum(jnp.where(size < 0, jnp.sign(tau), 0.0)) == 0
