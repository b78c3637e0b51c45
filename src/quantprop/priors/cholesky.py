"""Factors of B = I + S½ K S½ for a dense K: all that a dense posterior is made of.

Everything comes from one Cholesky factor and one triangular inverse per sweep, without forming K⁻¹ or a difference of
large numbers. With S = diag τ ≥ 0, B = L Lᵀ (Rasmussen and Williams, Alg. 3.5) and V = L⁻¹ S½ K: V S½ = L⁻¹(B − I) =
Lᵀ − L⁻¹, so the posterior variances, in either of the forms below, need nothing but L and L⁻¹. Both are stored
transposed, U = Lᵀ and U⁻¹, as LAPACK leaves them (`numerics.triangular`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from quantprop.core.gaussian import Natural
from quantprop.core.records import Record
from quantprop.numerics.triangular import (
    assembled,
    block_rows,
    gram_of_upper,
    inverse_rows,
    pivoted_cholesky,
    squares_above,
    squares_beside,
)
from quantprop.runtime.programs import program

NEGLIGIBLE_SITE = 1e-30  # precision / prior precision of a site that changes nothing (see `factorize`)
DOMINANT_RANK = 16


class LowRankSplit(Record):
    """k = low lowᵀ + rest: its dominant part, and what is left (see `dominant`)."""

    low: Float[Array, "n r"]
    rest: Float[Array, "n n"]

    @staticmethod
    def whole(k: Float[Array, "n n"]) -> LowRankSplit:
        """The factor with nothing split off."""
        return LowRankSplit(jnp.zeros((len(k), 0)), k)


@program
def dominant(k: Float[Array, "n n"]) -> LowRankSplit:
    """k = G Gᵀ + R: the first DOMINANT_RANK columns of its Cholesky factor with pivoting, and the rest.

    A long lengthscale and a huge variance make k nearly of low rank. Rounding errors of a Cholesky factor of B are then
    about ε max(B), and differ from sweep to sweep. What is left of k after its dominant part is small; its factor has
    small rounding errors, and the dominant part comes back by an update that has none of that size.

    A row whose variance is explained up to rounding is a row of zeros in R. What rounding leaves of it has no sign:
    as a pivot it would grow without bound, and in R it would make B indefinite where sites are strong.
    """
    own = jnp.diagonal(k)
    rounding = len(k) * jnp.finfo(k.dtype).eps * own
    low, left, _ = pivoted_cholesky(k, min(DOMINANT_RANK, len(k)), rounding)
    known = left > rounding
    return LowRankSplit(low, jnp.where(known[:, None] & known, k - low @ low.T, 0.0))


class Factor(Record):
    """B = L Lᵀ for the positive part of the sites. L is any root of B: nothing below needs it to be triangular, unless
    no dominant part was split off.
    """

    own: Float[Array, " n"]  # diag of K
    root: Float[Array, " n"]  # √τ, next to nothing where τ ≤ 0
    upper: Float[Array, "k k"]  # Lᵀ; n × n, or nothing where only derivatives are asked for
    inverse: Float[Array, "n n"]  # L⁻ᵀ
    b: Float[Array, " n"]  # diag of B⁻¹
    direct: Float[Array, " n"]  # K_ii − Σ_k V_ki²: the posterior variances, for weak sites
    log_determinant: Float[Array, ""]
    reach: Float[Array, "n r"]  # L⁻¹ S½ G of the dominant part G Gᵀ; no columns where none was split off

    @property
    def _strong(self) -> Bool[Array, " n"]:
        """Return where the site outweighs the prior, τ K_ii > ½."""
        return self.root**2 * self.own > 0.5

    @property
    def variance(self) -> Float[Array, " n"]:
        """The posterior variances (1 − b)/τ = K_ii − Σ_k V_ki², the second form where τ K_ii is small."""
        tau = jnp.where(self.root > 0, self.root**2, 1.0)
        return jnp.where(self._strong, (1.0 - self.b) / tau, self.direct)

    def b_inverse(self) -> Float[Array, "n n"]:
        """B⁻¹ = L⁻ᵀ L⁻¹; L⁻¹ is triangular unless a dominant part was split off."""
        return self.inverse @ self.inverse.T if self.reach.shape[1] else gram_of_upper(self.inverse)

    def covariance(self) -> Float[Array, "n n"]:
        """Σ₊: off the diagonal −B⁻¹_ij/√(τ_i τ_j), where next to nothing cancels, unlike in K − VᵀV."""
        root = jnp.where(self.root > 0, self.root, 1.0)
        own = jnp.eye(len(root), dtype=bool)
        return jnp.where(own, self.variance, -self.b_inverse() / (root[:, None] * root))

    def solve(self, split: LowRankSplit, d: Float[Array, " n"]) -> tuple[Array, Array]:
        """α = (I + S₊ K)⁻¹ d and K α.

        Of two equal expressions for α each is used for the entries of d where it does not cancel. K α is not formed as
        a product: with K of 1e8 that would turn the last digit of α into 1e-8 of f. V reaches only √K, and so does G,
        whose L⁻¹ S½ G is at most 1: a rounding of S½ K d would come back √(τ K) times as large.
        """
        root, strong = self.root, self._strong
        scaled = jnp.where(strong, d, 0.0) / jnp.where(strong, root, 1.0)
        weak = jnp.where(strong, 0.0, d)
        g_weak, rest_weak = split.low.T @ weak, split.rest @ weak
        k_weak = split.low @ g_weak + rest_weak
        inner = (scaled - root * rest_weak) @ self.inverse - self.reach @ g_weak
        back = self.inverse @ inner
        through_v = (inner @ self.upper - back) / jnp.where(root > 0, root, 1.0)  # Vᵀ inner = (L − L⁻ᵀ) inner / √τ
        return weak + root * back, k_weak + jnp.where(root > 0, through_v, 0.0)


def factorize(split: LowRankSplit, own: Float[Array, " n"], tau: Float[Array, " n"]) -> Factor:
    """Cholesky factor of B and its inverse, `own` being the diagonal of K: the n³ work of a sweep.

    Where there is no positive site, one of 1e-30 of the prior precision stands in: it changes nothing in double
    precision, but makes V S½ = Lᵀ − L⁻¹ hold the datum's column of V, which the posterior variance needs.
    """
    k, root = split.rest, jnp.sqrt(jnp.maximum(tau, jnp.where(own > 0, NEGLIGIBLE_SITE / own, 0.0)))
    on_diagonal = jnp.eye(len(root), dtype=bool)
    scaled = root[:, None] * k.T * root
    lower = jax.lax.linalg.cholesky(jnp.where(on_diagonal, scaled + 1.0, scaled), symmetrize_input=False)
    rows, pivots = block_rows(lower.T), jnp.diagonal(lower)
    rows_of_inverse = inverse_rows(rows)
    inverse, beside = assembled(rows_of_inverse), squares_beside(rows_of_inverse)
    own_inverse = jnp.diagonal(inverse)
    # diag of S½ VᵀV S½ = (L − L⁻ᵀ)(Lᵀ − L⁻¹), which overlap on the diagonal only
    explained = squares_above(rows) + beside + (pivots - own_inverse) ** 2
    direct = jnp.diagonal(k) - jnp.where(root > 0, explained / jnp.where(root > 0, root**2, 1.0), 0.0)
    log_determinant, nothing = 2.0 * jnp.sum(jnp.log(pivots)), jnp.zeros((len(root), 0))
    factor = Factor(own, root, assembled(rows), inverse, beside + own_inverse**2, direct, log_determinant, nothing)
    return _updated(factor, split.low) if split.low.shape[1] else factor


def _updated(factor: Factor, low: Float[Array, "n r"]) -> Factor:
    """The factor for K + G Gᵀ: L (I + c cᵀ)^½ with c = L⁻¹ S½ G = Q diag(σ) Wᵀ and s = √(1 + σ²).

    Written with c W in place of Q: singular vectors have rounding errors of that size in every row, also where c is 0.
    Posterior variances grow by those of G's weights, (I + cᵀ c)⁻¹, seen through H = (I + K S)⁻¹ G = G − Vᵀ c.
    """
    root = factor.root
    c = ((root * low.T) @ factor.inverse).T
    _, sigma, wt = jnp.linalg.svd(c, full_matrices=False)
    s = jnp.sqrt(1.0 + sigma**2)
    along = c @ wt.T  # Q diag(σ)
    upper = factor.upper + (along / (1.0 + s)) @ (along.T @ factor.upper)
    inverse = factor.inverse - (factor.inverse @ along) @ (along / (s * (1.0 + s))).T
    b = jnp.sum(inverse**2, axis=1)
    through_v = ((c.T @ factor.upper).T - factor.inverse @ c) / jnp.where(root > 0, root, jnp.inf)[:, None]
    direct = factor.direct + jnp.sum(((low - through_v) @ wt.T / s) ** 2, axis=1)
    log_determinant = factor.log_determinant + 2.0 * jnp.sum(jnp.log(s))
    return Factor(factor.own, root, upper, inverse, b, direct, log_determinant, (along / s) @ wt)


def negative_part(covariance: Float[Array, "n n"], sites: Natural) -> tuple[Array, Array]:
    """R and W = R⁻¹ S₋½ Σ₊, where Σ₊ is the posterior under the positive sites and I − S₋½ Σ₊ S₋½ = R Rᵀ.

    Then Σ = Σ₊ + Wᵀ W. The factor R exists exactly when Σ is positive definite.
    """
    root = jnp.sqrt(jnp.maximum(-sites.tau, 0.0))
    scaled = root[:, None] * covariance
    lower = jax.lax.linalg.cholesky(jnp.eye(len(root)) - scaled * root, symmetrize_input=False)
    return lower, solve_triangular(lower, scaled, lower=True)
