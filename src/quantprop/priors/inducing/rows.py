"""V = L⁻¹ K_uf and d, the numbers of a prior VᵀV + diag d, in chunks of rows: an M × n array exists only where it fits.

L Lᵀ = K_uu + jitter · diag K_uu, and d_n = k_nn − |V_n|² is what the M points leave unexplained of a variance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from quantprop.kernels import Kernel

CPU_CHUNK = 2**24  # bytes of one chunk of V: what a core's cache nearly holds
DEVICE_CHUNK = 2**28  # an accelerator wants large products


def chunk_bytes() -> int:
    """The largest size of one chunk of V, where this process computes."""
    return CPU_CHUNK if jax.default_backend() == "cpu" else DEVICE_CHUNK


def chunks_of(n: int, m: int) -> int:
    """Into how many equal chunks n rows are divided: padded numbers of rows have many divisors."""
    least = -(-8 * n * m // chunk_bytes())
    return next(k for k in range(max(1, least), n + 1) if n % k == 0) if least <= n else n


class Basis(eqx.Module):
    """What one row of V is computed from."""

    kernel: Kernel
    z: Float[Array, "m d"]
    scale: Float[Array, ""]  # of the covariance
    jitter: float = eqx.field(static=True)

    def lower(self) -> Float[Array, "m m"]:
        """L, NaN where K_uu is not positive definite."""
        k = self.kernel.cross(self.z, self.z)
        return jnp.linalg.cholesky(k + self.jitter * jnp.diag(jnp.diagonal(k)))

    def explained(self, lower: Float[Array, "m m"], x: Float[Array, "c d"]) -> tuple[Array, Array]:
        """V and d of some rows. d is a variance: what rounding leaves below 0 is 0."""
        v = jnp.sqrt(self.scale) * solve_triangular(lower, self.kernel.cross(self.z, x), lower=True)
        return v, jnp.maximum(self.scale * self.kernel.diagonal(x) - jnp.sum(v**2, axis=0), 0.0)


class Rows(eqx.Module):
    """The rows of x in k chunks of c, with d, and V where it is held."""

    basis: Basis
    lower: Float[Array, "m m"]
    x: Float[Array, "k c d"]
    d: Float[Array, "k c"]
    v: Float[Array, "k m c"] | None

    @staticmethod
    def of(basis: Basis, x: Float[Array, "n d"], hold: bool) -> Rows:
        """All that sweeps over x share."""
        lower, split = basis.lower(), x.reshape(chunks_of(len(x), len(basis.z)), -1, x.shape[1])

        def one(carry, some):
            v, d = basis.explained(lower, some)
            return carry, (d, v if hold else None)

        _, (d, v) = jax.lax.scan(one, None, split)
        return Rows(basis, lower, split, d, v)

    @property
    def residual(self) -> Float[Array, " n"]:
        """d of all rows."""
        return self.d.ravel()

    def turned(self, lower: Float[Array, "m m"], inverse: Float[Array, "m m"]) -> Rows:
        """The same with lower⁻¹ V in the place of V; d stays what it was."""
        v = None if self.v is None else jax.lax.map(lambda v: inverse @ v, self.v)
        return Rows(self.basis, self.lower @ lower, self.x, self.d, v)

    def over(self, step: Callable, carry: Any, *columns: Float[Array, " n"]) -> tuple[Any, Any]:
        """step(carry, V, columns) → (carry, outputs) for one chunk after the other; the outputs of all rows in one."""
        split = [column.reshape(self.d.shape) for column in columns]

        def one(carry, given):
            x, v, some = given
            return step(carry, self.basis.explained(self.lower, x)[0] if v is None else v, *some)

        carry, out = jax.lax.scan(one, carry, (self.x, self.v, split))
        return carry, jax.tree.map(jnp.ravel, out)

    def gram(self, by: Float[Array, " n"]) -> Float[Array, "m m"]:
        """V diag(by) Vᵀ."""
        m = len(self.lower)
        return self.over(lambda sum_, v, by: (sum_ + (v * by) @ v.T, None), jnp.zeros((m, m)), by)[0]

    def sent(self, by: Float[Array, " n"]) -> Float[Array, " m"]:
        """V by."""
        return self.over(lambda sum_, v, by: (sum_ + v @ by, None), jnp.zeros(len(self.lower)), by)[0]

    def received(self, by: Float[Array, " m"]) -> Float[Array, " n"]:
        """Vᵀ by."""
        return self.over(lambda carry, v: (carry, v.T @ by), None)[1]

    def forms(self, by: Float[Array, "m m"]) -> Float[Array, " n"]:
        """V_nᵀ by V_n of every row."""
        return self.over(lambda carry, v: (carry, jnp.sum(v * (by @ v), axis=0)), None)[1]


def carried_back(
    basis: Basis, x: Float[Array, "n d"], cotangent: Callable, moving: bool, *columns: Float[Array, " n"]
) -> Basis:
    """The cotangent of a basis, given those of V and d by `cotangent(V, columns)`, chunk by chunk.

    Without `moving` points theirs is 0, which saves a pass over all pairs.
    """
    k = chunks_of(len(x), len(basis.z))
    lower, back_to_basis = jax.vjp(_lower_of(moving), basis)
    split = (x.reshape(k, -1, x.shape[1]), [column.reshape(k, -1) for column in columns])

    def one(carry, given):
        x, some = given
        (v, _), back = jax.vjp(lambda basis, lower: _still(basis, moving).explained(lower, x), basis, lower)
        return jax.tree.map(jnp.add, carry, back(cotangent(v, *some))), None

    nothing = jax.tree.map(jnp.zeros_like, (basis, lower))
    (own, by_lower), _ = jax.lax.scan(one, nothing, split)
    return jax.tree.map(jnp.add, own, back_to_basis(by_lower)[0])


def _still(basis: Basis, moving: bool) -> Basis:
    return basis if moving else eqx.tree_at(lambda b: b.z, basis, jax.lax.stop_gradient(basis.z))


def _lower_of(moving: bool) -> Callable[[Basis], Array]:
    return lambda basis: _still(basis, moving).lower()
