"""Small matrices, many at a time: rows and columns first, then whatever runs over time or stretches of it.

All loops over entries are written out, so that a step of a filter is a few fused loops over long arrays, and no call of
LAPACK. Beyond MAX_UNROLLED entries a side the sums over inner indices are loops of the compiler instead.

Rows are sorted by time, and cut into stretches of equal length that are filtered side by side (`Layout`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Matrix = Float[Array, "d d *many"]
Vector = Float[Array, "d *many"]

MAX_UNROLLED = 8


def product(a: Matrix, b: Matrix) -> Matrix:
    """A B."""
    if not 0 < len(b) <= MAX_UNROLLED:
        return jnp.einsum("ij...,jk...->ik...", a, b)
    return sum((a[:, j, None] * b[None, j] for j in range(1, len(b))), a[:, 0, None] * b[None, 0])


def times(a: Matrix, x: Vector) -> Vector:
    """A x."""
    if len(x) > MAX_UNROLLED:
        return jnp.einsum("ij...,j...->i...", a, x)
    return sum((a[:, j] * x[j] for j in range(1, len(x))), a[:, 0] * x[0])


def dot(x: Vector, y: Vector) -> Array:
    """xᵀ y."""
    return jnp.sum(x * y, axis=0)


def outer(x: Vector, y: Vector) -> Matrix:
    """x yᵀ."""
    return x[:, None] * y[None]


def transposed(a: Matrix) -> Matrix:
    """Aᵀ."""
    return jnp.swapaxes(a, 0, 1)


def symmetric(a: Matrix) -> Matrix:
    """The symmetric part, which rounding errors leave."""
    return 0.5 * (a + transposed(a))


def identity(a: Matrix) -> Matrix:
    """I, as many times as there are matrices."""
    own = jnp.eye(len(a), dtype=a.dtype)
    return jnp.broadcast_to(own.reshape(own.shape + (1,) * (a.ndim - 2)), a.shape)


def steps(count: int, step: Callable[[Any, Any], Any], state: Any) -> Any:
    """step(k, state) for k = 0, 1, …: written out while there are few."""
    if count > MAX_UNROLLED:
        return jax.lax.fori_loop(0, count, step, state)
    for k in range(count):
        state = step(k, state)
    return state


def cholesky(a: Matrix, least: float = 0.0) -> Matrix:
    """L with A = L Lᵀ. A pivot that is not above `least` is rounding: if that is 0, so is its column."""
    rows = jnp.arange(len(a)).reshape((-1,) + (1,) * (a.ndim - 2))

    def step(j, state):
        a, lower = state
        above = a[j, j] > least
        root = jnp.where(above, jnp.sqrt(jnp.where(above, a[j, j], 1.0)), least**0.5)
        scale = jnp.where(above | (least > 0.0), 1.0 / jnp.where(root > 0.0, root, 1.0), 0.0)
        column = jnp.where(rows == j, root, jnp.where(rows > j, a[:, j] * scale, 0.0))
        return a - outer(column, column), jnp.where(rows[None] == j, column[:, None], lower)

    return steps(len(a), step, (a, jnp.zeros_like(a)))[1]


def forward_solve(lower: Matrix, x: Vector) -> Vector:
    """L⁻¹ x of a lower triangle L without zeros on its diagonal."""
    rows = jnp.arange(len(x)).reshape((-1,) + (1,) * (x.ndim - 1))

    def step(j, x):
        own = x[j] / lower[j, j]
        return jnp.where(rows == j, own, jnp.where(rows > j, x - lower[:, j] * own, x))

    return steps(len(x), step, x)


def inverse(a: Matrix) -> Matrix:
    """A⁻¹ by Gauss-Jordan elimination with partial pivoting."""
    d = len(a)
    if d > MAX_UNROLLED:
        return jnp.moveaxis(jnp.linalg.inv(jnp.moveaxis(a, (0, 1), (-2, -1))), (-2, -1), (0, 1))
    rows = list(jnp.concatenate([a, identity(a)], axis=1))
    for j in range(d):
        for i in range(j + 1, d):
            larger = jnp.abs(rows[i][j]) > jnp.abs(rows[j][j])
            rows[i], rows[j] = jnp.where(larger, rows[j], rows[i]), jnp.where(larger, rows[i], rows[j])
        pivot = rows[j] / rows[j][j]
        rows = [pivot if i == j else row - row[j] * pivot for i, row in enumerate(rows)]
    return jnp.stack([row[d:] for row in rows])


# --- along the last axis ----------------------------------------------------------------------------------------------


def preceding(x: Array, reverse: bool = False) -> Array:
    """The entry before each, or the one after it; 0 at the ends."""
    nothing = jnp.zeros_like(x[..., :1])
    return jnp.concatenate([x[..., 1:], nothing] if reverse else [nothing, x[..., :-1]], axis=-1)


def accumulated(join: Callable[[Any, Any], Any], whole: Any, reverse: bool = False) -> Any:
    """Every entry joined with all before it, or after it, in log₂ rounds (Hillis and Steele 1986); `join` takes what
    comes first in this direction first.
    """
    lanes = jax.tree.leaves(whole)[0].shape[-1]
    at = jnp.arange(lanes)[::-1] if reverse else jnp.arange(lanes)

    def further(k, so_far):
        by = 2**k
        both = join(jax.tree.map(lambda x: jnp.roll(x, -by if reverse else by, axis=-1), so_far), so_far)
        return jax.tree.map(lambda x, y: jnp.where(at >= by, x, y), both, so_far)

    return jax.lax.fori_loop(0, (lanes - 1).bit_length(), further, whole)


Slots = Float[Array, "l b"]
MAX_IN_ONE = 512  # times up to which one stretch is as fast as several
MAX_CPU_LANES, MAX_GPU_LANES = 256, 16384  # most stretches side by side
MIN_GPU_LENGTH = 64  # least steps of a stretch on a GPU, whose loops take as long for one entry as for thousands


class Layout(NamedTuple):
    """Slots (l, b) hold time b·L + l, the first n of them data. All are floats, for these are leaves of a prior, and
    a prior's leaves have derivatives.
    """

    order: Slots  # the row in each slot; n where there is none
    rank: Float[Array, " n"]  # the time at which each row stands


def lanes_for(n: int) -> int:
    """Number of stretches for the device."""
    if n <= MAX_IN_ONE:
        return 1
    if jax.default_backend() == "cpu":
        return min(MAX_CPU_LANES, 1 << ((n // 32).bit_length() // 2 + 1))
    return max(1, min(MAX_GPU_LANES, 1 << (n // MIN_GPU_LENGTH).bit_length() - 1))


def layout_of(x: Float[Array, " n"], lanes: int) -> tuple[Layout, Slots, Slots]:
    """The layout of inputs; the time of every slot, and the time before it, which for the first is its own.

    Slots without data come last, at the last time.
    """
    n = len(x)
    length = -(-n // lanes)
    order = jnp.argsort(x, stable=True)
    rank = jnp.zeros(n, order.dtype).at[order].set(jnp.arange(n), unique_indices=True)
    more = length * lanes - n
    now = jnp.pad(x[order], (0, more), mode="edge")
    before = jnp.concatenate([now[:1], now[:-1]])
    rows = jnp.pad(order, (0, more), constant_values=n)
    rows, now, before = (part.reshape(lanes, length).T for part in (rows, now, before))
    return Layout(rows.astype(x.dtype), rank.astype(x.dtype)), now, before


def to_slots(layout: Layout, rows: Float[Array, " n"]) -> Slots:
    """Numbers of rows, by time; 0 where there is no row."""
    return jnp.append(rows, 0.0)[layout.order.astype(int)]


def to_rows(layout: Layout, slots: Slots) -> Float[Array, " n"]:
    """Numbers of times, by row."""
    length = slots.shape[0]
    time = layout.rank.astype(int)
    return slots[time % length, time // length]


def before(slots: Float[Array, "l ... b"]) -> Float[Array, "l ... b"]:
    """The entry one time earlier; 0 for the first time."""
    return jnp.concatenate([preceding(slots[-1:]), slots[:-1]])


def in_line(slots: Float[Array, "l ... b"]) -> Float[Array, "... n"]:
    """Times one after the other, along the last axis."""
    line = jnp.moveaxis(slots, 0, -1)
    return line.reshape(*line.shape[:-2], -1)
