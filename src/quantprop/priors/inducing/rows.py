"""V = L⁻¹ K_uf and d, the numbers of a prior VᵀV + diag d, in chunks of rows: an M × n array exists only where it fits.

L Lᵀ = K_uu + jitter · diag K_uu, of the points that add something to the others; d_n = k_nn − |V_n|² is what all leave
unexplained of a variance.

Where rows are divided among devices, each goes over chunks of its own rows (`by_device`); only sums over rows travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from quantprop.core.records import Record, changed, field
from quantprop.kernels import Kernel
from quantprop.numerics.triangular import lower_product, pivoted_cholesky, weighted_gram
from quantprop.runtime.mesh import by_device

CPU_CHUNK = 2**22  # bytes of one chunk of V: about the size of a core's cache
CPU_CHUNK_ROWS = 2**13  # longer chunks, even with few points, leave the cache between two products
DEVICE_CHUNK = 2**28  # an accelerator wants large products
ROUNDINGS = 8  # rounding errors per point, up to which a point adds nothing to the others


def chunk_bytes(device: int = DEVICE_CHUNK) -> int:
    """The largest size of one chunk of V, where this process computes; `device` on an accelerator."""
    return CPU_CHUNK if jax.default_backend() == "cpu" else device


def chunks_of(n: int, m: int, device: int = DEVICE_CHUNK) -> int:
    """Into how many equal chunks n rows are divided: padded numbers of rows have many divisors."""
    least = max(-(-8 * n * m // chunk_bytes(device)), -(-n // CPU_CHUNK_ROWS) if jax.default_backend() == "cpu" else 1)
    return next(k for k in range(max(1, least), n + 1) if n % k == 0) if least <= n else n


def _split(rows: Float[Array, "n ..."], k: int) -> Float[Array, "k c ..."]:
    return rows.reshape(k, -1, *rows.shape[1:])


def in_turn(step: Callable, carry: Any, chunks: Any) -> tuple[Any, Any]:
    """`jax.lax.scan`, without the loop where there is one chunk."""
    if len(jax.tree.leaves(chunks)[0]) > 1:
        return jax.lax.scan(step, carry, chunks)
    carry, out = step(carry, jax.tree.map(lambda some: some[0], chunks))
    return carry, jax.tree.map(lambda some: some[None], out)


class Basis(Record):
    """The inputs of one row of V."""

    kernel: Kernel
    z: Float[Array, "m d"]
    scale: Float[Array, ""]  # of the covariance
    jitter: float = field(static=True)

    def covariance(self) -> Float[Array, "m m"]:
        """K_uu with the jitter."""
        k = self.kernel.cross(self.z, self.z)
        return k + self.jitter * jnp.diag(jnp.diagonal(k))

    def factored(self) -> tuple[Array, Array]:
        """L, and which points it is of: 0 for those left out, because others determine their values. These have rows
        and columns of I.
        """
        k, m = self.covariance(), len(self.z)
        least = ROUNDINGS * m * float(jnp.finfo(k.dtype).eps)
        if self.jitter > least:
            return jnp.linalg.cholesky(k), jnp.ones(m)
        kept = independent(jax.lax.stop_gradient(k), least)
        return jnp.linalg.cholesky(jnp.where(jnp.outer(kept, kept) > 0, k, jnp.eye(m))), kept

    def lower(self) -> Float[Array, "m m"]:
        """L, NaN where K_uu has negative eigenvalues."""
        return self.factored()[0]

    def whitening(self) -> Float[Array, "m m"]:
        """L⁻¹, with rows of 0 for points left out: products with it take half as long as triangular solves."""
        lower, kept = self.factored()
        return solve_triangular(lower, jnp.diag(kept), lower=True)

    def values(self) -> Float[Array, "m m"]:
        """The map from v to u: L, and for omitted points their values given the others."""
        lower, kept = self.factored()
        return jnp.where(kept[:, None] > 0, lower * kept, self.covariance() @ self.whitening().T)

    def explained(self, whitening: Float[Array, "m m"], x: Float[Array, "c d"]) -> tuple[Array, Array]:
        """V and d of some rows. d is a variance: what rounding leaves below 0 is 0."""
        v = lower_product(jnp.sqrt(self.scale) * whitening, self.kernel.cross(self.z, x))
        return v, jnp.maximum(self.scale * self.kernel.diagonal(x) - jnp.sum(v**2, axis=0), 0.0)


def independent(k: Float[Array, "m m"], least: float) -> Float[Array, " m"]:
    """1 for points that a Cholesky factorisation with pivots takes, 0 for those whose variance, given these, is at most
    `least` of what it was; NaN where it is negative. Where no pivot is so small without exchanging any, all are taken.
    """
    m, variance = len(k), jnp.diagonal(k)
    scale = jnp.where(variance > 0, jax.lax.rsqrt(jnp.where(variance > 0, variance, 1.0)), 0.0)
    correlation = scale[:, None] * k * scale

    def chosen() -> Array:
        _, rest, kept = pivoted_cholesky(correlation, m, least)
        return jnp.where(jnp.all(rest > -jnp.sqrt(jnp.finfo(k.dtype).eps)), kept.astype(k.dtype), jnp.nan)

    pivots = jnp.diagonal(jnp.linalg.cholesky(correlation)) ** 2
    return jax.lax.cond(jnp.all(pivots > least), lambda: jnp.ones(m), chosen)


class Rows(Record):
    """The rows of x, with d, and V in k chunks of c rows (of each device) if it is stored."""

    basis: Basis
    whitening: Float[Array, "m m"]
    x: Float[Array, "n d"]
    residual: Float[Array, " n"]  # d
    v: Float[Array, "k m c"] | None

    @staticmethod
    def of(basis: Basis, x: Float[Array, "n d"], hold: bool) -> Rows:
        """All that sweeps over x share."""
        whitening = basis.whitening()

        def one(carry, some):
            v, d = basis.explained(whitening, some)
            return carry, (d, v if hold else None)

        def own(x):
            _, (d, v) = in_turn(one, None, _split(x, chunks_of(len(x), len(basis.z))))
            return None, (d.ravel(), v)

        _, (d, v) = by_device(own, x, out=(0, 2))
        return Rows(basis, whitening, x, d, v)

    def turned(self, by: Float[Array, "m m"]) -> Rows:
        """The rows of `by` V, with a lower triangular matrix."""

        def own(v):
            return in_turn(lambda carry, some: (carry, lower_product(by, some)), None, v)

        v = None if self.v is None else by_device(own, self.v, axes=(2,), out=2)[1]
        return Rows(self.basis, by @ self.whitening, self.x, self.residual, v)

    def over(self, step: Callable, zero: Any, *columns: Float[Array, " n"]) -> tuple[Any, Any]:
        """step(sum, V, columns) → (sum, outputs) for one chunk after the other, the sum starting from `zero`; the
        outputs of all rows in one.
        """

        def one(carry, given):
            x, v, some = given
            return step(carry, self.basis.explained(self.whitening, x)[0] if v is None else v, *some)

        def own(x, v, *columns):
            k = chunks_of(len(x), len(self.whitening))
            carry, out = in_turn(one, zero, (_split(x, k), v, [_split(column, k) for column in columns]))
            return carry, jax.tree.map(jnp.ravel, out)

        return by_device(own, self.x, self.v, *columns, axes=(0, 2, *[0] * len(columns)))

    def gram(self, by: Float[Array, " n"]) -> Float[Array, "m m"]:
        """V diag(by) Vᵀ."""
        m = len(self.whitening)
        return self.over(lambda sum_, v, by: (sum_ + weighted_gram(v, by), None), jnp.zeros((m, m)), by)[0]

    def sent(self, by: Float[Array, " n"]) -> Float[Array, " m"]:
        """V by."""
        return self.over(lambda sum_, v, by: (sum_ + v @ by, None), jnp.zeros(len(self.whitening)), by)[0]

    def received(self, by: Float[Array, " m"]) -> Float[Array, " n"]:
        """Vᵀ by."""
        return self.over(lambda carry, v: (carry, by @ v), None)[1]

    def forms(self, by: Float[Array, "m m"]) -> Float[Array, " n"]:
        """V_nᵀ by V_n of every row."""
        return self.over(lambda carry, v: (carry, jnp.sum(v * (by @ v), axis=0)), None)[1]


def carried_back(
    basis: Basis, x: Float[Array, "n d"], cotangent: Callable, moving: bool, *columns: Float[Array, " n"]
) -> Basis:
    """The cotangent of a basis, given those of V and d by `cotangent(V, columns)`, chunk by chunk.

    Without `moving` points theirs is 0, which saves a pass over all pairs.
    """
    whitening, back_to_basis = jax.vjp(lambda basis: still(basis, moving).whitening(), basis)

    def one(carry, given):
        x, some = given
        (v, _), back = jax.vjp(lambda basis, by: still(basis, moving).explained(by, x), basis, whitening)
        return jax.tree.map(jnp.add, carry, back(cotangent(v, *some))), None

    nothing = jax.tree.map(jnp.zeros_like, (basis, whitening))

    def own(x, *columns):
        k = chunks_of(len(x), len(basis.z))
        return in_turn(one, nothing, (_split(x, k), [_split(column, k) for column in columns]))

    (direct, by_whitening), _ = by_device(own, x, *columns)
    return jax.tree.map(jnp.add, direct, back_to_basis(by_whitening)[0])


def means_given(basis: Basis, v: Float[Array, " m"], x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Vᵀ v of every row, chunk by chunk; its derivative computes the chunks again."""
    u = basis.whitening().T @ v
    split = x.reshape(chunks_of(len(x), len(basis.z)), -1, x.shape[1])

    @jax.checkpoint
    def one(basis, u, some):
        return basis.kernel.cross(some, basis.z) @ u

    return in_turn(lambda carry, some: (carry, one(basis, u, some)), None, split)[1].ravel()


def still(basis: Basis, moving: bool) -> Basis:
    """The basis, its points without a derivative unless they are learned."""
    return basis if moving else changed(basis, z=jax.lax.stop_gradient(basis.z))
