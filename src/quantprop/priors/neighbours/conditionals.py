"""f_i given the whitened values u of the bases and a few other rows under their sites, chunk by chunk.

With R the covariance that the bases leave, V what ties values to u, and sites ν, τ of the rows N that i sees,

    f_i = a_i + w_iᵀ u + N(0, r_i),   b = (R_NN + T_N⁻¹)⁻¹ R_Ni,   w_i = V_i − V_N b,   r_i = R_ii − R_iN b,

and a_i = cᵀν_N with c = R_Ni − R_NN b, the covariances of f_i with its neighbours given their sites. With S = diag τ
b = (I + S R)⁻¹ S R_Ni, which exists where precisions are 0 or negative too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from quantprop.core.gaussian import Natural
from quantprop.core.records import Record
from quantprop.kernels import Kernel
from quantprop.priors.inducing.rows import chunks_of, in_turn
from quantprop.priors.neighbours.bases import Bases

SMALLEST = 8  # rows of a matrix that is not divided further
DEVICE_CHUNK = 2**30  # bytes of what a chunk gathers: an accelerator starts hundreds of programs for each
SOLVED = "solutions of a row's equations"
KEPT = jax.checkpoint_policies.save_only_these_names(SOLVED)  # for derivatives; the rest is computed again


class Rows(Record):
    """Some values and the neighbours that each sees. A neighbour −1 is none."""

    neighbours: Float[Array, "n m"]  # whole numbers, as floats: derivatives have the types of what they are of
    at: Float[Array, "n d"]
    own: Float[Array, " n"]  # R_ii
    v: Float[Array, "n M"]  # V_i


class Blocks(Rows):
    """The same with the residual covariances of and with neighbours."""

    among: Float[Array, "n m m"]  # R_NN
    ties: Float[Array, "n m"]  # R_Ni


class Conditional(Record):
    """Each row's distribution given u and its neighbours."""

    a: Float[Array, " n"]
    w: Float[Array, "n M"]
    r: Float[Array, " n"]
    c: Float[Array, "n m"]

    def under(self, neighbours: Float[Array, "n m"], nu: Float[Array, " n"]) -> Conditional:
        """The same under other sites of equal precisions."""
        seen = jnp.where(neighbours >= 0, nu[indices(neighbours)], 0.0)
        return Conditional(jnp.sum(self.c * seen, axis=1), self.w, self.r, self.c)


def indices(neighbours: Float[Array, "... m"]) -> Int[Array, "... m"]:
    """Neighbours as indices; 0 in place of none, whose values the caller masks."""
    return jnp.maximum(neighbours, 0.0).astype(jnp.int32)


class Residual(Record):
    """The covariances that the bases leave, among rows at x and of these with values that `kernel` ties to them."""

    bases: Bases
    kernel: Kernel
    x: Float[Array, "n d"]
    v: Float[Array, "n M"]

    def rows(self, at: Float[Array, "k d"], v: Float[Array, "k M"], neighbours: Float[Array, "k m"]) -> Rows:
        """Values at these inputs."""
        own = self.bases.scale * self.kernel.diagonal(at) - jnp.sum(v**2, axis=1)
        return Rows(neighbours, at, jnp.maximum(own, 0.0), v)  # below 0 it is rounding

    def near(self, row: Rows) -> Float[Array, "m M"]:
        """V_N of one value: gathered once, since its derivative is a sum over all rows that see a row."""
        return self.v[indices(row.neighbours)]

    def of(self, row: Rows, others: Float[Array, "m M"]) -> tuple[Float[Array, "m m"], Float[Array, " m"]]:
        """R_NN and R_Ni of one value, computed now unless they are stored."""
        if isinstance(row, Blocks):
            return row.among, row.ties
        there, scale = self.x[indices(row.neighbours)], self.bases.scale
        among = scale * self.bases.kernel.gram(there) - others @ others.T
        ties = scale * self.kernel.cross(row.at[None], there)[0] - others @ row.v
        return among, jnp.where(row.neighbours >= 0, ties, 0.0)

    def product(self, row: Rows, others: Float[Array, "m M"], b: Float[Array, " m"]) -> Float[Array, " m"]:
        """R_NN b of one value."""
        if isinstance(row, Blocks):
            return row.among @ b
        gram = self.bases.kernel.gram(self.x[indices(row.neighbours)])
        return self.bases.scale * (gram @ b) - others @ (others.T @ b)

    def stored(self, rows: Rows) -> Blocks:
        """The covariances of all rows, for many uses."""
        among, ties = by_row(lambda row: self.of(row, self.near(row)), rows)
        return Blocks(rows.neighbours, rows.at, rows.own, rows.v, among, ties)


def by_row(function: Callable, rows: Rows) -> Any:
    """A function of one row for all rows, chunk by chunk; derivatives compute a chunk again."""
    (n, m), points = rows.neighbours.shape, rows.v.shape[1]
    pieces = chunks_of(n, max(1, m) * (m + points + 1), DEVICE_CHUNK)
    split = jax.tree.map(lambda column: column.reshape(pieces, n // pieces, *column.shape[1:]), rows)
    chunk = jax.checkpoint(jax.vmap(function), policy=KEPT)
    out = in_turn(lambda carry, some: (carry, chunk(some)), None, split)[1]
    return jax.tree.map(lambda part: part.reshape(n, *part.shape[2:]), out)


def conditional(rows: Rows, residual: Residual, sites: Natural) -> Conditional:
    """Every row given u and its neighbours under their sites.

    What solves the equations has no derivatives. Those of a, w, r and c are written out, with left = R_Ni − R_NN b at
    fixed b, in which an m × M product stays a vector:

        δc = (I + R S)⁻¹ (δleft − R_NN c δτ),   δb = (I + S R)⁻¹ (c δτ + τ δleft),
        δr = δR_ii − b (δR_Ni + δleft) − c² δτ.
    """

    def one(row: Rows) -> Conditional:
        near, others = indices(row.neighbours), residual.near(row)
        nu, tau = (jnp.where(row.neighbours >= 0, part[near], 0.0) for part in (sites.nu, sites.tau))
        among, ties = residual.of(row, others)
        among, fixed_tau = jax.lax.stop_gradient((among, tau))
        inverse, b, c, weight, pull = _solved(among, *jax.lax.stop_gradient((ties, nu, tau)))
        left, tau = (part - jax.lax.stop_gradient(part) for part in (ties - residual.product(row, others, b), tau))
        a = c @ nu + weight @ left - (pull * c) @ tau
        w = row.v - (b + inverse @ (c * tau + fixed_tau * left)) @ others
        r = row.own - ties @ b - b @ left - c**2 @ tau
        return Conditional(a, w, r, c + inverse.T @ (left - among @ (c * tau)))

    return by_row(one, rows)


def _solved(among: Array, ties: Array, nu: Array, tau: Array) -> tuple[Array, ...]:
    """(I + S R)⁻¹, b, c, (I + S R)⁻¹ ν and R (I + S R)⁻¹ ν, the neighbours' means."""
    inverse = inverted(jnp.eye(len(tau)) + tau[:, None] * among)
    b, weight = inverse @ (tau * ties), inverse @ nu
    return tuple(checkpoint_name(part, SOLVED) for part in (inverse, b, ties - among @ b, weight, among @ weight))


def inverted(matrix: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """The inverse, by that of one half and of its complement. No pivots are sought: those of I + S R are at least 1
    where precisions are positive.

    Written out, since LAPACK's programs for many small matrices wait for each other forever where two of them run at a
    time (jaxlib 0.10, on two threads), and an accelerator's are slower.
    """
    if len(matrix) <= SMALLEST:
        return jax.lax.fori_loop(0, len(matrix), exchanged, matrix)
    half = len(matrix) // 2
    (a, b), (c, d) = ((rows[:, :half], rows[:, half:]) for rows in (matrix[:half], matrix[half:]))
    of_a = inverted(a)
    left, up = c @ of_a, of_a @ b
    complement = inverted(d - left @ b)
    low = complement @ left
    return jnp.block([[of_a + up @ low, -up @ complement], [-low, complement]])


def exchanged(j: Array, a: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Row and column j exchanged: after all of them, the inverse."""
    own = jnp.arange(len(a)) == j
    row, column = jnp.where(own, 1.0, a[j]) / a[j, j], a[:, j]
    a = jnp.where(own, 0.0, a) - jnp.where(own, 0.0, column)[:, None] * row
    return jnp.where(own[:, None], row, a)
