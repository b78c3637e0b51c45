"""A Gaussian process with a dense covariance at its inputs, N(m, K), and its posterior under Gaussian sites.

Where sites have negative precision (likelihoods that are not log-concave), the positive ones are taken in first and the
negative ones by a second factorisation, which fails exactly when the posterior would be improper.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import Record
from quantprop.core.sites import Marginal, unit
from quantprop.kernels import Kernel, Pairs
from quantprop.numerics.triangular import lower_product, transposed
from quantprop.priors.base import Conditioned, Cost, Cotangent, Joint, Moves, Predictor, Prior, Process, Response
from quantprop.priors.cholesky import Factor, LowRankSplit, dominant, factorize, negative_part

SPLIT_VARIANCE = 1e6  # variance from which the dominant part is split off
# n × n float64 arrays alive at the peak of an evaluation with its gradient: 5.9 by XLA's count, and distances
PEAK_MATRICES = 7


class Dense(Process):
    """The exact process, with all covariances of the training values: O(n²) memory and O(n³) operations per sweep.

    >>> from quantprop import Dense, Model, kernels, likelihoods
    >>> Model(kernels.SquaredExponential(), likelihoods.Probit()).process == Dense()
    True
    """

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Pairs:
        return kernel.pairs(x)

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Pairs) -> DensePrior:
        return DensePrior(mean, kernel.gram_of(prepared))

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Float[Array, "n k"]:
        return kernel.cross(x, new)

    def cross_of(self, kernel: Kernel, term: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Any:
        return term.cross(x, new)  # the terms are independent before data are seen

    def cost(self, n: int) -> Cost:
        one, parts = 8 * n * n, f"{PEAK_MATRICES} matrices of {n} × {n}"
        return Cost(PEAK_MATRICES * one, one, float(n) ** 3, f"a dense prior over {n} rows", parts)

    def refined(self, prior: Prior) -> DensePrior:
        """Split off the dominant part if the variance is huge, so that sweeps have smaller rounding errors."""
        assert isinstance(prior, DensePrior)
        large = np.diagonal(prior.k).max() > SPLIT_VARIANCE
        return DensePrior(prior.mean, prior.k, dominant(prior.k) if large else None)


class DensePrior(Prior):
    """N(mean, k) at the training inputs, k the kernel matrix; `parts` of it where one was split off."""

    mean: Float[Array, " n"]
    k: Float[Array, "k k"]  # n × n, or nothing (`for_derivatives`)
    parts: LowRankSplit | None = None

    @property
    def largest_joint(self) -> int:
        return sys.maxsize

    def is_psd(self) -> bool:
        eigenvalues = np.linalg.eigvalsh(np.asarray(self.k))
        return bool(eigenvalues[0] >= -len(eigenvalues) * 1e-14 * max(eigenvalues[-1], 0.0))

    def scaled(self, by: Any) -> DensePrior:
        parts = None if self.parts is None else LowRankSplit(jnp.sqrt(by) * self.parts.low, by * self.parts.rest)
        return DensePrior(self.mean, by * self.k, parts)

    def variances(self) -> Float[Array, " n"]:
        return jnp.diagonal(self.k)

    @property
    def split(self) -> LowRankSplit:
        """k as its dominant part, if one was split off, and the rest."""
        return LowRankSplit.whole(self.k) if self.parts is None else self.parts

    def condition(self, sites: Natural, signed: bool) -> Conditioned:
        factor = factorize(self.split, self.variances(), sites.tau)
        if signed:
            result = jax.lax.cond(jnp.any(sites.tau < 0), _signed, _positive, self, factor, sites)
        else:
            result = _positive(self, factor, sites)
        marginals, log_determinant, proper = result
        return Conditioned(sites, marginals, log_determinant, proper, factor)

    def follow(self, given: Conditioned, nu: Float[Array, " n"]) -> Marginal:
        at, sites = given.marginals, Natural(nu, given.sites.tau)
        alpha, k_alpha = given.factor.solve(self.split, sites.nu - sites.tau * self.mean)
        return _marginals(self, sites, alpha, k_alpha, at.b, at.variance)

    def for_derivatives(self, factor: Factor) -> tuple[DensePrior, Factor]:
        nothing = jnp.zeros((0, 0))
        return DensePrior(self.mean, nothing), replace(factor, upper=nothing)

    def evidence_slope(self, given: Conditioned, signed: bool) -> DensePrior:
        """∂/∂K = ½ (α αᵀ − (K + S⁻¹)⁻¹) and ∂/∂m = α (Rasmussen and Williams, eq. 5.9)."""
        alpha, root = given.marginals.alpha, given.factor.root
        if signed:
            precision = given.sites.tau[:, None] * self.joint(given, signed).transfer
        else:
            precision = root[:, None] * given.factor.b_inverse() * root
        return DensePrior(alpha, 0.5 * (alpha[:, None] * alpha - precision))

    def joint(self, given: Conditioned, signed: bool) -> Joint:
        """The negative sites add WᵀW to Σ."""
        covariance = given.factor.covariance()
        if signed:
            _, w = negative_part(covariance, given.sites)
            covariance = covariance + transposed(w) @ w
        return Joint.of(covariance, given)

    def response(self, given: Conditioned, signed: bool) -> DenseResponse:
        if signed:
            matrix, width = self.joint(given, signed).covariance, jnp.ones_like(given.sites.tau)
        else:  # Σ_ij = −B⁻¹_ij/√(τ_i τ_j)
            root = given.factor.root
            matrix, width = -given.factor.b_inverse(), 1.0 / jnp.where(root > 0, root, 1.0)
        others = jnp.where(jnp.eye(len(width), dtype=bool), 0.0, matrix)
        return DenseResponse(others, others**2, width, given.marginals, given.sites.tau)

    def predictor(self, sites: Natural, signed: bool) -> DensePredictor:
        """The predictor from the whole K: with a dominant part split off, L⁻¹ has rounding errors."""
        given = DensePrior(self.mean, self.k).condition(sites, signed)
        alpha, root, inverse = given.marginals.alpha, given.factor.root, transposed(given.factor.inverse)
        if not signed:
            return DensePredictor(alpha, root, inverse)
        lower, _ = negative_part(given.factor.covariance(), sites)
        negative = Negative(jnp.sqrt(jnp.maximum(-sites.tau, 0.0)), lower, inverse @ (root[:, None] * self.k))
        return DensePredictor(alpha, root, inverse, negative)


class DenseResponse(Response):
    """Σ = diag σ² + W O W with W = diag w, O symmetric and zero on its diagonal: what O is scaled by are vectors, so
    that no pass over memory is spent on a scaled matrix.
    """

    others: Float[Array, "n n"]  # O
    squared: Float[Array, "n n"]  # O ∘ O
    width: Float[Array, " n"]  # w
    marginals: Marginal
    tau: Float[Array, " n"]

    def answer(self, moves: Moves) -> Moves:
        d = self.width / unit(self.marginals.variance)  # ρ = I + diag(d) O diag(d)
        of_others = [d * (self.others @ (d * moves[0])), d**2 * (self.squared @ (d**2 * moves[1]))]
        return moves + jnp.stack(of_others)

    def to_prior(self, by: Cotangent) -> DensePrior:
        """δμ = A(δm + δK α) and δΣ = A δK Aᵀ with A = (I + K S)⁻¹, which is b on the diagonal and −W O W S elsewhere;
        log |I + S K| adds S A. Of two entries (i, j) and (j, i) of ∂J/∂K only the sum counts.
        """
        m, pull = self.marginals, self.width * self.tau
        u, d = by.answer[0] / unit(m.variance), -by.answer[1] / unit(m.variance) ** 2
        sent = m.b * u - pull * (self.others @ (self.width * u))  # Aᵀ u
        product = (self.others * (self.width**2 * d)) @ self.others
        beside = self.width * m.b * d + 0.5 * by.log_determinant * pull
        own = jnp.where(jnp.eye(len(d), dtype=bool), m.b * (m.b * d + by.log_determinant * self.tau), 0.0)
        outer = 0.5 * (sent[:, None] * m.alpha + m.alpha[:, None] * sent)
        others = self.others * (beside[:, None] * pull + pull[:, None] * beside)
        return DensePrior(by.mean + sent, outer - others + pull[:, None] * product * pull + own)


class Negative(Record):
    """The part of a predictor due to sites of negative precision."""

    root: Float[Array, " n"]  # S₋½
    lower: Float[Array, "n n"]  # R of `negative_part`
    base: Float[Array, "n n"]  # V = L⁻¹ S₊½ K


class DensePredictor(Predictor):
    alpha: Float[Array, " n"]
    root: Float[Array, " n"]  # S₊½
    inverse: Float[Array, "n n"]  # L⁻¹
    negative: Negative | None = None

    def at(self, mean: Float[Array, " k"], cross: Float[Array, "n k"], own: Float[Array, "..."]) -> Normal:
        v, new_mean = lower_product(self.inverse, self.root[:, None] * cross), mean + cross.T @ self.alpha
        w = jnp.zeros((0, cross.shape[1]))
        if self.negative is not None:
            root, lower, base = self.negative.root, self.negative.lower, self.negative.base
            w = solve_triangular(lower, root[:, None] * (cross - base.T @ v), lower=True)
        return self.reduced(new_mean, own, v, w)


def _marginals(prior: DensePrior, sites: Natural, alpha, k_alpha, b, variance) -> Marginal:
    strong = sites.tau * variance > 0.5
    tau = jnp.where(strong, sites.tau, 1.0)
    return Marginal(jnp.where(strong, (sites.nu - alpha) / tau, prior.mean + k_alpha), variance, alpha, b)


def _positive(prior: DensePrior, factor: Factor, sites: Natural) -> tuple[Marginal, Array, Array]:
    alpha, k_alpha = factor.solve(prior.split, sites.nu - sites.tau * prior.mean)
    proper = jnp.all(jnp.isfinite(factor.b))
    return _marginals(prior, sites, alpha, k_alpha, factor.b, factor.variance), factor.log_determinant, proper


def _signed(prior: DensePrior, factor: Factor, sites: Natural) -> tuple[Marginal, Array, Array]:
    """Σ d = Σ₊(d + S₋½ R⁻ᵀ R⁻¹ S₋½ Σ₊ d); Σ₊ times what stands at negative sites never leaves the posterior's scale."""
    b, variance, covariance = factor.b, factor.variance, factor.covariance()
    lower, w = negative_part(covariance, sites)
    negative, d = sites.tau < 0, sites.nu - sites.tau * prior.mean
    root = jnp.sqrt(jnp.maximum(-sites.tau, 0.0))
    alpha, k_alpha = factor.solve(prior.split, jnp.where(negative, 0.0, d))
    apart = jnp.where(negative, d, 0.0)
    inner = solve_triangular(lower, root * (k_alpha + covariance @ apart), lower=True)
    apart = apart + root * solve_triangular(lower, inner, lower=True, trans=1)
    pushed = covariance @ apart
    alpha, k_alpha = alpha + apart - jnp.maximum(sites.tau, 0.0) * pushed, k_alpha + pushed
    added = jnp.sum(w**2, axis=0)
    variance = variance + added
    b = jnp.where(negative, 1.0 - sites.tau * variance, b - sites.tau * added)
    log_determinant = factor.log_determinant + 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower)))
    proper = jnp.all(jnp.isfinite(w)) & jnp.all(jnp.isfinite(b))
    return _marginals(prior, sites, alpha, k_alpha, b, variance), log_determinant, proper
