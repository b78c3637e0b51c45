"""What the functions of several classes are under sites, given v, and v: the factor of `ClassesPrior`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from quantprop.core.gaussian import Normal
from quantprop.core.records import Record
from quantprop.priors.base import Predictor
from quantprop.priors.cholesky import Factor, LowRankSplit, factorize

Grid = Float[Array, "classes m"]
Matrices = Float[Array, "classes m m"]


class ClassesFactor(Record):
    """What everything else follows from: the functions given v, class by class, and v."""

    d: Grid  # D
    b: Grid  # diag of A
    covariance: Matrices  # Σ
    lower: Float[Array, "m m"]  # of M

    def a(self, c: Any) -> Float[Array, "m m"]:
        """A_c = I − Σ_c D_c."""
        own = jnp.eye(self.d.shape[1], dtype=bool)
        return jnp.where(own, self.b[c], -self.covariance[c] * self.d[c])

    def e(self, c: Any) -> Float[Array, "m m"]:
        """E_c = D_c A_c."""
        return self.d[c][:, None] * self.a(c)

    def each(self, function: Any) -> Any:
        """A function of every class, one after the other: matrices of one class are alive at a time."""
        return jax.lax.map(function, jnp.arange(len(self.d)))

    def solve(self, nu: Grid) -> tuple[Array, Grid]:
        """The mean of v, M⁻¹ Σ_c A_cᵀ ν_c, and α_c = A_cᵀ ν_c − E_c v."""
        pulls = self.b * nu - self.d * self._apart(nu)
        v = cho_solve((self.lower, True), jnp.sum(pulls, axis=0))
        return v, pulls - self.d * self.times_a(v)

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
        return solve_triangular(self.lower, self.a(c).T, lower=True)


def factor_of(k: Matrices, d: Grid, alone: Array) -> tuple[ClassesFactor, Float[Array, ""]]:
    """The factor, and Σ_c log |I + K_c D_c| + log |M|, M having a precision of v `alone` besides."""

    def one(c: Any) -> tuple[Array, Array, Array]:
        factor = class_factor(k, d, c)
        return factor.b, factor.covariance(), factor.log_determinant

    b, covariance, sizes = jax.lax.map(one, jnp.arange(len(d)))
    own = jnp.eye(d.shape[1], dtype=bool)
    m = jnp.sum(jnp.where(own, (d * b)[:, :, None], -d[:, :, None] * covariance * d[:, None, :]), axis=0)
    lower = jax.lax.linalg.cholesky(m + alone * jnp.eye(len(m)), symmetrize_input=False)
    size = jnp.sum(sizes) + 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower)))
    return ClassesFactor(d, b, covariance, lower), size


def class_factor(k: Matrices, d: Grid, c: Any) -> Factor:
    """Of one class; where all share a kernel there is one matrix."""
    own = k[jnp.minimum(c, len(k) - 1)]
    return factorize(LowRankSplit.whole(own), jnp.diagonal(own), d[c])


# --- predictions ------------------------------------------------------------------------------------------------------


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
