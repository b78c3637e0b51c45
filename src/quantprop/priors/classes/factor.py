"""The functions of several classes under sites, given v, and v: the factor of `ClassesPrior`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.gaussian import Normal
from quantprop.core.records import Record
from quantprop.numerics.triangular import lower_product, transposed, triangular_inverse, upper_product
from quantprop.priors.base import Predictor
from quantprop.priors.cholesky import Factor, LowRankSplit, factorize

Grid = Float[Array, "classes m"]
Matrices = Float[Array, "classes m m"]


class ClassesFactor(Record):
    """The factor: the functions given v, class by class, and v."""

    d: Grid  # D
    b: Grid  # diag of A
    covariance: Matrices  # Σ
    inverse: Float[Array, "m m"]  # L⁻¹ of M = L Lᵀ

    def a_transposed(self, c: Any) -> Float[Array, "m m"]:
        """A_cᵀ = I − D_c Σ_c."""
        return with_diagonal(-self.d[c][:, None] * self.covariance[c], self.b[c])

    def e(self, c: Any) -> Float[Array, "m m"]:
        """E_c = A_cᵀ D_c."""
        return self.a_transposed(c) * self.d[c]

    def each(self, function: Any) -> Any:
        """A function of every class, one after the other: matrices of one class are alive at a time."""
        return jax.lax.map(function, jnp.arange(len(self.d)))

    def solve(self, nu: Grid) -> tuple[Array, Grid]:
        """The mean of v, M⁻¹ Σ_c A_cᵀ ν_c, and α_c = A_cᵀ ν_c − E_c v."""
        pulls = self.b * nu - self.d * self._apart(nu)
        v = (self.inverse @ jnp.sum(pulls, axis=0)) @ self.inverse
        return v, pulls - self.d * self.times_a(v)

    def shift(self, nu: Grid) -> tuple[Grid, Grid]:
        """α, and what ν adds to the mean of v − f_c: A_c v + Σ_c ν_c."""
        v, alpha = self.solve(nu)
        return alpha, self.times_a(v) + self.times(nu)

    @property
    def variance(self) -> Grid:
        """diag of Σ."""
        return jnp.diagonal(self.covariance, axis1=1, axis2=2)

    def times(self, nu: Grid) -> Grid:
        """Σ_c ν_c for every class."""
        return jnp.einsum("cij,cj->ci", self.covariance, nu)

    def _apart(self, nu: Grid) -> Grid:
        """The same without the diagonal, which b stands for: nothing cancels where sites are strong."""
        return self.times(nu) - self.variance * nu

    def times_a(self, v: Float[Array, " m"]) -> Grid:
        """A_c v for every class."""
        return self.b * v - self._apart(self.d * v)

    def root(self, c: Any) -> Float[Array, "m m"]:
        """W_c = L⁻¹ A_cᵀ, with W_cᵀ W_c = A_c M⁻¹ A_cᵀ."""
        return lower_product(self.inverse, self.a_transposed(c))


class Roots(NamedTuple):
    """D½ of every class, and L⁻ᵀ of I + D½ K D½ = L Lᵀ."""

    root: Grid
    inverse: Matrices


def with_diagonal(matrix: Float[Array, "m m"], diagonal: Float[Array, " m"]) -> Float[Array, "m m"]:
    """The matrix with another diagonal."""
    return jnp.where(jnp.eye(len(diagonal), dtype=bool), diagonal, matrix)


def factor_of(k: Matrices, d: Grid, alone: Array) -> tuple[ClassesFactor, Float[Array, ""]]:
    """The factor, and Σ_c log |I + K_c D_c| + log |M|, M having a precision of v `alone` besides."""
    return factors_of(k, d, alone)[:2]


def factors_of(k: Matrices, d: Grid, alone: Array) -> tuple[ClassesFactor, Float[Array, ""], Roots]:
    """The same with the roots of every class."""

    def one(m: Array, c: Any) -> tuple[Array, tuple]:
        factor = class_factor(k, d, c)
        covariance = factor.covariance()
        e = with_diagonal(-d[c][:, None] * covariance * d[c], d[c] * factor.b)
        roots = Roots(factor.root, factor.inverse)
        return m + e, (factor.b, covariance, factor.log_determinant, roots)

    m, (b, covariance, sizes, roots) = jax.lax.scan(one, jnp.zeros_like(k[0]), jnp.arange(len(d)))
    lower = jax.lax.linalg.cholesky(m + alone * jnp.eye(len(m)), symmetrize_input=False)
    size = jnp.sum(sizes) + 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower)))
    return ClassesFactor(d, b, covariance, transposed(triangular_inverse(lower).T)), size, roots


def class_factor(k: Matrices, d: Grid, c: Any) -> Factor:
    """The matrix of one class; if all share a kernel there is only one."""
    own = k[jnp.minimum(c, len(k) - 1)]
    return factorize(LowRankSplit.whole(own), jnp.diagonal(own), d[c])


# --- predictions ------------------------------------------------------------------------------------------------------


class ClassesCross(NamedTuple):
    """Cross-covariance of new values Σ_c w_c f_c(x) and data: a covariance per class (or one), and weights."""

    k: Float[Array, "classes m k"]
    weights: Float[Array, "k classes"]


class ClassesPredictor(Predictor):
    """Weights of the means, and the factors of every class and of v."""

    alpha: Float[Array, "classes m"]
    root: Float[Array, "classes m"]  # D½
    inverse: Float[Array, "classes m m"]  # L⁻¹ of I + D½ K D½
    of_v: Float[Array, "m m"]  # L⁻¹ of M

    def apart(self, k: Float[Array, "classes m k"]) -> tuple[Array, Array, Array]:
        """For every class kᵀα, kᵀ E k, the variance explained given v, and L⁻¹ E k, which v adds."""

        def one(c):
            cross = k[jnp.minimum(c, len(k) - 1)]
            v = lower_product(self.inverse[c], self.root[c][:, None] * cross)
            back = upper_product(transposed(self.inverse[c]), v)
            tie = lower_product(self.of_v, self.root[c][:, None] * back)
            return cross.T @ self.alpha[c], jnp.sum(v**2, axis=0), tie

        return jax.lax.map(one, jnp.arange(len(self.alpha)))

    def functions(
        self, k: Float[Array, "classes m k"], own: Float[Array, "classes k"]
    ) -> tuple[Float[Array, "k classes"], Float[Array, "k classes classes"]]:
        """The functions of all classes at k new inputs: means minus prior means, and covariances between classes."""
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
