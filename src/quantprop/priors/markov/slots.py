"""Where rows stand in time: sorted, and cut into stretches of equal length that are filtered side by side."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.priors.markov.algebra import preceding

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
    """How many stretches suit the device."""
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
    """What stands one time earlier; 0 for the first time."""
    return jnp.concatenate([preceding(slots[-1:]), slots[:-1]])


def in_line(slots: Float[Array, "l ... b"]) -> Float[Array, "... n"]:
    """Times one after the other, along the last axis."""
    line = jnp.moveaxis(slots, 0, -1)
    return line.reshape(*line.shape[:-2], -1)
