"""The Gaussian of C independent functions seen through differences, under Gaussian sites, in O(C n³).

A datum of class y has C − 1 latent values h_j = u + f_y − f_j, one for each other class j, with a number u ~ N(0, ω) of
its own (ω = 1 before the prior is scaled). With v = u + f_y every site is one on v − f_j, and the prior of u is one
more, on v − f_y, of precision 1/ω: D_j = τ_j, D_y = 1/ω. Given v the functions are independent: f_c is seen at v with
precisions D_c. With A_c = (I + K_c D_c)⁻¹, Σ_c = A_c K_c and E_c = D_c A_c = (K_c + D_c⁻¹)⁻¹,

    f_c | v ~ N(K_c E_c v − Σ_c ν_c, Σ_c),   v ~ N(M⁻¹ Σ_c A_cᵀ ν_c, M⁻¹),   M = Σ_c E_c.

Integrating v out instead leaves a datum's precision on its C functions as D − D 1 1ᵀ D / 1ᵀ D 1, the structure of the
softmax in Rasmussen and Williams (2006), Algorithm 3.3, whose formulas these are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Int

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import field
from quantprop.core.sites import Marginal
from quantprop.numerics.triangular import transposed
from quantprop.priors.base import Conditioned, Cotangent, Joint, Linearised, Moves, Predictor, Prior, Response
from quantprop.priors.classes.factor import (
    ClassesCross,
    ClassesFactor,
    ClassesPredictor,
    Matrices,
    class_factor,
    factor_of,
)
from quantprop.priors.classes.layout import LAYOUTS, Layout, without_datum
from quantprop.priors.dense import DensePrior


class ClassesPrior(Prior):
    """N(mean, K) of all differences h. `k` has one matrix for all classes or one each, of the n data; `labels` are the
    data's classes, as floats; `rows` says what a row is (`layout`).
    """

    mean: Float[Array, " n"]
    k: Matrices
    own: Float[Array, ""]  # ω
    labels: Float[Array, " m"]
    classes: int = field(static=True)
    rows: str = field(default="differences", static=True)  # of `LAYOUTS`

    @property
    def layout(self) -> Layout:
        """Which row is which."""
        return LAYOUTS[self.rows](self.labels, self.classes, len(self.mean))

    @property
    def largest_joint(self) -> int:
        return 4096

    def is_psd(self) -> bool:
        return all(DensePrior(self.mean, k).is_psd() for k in self.k)

    def scaled(self, by: Any) -> ClassesPrior:
        return replace(self, k=by * self.k, own=by * self.own)

    def variances(self) -> Float[Array, " n"]:
        own = jnp.broadcast_to(jnp.diagonal(self.k, axis1=1, axis2=2), (self.classes, len(self.labels)))
        return self.own + self.layout.sums(own)

    def written_out(self) -> DensePrior:
        """The same with the covariance of all rows as one matrix: (C n)² numbers."""
        weights, datum = self.layout.combinations()
        k = jnp.broadcast_to(self.k, (self.classes, *self.k.shape[1:]))[:, datum][:, :, datum]
        total = jnp.einsum("rc,crs,sc->rs", weights, k, weights)
        return DensePrior(self.mean, total + self.own * (datum[:, None] == datum))

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        """Precisions of either sign have no such structure, since M may then be indefinite where the posterior is
        proper: they are taken in by the prior written out.
        """
        if signed:
            return self.written_out().condition(sites, signed)
        layout = self.layout
        factor, size = factor_of(self.k, layout.grid(sites.tau, 1.0 / self.own), layout.alone(self.own))
        spread = layout.rows(factor.each(lambda c: jnp.sum(factor.root(c) ** 2, axis=0)))
        b, variance = (layout.rows(part) for part in (factor.b, factor.variance))
        alpha, shift = self._means(factor, sites)
        marginals = Marginal(self.mean + shift, variance + spread, alpha, b - sites.tau * spread)
        size = size + len(self.labels) * jnp.log(self.own)
        return Conditioned(sites, marginals, size, jnp.isfinite(size) & jnp.all(jnp.isfinite(b)), factor)

    def _means(self, factor: ClassesFactor, sites: Natural) -> tuple[Array, Array]:
        """α and the posterior mean of h less the prior's: A_c v + Σ_c ν_c."""
        nu = self.layout.grid(sites.nu - sites.tau * self.mean, 0.0)
        v, alpha = factor.solve(nu)
        shift = factor.times_a(v) + factor.times(nu)
        return self.layout.rows(alpha), self.layout.rows(shift)

    def follow(self, given: Conditioned, nu: Float[Array, " n"]) -> Marginal:
        alpha, shift = self._means(given.factor, Natural(nu, given.sites.tau))
        return Marginal(self.mean + shift, given.marginals.variance, alpha, given.marginals.b)

    def functions_without(self, sites: Natural) -> tuple[Float[Array, "m classes"], Float[Array, "m classes classes"]]:
        """The functions at each datum, less their prior means, had the datum not been seen; precisions are all ≥ 0, and
        f_c = v − (v − f_c).
        """
        nu, d = self.layout.grid(sites.nu - sites.tau * self.mean, 0.0), self.layout.grid(sites.tau, 1.0 / self.own)
        alone = self.layout.alone(self.own)
        factor, _ = factor_of(self.k, d, alone)
        v, _ = factor.solve(nu)
        mean = v - factor.times_a(v) - factor.times(nu)
        eye = jnp.eye(len(v))
        z = factor.each(lambda c: solve_triangular(factor.lower, eye - factor.a(c).T, lower=True))
        tied = jnp.einsum("aki,bki->iab", z, z)
        covariance = tied + jnp.eye(self.classes) * factor.variance.T[:, None, :]
        return without_datum(mean, covariance, d, nu, alone)

    def cotangent(self, mean: Array, k: Matrices) -> ClassesPrior:
        """Derivatives of mean and kernel matrices, as a prior: those of a shared one add up."""
        k = jnp.sum(k, axis=0, keepdims=True) if len(self.k) == 1 else k
        return replace(self, mean=mean, k=k, own=jnp.zeros_like(self.own), labels=jnp.zeros_like(self.labels))

    def evidence_slope(self, given: Conditioned, signed: bool) -> Prior:
        """∂/∂K_c = ½ (α_c α_cᵀ − E_c + E_c M⁻¹ E_c) and ∂/∂m = α, as for one function."""
        if signed:
            return super().evidence_slope(given, signed)
        factor, layout = given.factor, self.layout
        alpha = layout.balanced(given.marginals.alpha)

        def one(c: Any) -> Array:
            u = solve_triangular(factor.lower, factor.e(c), lower=True)
            return 0.5 * (alpha[c][:, None] * alpha[c] - factor.e(c) + transposed(u) @ u)

        return self.cotangent(given.marginals.alpha, factor.each(one))

    def response(self, given: Conditioned, signed: bool) -> Response:
        sd = jnp.sqrt(given.marginals.variance)
        correlation = self.joint(given, signed).covariance / (sd[:, None] * sd)
        return ClassesResponse(correlation, correlation**2, self, given, signed)

    def joint(self, given: Conditioned, signed: bool) -> Joint:
        if signed:
            return self.written_out().joint(given, signed)
        factor = given.factor
        slot, datum = self.layout.classes_of_rows()
        spread = jnp.swapaxes(factor.each(factor.root), 1, 2)[slot, datum]  # rows of A L⁻ᵀ
        across = jnp.repeat(factor.covariance[slot, datum], self.layout.each(self.classes), axis=1)  # with every row
        covariance = jnp.where(slot[:, None] == slot, across[:, : len(slot)], 0.0) + spread @ spread.T
        return Joint.of(covariance, given)

    def predictor(self, sites: Natural, signed: bool) -> Predictor:
        layout = self.layout
        if signed:
            return InFull(self.written_out().predictor(sites, signed), *layout.combinations())
        d = layout.grid(sites.tau, 1.0 / self.own)
        factor, _ = factor_of(self.k, d, layout.alone(self.own))
        _, alpha = factor.solve(layout.grid(sites.nu - sites.tau * self.mean, 0.0))
        each = jax.lax.map(lambda c: class_factor(self.k, d, c), jnp.arange(self.classes))
        return ClassesPredictor(layout.sign * alpha, each.root, jnp.swapaxes(each.inverse, 1, 2), factor.lower)


class InFull(Predictor):
    """The predictor of the covariance written out, for sites of either sign."""

    rows: Predictor
    weights: Float[Array, "n classes"]
    datum: Int[Array, " n"]

    def at(self, mean: Float[Array, " k"], cross: ClassesCross, own: Float[Array, "..."]) -> Normal:
        k = jnp.broadcast_to(cross.k, (cross.weights.shape[1], *cross.k.shape[1:]))[:, self.datum]
        return self.rows.at(mean, jnp.einsum("nc,cnk,kc->nk", self.weights, k, cross.weights), own)


class ClassesResponse(Response):
    """The posterior correlations of all rows and their squares; what is carried back, class by class.

    Correlations take C² n³ operations once. Products with W_c alone, C n³ for every response, would take longer up to
    some 17 classes.
    """

    correlation: Float[Array, "n n"]
    squared: Float[Array, "n n"]
    prior: ClassesPrior
    given: Conditioned
    signed: bool = field(static=True)

    def answer(self, moves: Moves) -> Moves:
        return jnp.stack([self.correlation @ moves[0], self.squared @ moves[1]])

    def to_prior(self, by: Cotangent) -> Prior:
        """δμ = A(δm + δK α), δΣ = A δK Aᵀ, where a move of K_c reaches h through T_c = A_j M⁻¹ E_c − [j = c] A_c.

        With Q_c = A_cᵀ diag(∂σ²) A_c, Q = Σ_c Q_c and H_c = M⁻¹ E_c,
        T_cᵀ diag(∂σ²) T_c = H_cᵀ Q H_c − H_cᵀ Q_c − Q_c H_c + Q_c.
        """
        if self.signed:
            return Linearised.of(self.prior, self.given, True).to_prior(by)
        m, factor, layout = self.given.marginals, self.given.factor, self.prior.layout
        by_mean = layout.grid(by.answer[0] / jnp.sqrt(m.variance), 0.0)
        by_variance = layout.grid(-by.answer[1] / m.variance, 0.0)
        alpha = layout.balanced(m.alpha)
        _, sent = factor.solve(by_mean)

        def weighted(c: Any) -> Array:
            return transposed(factor.a(c)) @ (by_variance[c][:, None] * factor.a(c))

        total = jax.lax.fori_loop(0, len(alpha), lambda c, q: q + weighted(c), jnp.zeros_like(factor.lower))

        def one(c: Any) -> Array:
            e, q = factor.e(c), weighted(c)
            h = cho_solve((factor.lower, True), e)
            back = transposed(h)
            half = back @ q
            through_variance = back @ (total @ h) - half - half.T + q
            outer = 0.5 * (sent[c][:, None] * alpha[c] + alpha[c][:, None] * sent[c])
            return outer + through_variance + by.log_determinant * (e - e @ h)

        return self.prior.cotangent(by.mean + layout.rows(sent), factor.each(one))
