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

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import field
from quantprop.core.sites import Marginal
from quantprop.numerics.triangular import lower_product, symmetric_product, transposed, weighted_gram
from quantprop.priors.base import Conditioned, Cotangent, Joint, Moves, Predictor, Prior, Response
from quantprop.priors.classes.factor import (
    ClassesCross,
    ClassesFactor,
    ClassesPredictor,
    Grid,
    Matrices,
    factor_of,
    factors_of,
    with_diagonal,
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
        """α, and the posterior minus the prior mean of h: A_c v + Σ_c ν_c."""
        alpha, shift = factor.shift(self.layout.grid(sites.nu - sites.tau * self.mean, 0.0))
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
        z = factor.each(lambda c: lower_product(factor.inverse, eye - factor.a_transposed(c)))
        tied = jnp.einsum("aki,bki->iab", z, z)
        covariance = tied + jnp.eye(self.classes) * factor.variance.T[:, None, :]
        return without_datum(mean, covariance, d, nu, alone)

    def cotangent(self, mean: Array, by: Callable[[Any], Array]) -> ClassesPrior:
        """Derivatives of the mean, and of the kernel matrix by class, as a prior: those of a shared one add up."""
        classes = jnp.arange(self.classes)
        if len(self.k) == 1:
            k = jax.lax.scan(lambda total, c: (total + by(c), None), jnp.zeros_like(self.k[0]), classes)[0][None]
        else:
            k = jax.lax.map(by, classes)
        return replace(self, mean=mean, k=k, own=jnp.zeros_like(self.own), labels=jnp.zeros_like(self.labels))

    def evidence_slope(self, given: Conditioned, signed: bool) -> Prior:
        """∂/∂K_c = ½ (α_c α_cᵀ − E_c + E_c M⁻¹ E_c) and ∂/∂m = α, as for one function."""
        if signed:
            return super().evidence_slope(given, signed)
        factor, layout = given.factor, self.layout
        alpha = layout.balanced(given.marginals.alpha)

        def one(c: Any) -> Array:
            u = factor.root(c) * factor.d[c]
            return 0.5 * (alpha[c][:, None] * alpha[c] - factor.e(c) + transposed(u) @ u)

        return self.cotangent(given.marginals.alpha, one)

    def response(self, given: Conditioned, signed: bool) -> Response:
        if signed:
            return super().response(given, signed)
        factor = given.factor
        spread = factor.each(lambda c: transposed(factor.root(c)))
        within = factor.each(lambda c: factor.covariance[c] + weighted_gram(spread[c], jnp.ones(len(spread[c]))))
        rows = spread.reshape(-1, spread.shape[2])
        beyond = [spread[c] @ rows[(c + 1) * len(spread[c]) :].T for c in range(self.classes - 1)]
        return ClassesResponse(spread, within, within**2, tuple(part**2 for part in beyond), self, given)

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
        factor, _, roots = factors_of(self.k, d, layout.alone(self.own))
        _, alpha = factor.solve(layout.grid(sites.nu - sites.tau * self.mean, 0.0))
        return ClassesPredictor(layout.sign * alpha, roots.root, jnp.swapaxes(roots.inverse, 1, 2), factor.inverse)


class InFull(Predictor):
    """The predictor of the covariance written out, for sites of either sign."""

    rows: Predictor
    weights: Float[Array, "n classes"]
    datum: Int[Array, " n"]

    def at(self, mean: Float[Array, " k"], cross: ClassesCross, own: Float[Array, "..."]) -> Normal:
        k = jnp.broadcast_to(cross.k, (cross.weights.shape[1], *cross.k.shape[1:]))[:, self.datum]
        return self.rows.at(mean, jnp.einsum("nc,cnk,kc->nk", self.weights, k, cross.weights), own)


class ClassesResponse(Response):
    """Joint covariance of the rows: Cov(h_ci, h_dj) = [c = d] Σ_c + V_c V_dᵀ with V_c = A_c L⁻ᵀ.

    Means follow from the factor, class by class. Variances need the squares of all covariances, C² n³ operations once;
    products with V_c alone, C n³ for every answer, would take longer up to some 10 classes.
    """

    spread: Matrices  # V
    within: Matrices  # Σ_c + V_c V_cᵀ
    squares: Matrices  # of `within`
    beyond: tuple[Float[Array, "m rest"], ...]  # and of the covariances with the classes that follow
    prior: ClassesPrior
    given: Conditioned

    def answer(self, moves: Moves) -> Moves:
        layout, variance = self.prior.layout, self.given.marginals.variance
        sd = jnp.sqrt(variance)
        _, mean = self.given.factor.shift(layout.grid(moves[0] / sd, 0.0))
        change = self._squared_times(layout.grid(moves[1] / variance, 0.0))
        return jnp.stack([layout.rows(mean) / sd, layout.rows(change) / variance])

    def _squared_times(self, x: Grid) -> Grid:
        total = jnp.einsum("cij,cj->ci", self.squares, x)
        for c, block in enumerate(self.beyond):
            total = total.at[c].add(block @ x[c + 1 :].ravel())
            total = total.at[c + 1 :].add((x[c] @ block).reshape(-1, x.shape[1]))
        return total

    def to_prior(self, by: Cotangent) -> Prior:
        """δμ = A(δm + δK α), δΣ = A δK Aᵀ, where a move of K_c reaches row j through V_j R_c − [j = c] A_c with
        R_c = V_cᵀ D_c.

        With Q_j = V_jᵀ diag(∂σ²) V_j and F_c = A_c − V_c R_c, ∂K_c = R_cᵀ (Σ_{j ≠ c} Q_j) R_c + F_cᵀ diag(∂σ²) F_c; and
        log |I + S K| adds E_c − R_cᵀ R_c.
        """
        m, factor, layout = self.given.marginals, self.given.factor, self.prior.layout
        weights = layout.grid(-by.answer[1] / m.variance, 0.0)
        alpha, d = layout.balanced(m.alpha), factor.d
        _, sent = factor.solve(layout.grid(by.answer[0] / jnp.sqrt(m.variance), 0.0))

        q = factor.each(lambda c: weighted_gram(transposed(self.spread[c]), weights[c]))
        total = jnp.sum(q, axis=0) - by.log_determinant * jnp.eye(d.shape[1])

        def one(c: Any) -> Array:
            v, within = self.spread[c], self.within[c]
            others = d[c][:, None] * symmetric_product(v @ (total - q[c]), v.T) * d[c]
            own = factor.b[c] - d[c] * (jnp.diagonal(within) - factor.variance[c])
            f = with_diagonal(-d[c][:, None] * within, own)  # F_cᵀ
            outer = 0.5 * (sent[c][:, None] * alpha[c] + alpha[c][:, None] * sent[c])
            return outer + others + weighted_gram(f, weights[c]) + by.log_determinant * factor.e(c)

        return self.prior.cotangent(by.mean + layout.rows(sent), one)
