"""The prior VᵀV + diag d under Gaussian sites: one weighted Gram matrix and one triangular solve a sweep, O(n M²).

A site (ν, τ) on f = g + ε, ε ~ N(0, d), is one on g = Vᵀu: with a = 1 + κτd, s = τ/a and r = ν/a. κ is the share of a
site that its method removes at a time: its power over the copies of the row (see docs/background/inducing.md).
With κ = 1 these are the formulas of exact inference under VᵀV + diag d, with κ → 0 those of the variational bound.

With C = Vᵀ B⁻¹ V, the posterior covariance of g, and δs = δτ/a², δr − g δs = (δν − μ δτ)/a, a move of sites has

    δμ = (C/(a aᵀ) + diag κd/a) (δν − μ δτ)
    δσ² = −((C/(a aᵀ))² + diag(2κ d C_nn/a³ + κ d²/a²)) δτ, squared entry by entry,

which is symmetric, and for κ = 1 the posterior covariance of f and its square.

Where earlier rows have left a `Belief` N(c₀, B₀⁻¹) about u instead of N(0, I), the prior mean has Vᵀc₀ in it, B₀
stands for I in B, and nothing else differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import Record, changed, field
from quantprop.core.sites import Marginal, unit
from quantprop.numerics.triangular import (
    gram_of_upper,
    lower_product,
    transposed,
    triangular_inverse,
    upper_product,
    weighted_gram,
)
from quantprop.priors.base import Conditioned, Cotangent, Moves, Predictor, Prior, Response
from quantprop.priors.inducing.message import Belief, Message, message_of
from quantprop.priors.inducing.rows import Basis, Rows, carried_back
from quantprop.runtime.mesh import divided, is_divided


class Factor(Record):
    """The Cholesky factor of B = I + V diag(s) Vᵀ = L_B L_Bᵀ, and what follows from it."""

    inverse: Float[Array, "m m"]  # L_B⁻¹
    centre: Float[Array, " m"]  # B⁻¹ V r, the posterior mean of u, less what was believed before
    spread: Float[Array, " n"]  # C_nn, posterior variances of g
    residual: Float[Array, " n"]  # d


class InducingPrior(Prior):
    """N(mean, VᵀV + diag d). Learned are `basis`, `mean` and `before`; x and `share` are given, with cotangents 0."""

    mean: Float[Array, " n"]
    basis: Basis
    x: Float[Array, "n d"]
    share: Float[Array, " n"]
    before: Belief | None = None  # where earlier rows are known by their message
    rows: Rows | None = None  # while many sweeps need them
    hold: bool = field(default=True, static=True)  # whether V fits in memory
    moving: bool = field(default=False, static=True)  # whether the points are learned

    @property
    def largest_joint(self) -> int:
        """None at all where f's response to a site is not its covariance (κ ≠ 1), or rows are divided among devices."""
        return 1024 if not is_divided(self.x) and np.all(np.asarray(self.share) == 1.0) else 0

    def for_shares(self, share: Float[Array | np.ndarray, " n"]) -> InducingPrior:
        return changed(self, share=jnp.asarray(share, dtype=jnp.float64))

    def for_sweeps(self) -> InducingPrior:
        return replace(self, rows=self.all_rows())

    def all_rows(self) -> Rows:
        """V and d, as far as they are stored."""
        return Rows.of(self.basis, self.x, self.hold) if self.rows is None else self.rows

    def is_psd(self) -> bool:
        known = self.before is None or bool(jnp.isfinite(self.before.log_determinant()))
        return known and bool(jnp.isfinite(self.basis.whitening()).all())

    def scaled(self, by: Any) -> InducingPrior:
        return replace(self, basis=replace(self.basis, scale=by * self.basis.scale), rows=None)

    def variances(self) -> Float[Array, " n"]:
        if self.before is None:
            return self.basis.scale * self.basis.kernel.diagonal(self.x)
        rows = self.all_rows()
        return rows.forms(jnp.linalg.inv(self.before.precision)) + rows.residual

    def precision(self) -> Float[Array, "m m"]:
        """The prior precision of v."""
        return jnp.eye(len(self.basis.z)) if self.before is None else self.before.precision

    def a(self, tau: Float[Array, " n"], residual: Float[Array, " n"]) -> Float[Array, " n"]:
        """1 + κ τ d, by which sites on f are weakened as sites on g."""
        return 1.0 + self.share * tau * residual

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        """The log determinant includes the log mass of a message, so that the evidence is that of all rows."""
        prior = self.for_sweeps()
        inverse, centre = factorised(*prior.sums(sites), self.precision())
        own = prior.under(inverse, centre, sites)
        size = own.log_determinant - 2.0 * jnp.sum(jnp.log(jnp.diagonal(inverse)))
        if self.before is not None:
            size = size - self.before.log_determinant() - 2.0 * self.before.mass
        return replace(own, log_determinant=size, proper=own.proper & jnp.isfinite(size))

    def sums(self, sites: Natural) -> tuple[Array, Array]:
        """V diag(s) Vᵀ and V r: all that these rows tell the others."""
        rows = self.all_rows()
        a, m = self.a(sites.tau, rows.residual), len(rows.whitening)

        def one(carry, v, s, r):
            return (carry[0] + weighted_gram(v, s), carry[1] + v @ r), None

        zero = (jnp.zeros((m, m)), jnp.zeros(m))
        return rows.over(one, zero, sites.tau / a, (sites.nu - sites.tau * self.mean) / a)[0]

    def under(self, inverse: Array, centre: Array, sites: Natural) -> Conditioned:
        """The posterior of these rows, given L_B⁻¹ and the posterior mean of u from them and others. Its
        log-determinant lacks log |B|, which belongs to all.
        """
        rows = self.all_rows()
        d, share, a = rows.residual, self.share, self.a(sites.tau, rows.residual)

        def one(carry, v):
            return carry, (jnp.sum(lower_product(inverse, v) ** 2, axis=0), centre @ v)

        _, (spread, g) = rows.over(one, None)
        size = jnp.sum(jnp.where(share > 0, jnp.log(a) / jnp.where(share > 0, share, 1.0), sites.tau * d))
        proper = jnp.all(a > 0) & jnp.isfinite(size)
        factor = Factor(inverse, centre, spread, d)
        return Conditioned(sites, self._marginals(sites, d, spread, g), size, proper, factor)

    def sent(self, sites: Natural, push: Float[Array, " n"]) -> Float[Array, " m"]:
        """Right-hand side of a change of ν: B⁻¹ times it is the change of the posterior mean of u."""
        rows = self.all_rows()
        return rows.sent(push / self.a(sites.tau, rows.residual))

    def _marginals(self, sites: Natural, d: Array, spread: Array, g: Array) -> Marginal:
        pull, a = sites.nu - sites.tau * self.mean, self.a(sites.tau, d)
        return Marginal(
            mean=self.mean + (g + self.share * d * pull) / a,
            variance=d / a + spread / a**2,
            alpha=(pull - sites.tau * g) / a,
            b=(1.0 - (1.0 - self.share) * sites.tau * d - sites.tau / a * spread) / a,
        )

    def follow(self, given: Conditioned, nu: Float[Array, " n"]) -> Marginal:
        rows, sites = self.all_rows(), Natural(nu, given.sites.tau)
        d, inverse = given.factor.residual, given.factor.inverse
        pull = (nu - sites.tau * self.mean) / self.a(sites.tau, d)
        g = rows.received(inverse.T @ (inverse @ rows.sent(pull)))
        return self._marginals(sites, d, given.factor.spread, g)

    def left_out(self, given: Conditioned, copies: Float[Array, " n"]) -> Normal:
        """The cavity of g without one copy's s/w and r/w, and ε ~ N(0, d): for every share that a method removes."""
        sites, d, spread = given.sites, given.factor.residual, given.factor.spread
        pull, a = sites.nu - sites.tau * self.mean, self.a(sites.tau, d)
        g = (given.marginals.mean - self.mean) * a - self.share * d * pull
        left = 1.0 - spread * sites.tau / (a * copies)
        return Normal(self.mean + (g - spread * pull / (a * copies)) / left, spread / left + d)

    def evidence_slope(self, given: Conditioned, signed: bool) -> InducingPrior:
        before, factor = None, given.factor
        if self.before is not None:
            apart = jnp.linalg.inv(self.before.precision) - factor.inverse.T @ factor.inverse
            by_precision = 0.5 * (apart - jnp.outer(factor.centre, factor.centre))
            before = Belief(by_precision, jnp.zeros_like(factor.centre), jnp.ones(()))
        return self.made_of(given.marginals.alpha, slope_of_log_integral(self, given), before)

    def response(self, given: Conditioned, signed: bool) -> InducingResponse:
        return InducingResponse(self, self.all_rows().turned(given.factor.inverse), given)

    def made_of(self, mean: Float[Array, " n"], basis: Basis, before: Belief | None) -> InducingPrior:
        """A prior of the same form, with nothing where no derivative belongs."""
        x, share = divided((jnp.zeros_like(self.x), jnp.zeros_like(self.share)))
        return InducingPrior(mean, basis, x, share, before, None, self.hold, self.moving)

    def predictor(self, sites: Natural, signed: bool) -> InducingPredictor:
        factor = self.condition(sites, signed).factor
        return InducingPredictor(factor.inverse, factor.centre + self._believed())

    def _believed(self) -> Array | float:
        return 0.0 if self.before is None else self.before.centre

    def message(self, sites: Natural, log_evidence: Array | float) -> Message:
        """The message of all rows so far about the values at the points."""
        gram, sent = self.sums(sites)
        precision = gram + self.precision()
        centre = self._believed() + jnp.linalg.solve(precision, sent)
        return message_of(precision, centre, self.basis.lower(), log_evidence)


class InducingPredictor(Predictor):
    """The posterior of u, N(centre, B⁻¹)."""

    inverse: Float[Array, "m m"]
    centre: Float[Array, " m"]

    def at(self, mean: Float[Array, " k"], cross: Float[Array, "m k"], own: Float[Array, "..."]) -> Normal:
        return self.reduced(mean + cross.T @ self.centre, own, cross, self.inverse @ cross)


def factorised(
    gram: Float[Array, "m m"], sent: Float[Array, " m"], precision: Float[Array, "m m"]
) -> tuple[Array, Array]:
    """L_B⁻¹ and the posterior mean of v, from V diag(s) Vᵀ, V r and the precision of v before the rows."""
    inverse = triangular_inverse(jnp.linalg.cholesky(gram + precision))
    return inverse, inverse.T @ (inverse @ sent)


# --- derivatives ------------------------------------------------------------------------------------------------------


def slope_of_log_integral(prior: InducingPrior, given: Conditioned) -> Basis:
    """∂/∂V_n = α_n c − s_n B⁻¹ V_n with c = B⁻¹ V r, and ∂/∂d_n = ½ κ (α_n² + s_n² C_nn) − ½ s_n."""
    factor, alpha = given.factor, given.marginals.alpha
    precision = gram_of_upper(factor.inverse.T)
    s = given.sites.tau / prior.a(given.sites.tau, factor.residual)
    by_d = 0.5 * prior.share * (alpha**2 + s**2 * factor.spread) - 0.5 * s

    def cotangent(v, alpha, s, by_d):
        return factor.centre[:, None] * alpha - (precision @ v) * s, by_d

    return carried_back(prior.basis, prior.x, cotangent, prior.moving, alpha, s, by_d)


class InducingResponse(Response):
    """By products with A = L_B⁻¹ V, C = AᵀA: O(n M²) a response, for the squares of C."""

    prior: InducingPrior
    inner: Rows  # A instead of V
    given: Conditioned

    def answer(self, moves: Moves) -> Moves:
        """ρ p by two products with A; (ρ ∘ ρ) q by (C ∘ C) q = diag Aᵀ (A diag(q) Aᵀ) A."""
        (own, squared), a = self._own(), self._a()
        sd, m = unit(self.given.marginals.variance), len(self.inner.whitening)
        p, q = moves[0] / sd, moves[1] / sd**2

        def gather(carry, v, p, q):
            return (carry[0] + v @ p, carry[1] + weighted_gram(v, q)), None

        (sent, gram), _ = self.inner.over(gather, (jnp.zeros(m), jnp.zeros((m, m))), p / a, q / a**2)

        def scatter(carry, v):
            return carry, (sent @ v, jnp.sum(v * (gram @ v), axis=0))

        _, (of_means, of_variances) = self.inner.over(scatter, None)
        return jnp.stack([(of_means / a + own * p) / sd, (of_variances / a**2 + squared * q) / sd**2])

    def _a(self) -> Float[Array, " n"]:
        return self.prior.a(self.given.sites.tau, self.given.factor.residual)

    def _own(self) -> tuple[Array, Array]:
        """The contribution of d to the response of an observation to its own site, in mean and variance."""
        a, d, share = self._a(), self.given.factor.residual, self.prior.share
        return share * d / a, share * d * (2.0 * self.given.factor.spread / a + d) / a**2

    def to_prior(self, by: Cotangent) -> InducingPrior:
        """With w and ω the cotangents of g's means and variances, h = B⁻¹ V w, H = B⁻¹ V diag(ω) Vᵀ B⁻¹ and
        t = w − s C w, the cotangents are α h + t c + 2 (ω + λ s) B⁻¹V − 2 s H V of V (λ: of log |B|), and of d
        κ α t + ω (1 − 2κ s C_nn) + κ s² diag(Vᵀ H V) + λ (s − κ s² C_nn); t is that of the mean.
        """
        prior, given, factor = self.prior, self.given, self.given.factor
        at, share, spread, a = given.marginals, prior.share, given.factor.spread, self._a()
        s = given.sites.tau / a
        sd = unit(at.variance)
        w, omega = by.answer[0] / (sd * a), -by.answer[1] / (sd * a) ** 2
        sent, gram = self.inner.sent(w), self.inner.gram(omega)
        t = w - s * self.inner.received(sent)
        by_d = share * at.alpha * t + omega * (1.0 - 2.0 * share * s * spread)
        by_d = by_d + by.log_determinant * (s - share * s**2 * spread)
        h, upper = factor.inverse.T @ sent, transposed(factor.inverse)

        def cotangent(v, alpha, t, s, weight, share, by_d):
            own = lower_product(factor.inverse, v)
            sent = gram @ own  # Vᵀ H V = ownᵀ sent
            by_v = upper_product(upper, own * weight - sent * (2.0 * s))
            return h[:, None] * alpha + factor.centre[:, None] * t + by_v, by_d + share * s**2 * jnp.sum(own * sent, 0)

        columns = (at.alpha, t, s, 2.0 * (omega + by.log_determinant * s), share, by_d)
        basis, before = carried_back(prior.basis, prior.x, cotangent, prior.moving, *columns), None
        if prior.before is not None:
            hc, both = jnp.outer(h, factor.centre), upper @ gram @ factor.inverse
            size = gram_of_upper(factor.inverse.T) - jnp.linalg.inv(prior.before.precision)
            by_precision = by.log_determinant * size - both - 0.5 * (hc + hc.T)
            before = Belief(by_precision, jnp.zeros_like(factor.centre), -2.0 * by.log_determinant)
        return prior.made_of(by.mean + t, basis, before)
