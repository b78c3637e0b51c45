"""Problems of one form, stacked: how many are computed at a time, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from quantprop.runtime.mesh import by_device
from quantprop.runtime.system import cores

CPU_SLOTS = 64  # problems that one thread evaluates between two looks at them, at most
CPU_ROWS = 2**15  # rows whose local rules are evaluated at a time
DEVICE_ROWS = 2**18
CPU_WORK = 5e8  # operations of a sweep of them together, about half a second: an interrupt waits as long
GPU_SLOTS = 512
VECTORISED = 16 / 7  # bytes of one problem of a batch, of those of a problem by itself
HELD = 0.1  # of the memory for the distances of one batch's problems
SHARE = 0.35  # of the memory of an accelerator for one batch: two are in progress at a time

Rows = Int[np.ndarray, " k"]


def threads() -> int:
    """On a CPU every core drives a batch of its own; an accelerator is driven by two, so that it need not wait."""
    return 2 if jax.default_backend() != "cpu" else cores()


def per_thread(b: int) -> int:
    """How many of b problems one thread takes: on a CPU all cores share them, for an accelerator one takes all."""
    return max(1, -(-b // (threads() if jax.default_backend() == "cpu" else 1)))


def slots(cost: Any, b: int) -> int:
    """How many of b problems of this cost are computed at a time: a power of 2, so that other numbers of problems share
    a program, or as many as there is room for. On a CPU an empty slot costs nothing, on an accelerator little.
    """
    if jax.default_backend() == "cpu":
        return max(1, min(1 << (b - 1).bit_length(), CPU_SLOTS, int(CPU_WORK / cost.flops)))
    return max(1, min(1 << (b - 1).bit_length(), GPU_SLOTS, int(SHARE * _memory() / (VECTORISED * cost.peak))))


def held(cost: Any) -> int:
    """How many problems of this cost are in progress, each with what it holds between evaluations."""
    return max(1, int(HELD * _memory() / cost.held))


def _memory() -> int:
    """Bytes of an accelerator's memory; on a CPU, a size that any computer has."""
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 2**33)


def each(one: Callable, used: Any, *columns: Any) -> Any:
    """`one` for every slot. An accelerator computes all of them together. A core takes one after the other: this spares
    it the slots that are not `used` and the loops of those that have ended, and keeps one problem's matrices in cache.
    """
    if jax.default_backend() != "cpu":
        return jax.vmap(one)(*columns)
    blank = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), jax.eval_shape(jax.vmap(one), *columns))
    count = len(jax.tree.leaves(columns)[0])
    return jax.lax.map(lambda i: jax.lax.cond(i < used, lambda: one(*of(columns, i)), lambda: blank), jnp.arange(count))


def rowwise(one: Callable, *columns: Any) -> Any:
    """`one` for every row of the columns, on the device that has the row: all together, or of very many rows one chunk
    after the other, since a rule that integrates takes thousands of bytes a row.
    """
    return by_device(lambda *own: (None, _rowwise(one, *own)), *columns)[1]


def _rowwise(one: Callable, *columns: Any) -> Any:
    n, most = len(jax.tree.leaves(columns)[0]), CPU_ROWS if jax.default_backend() == "cpu" else DEVICE_ROWS
    least = -(-n // most)
    k = next(k for k in range(least, n + 1) if n % k == 0)  # padded numbers of rows have many divisors
    if k == 1:
        return jax.vmap(one)(*columns)
    split = jax.tree.map(lambda column: jnp.reshape(column, (k, n // k, *jnp.shape(column)[1:])), columns)
    out = jax.lax.map(lambda chunk: jax.vmap(one)(*chunk), split)
    return jax.tree.map(lambda column: column.reshape(n, *column.shape[2:]), out)


def kinds(cases: Sequence[Any]) -> list[list[int]]:
    """The cases by the form and the shapes of their trees."""
    found: dict[Any, list[int]] = {}
    for i, case in enumerate(cases):
        leaves, form = jax.tree.flatten(case)
        found.setdefault((form, tuple(np.shape(leaf) for leaf in leaves)), []).append(i)
    return list(found.values())


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of one form as one tree of float64 arrays."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, dtype=np.float64) for leaf in leaves]), *trees)


def of(tree: Any, rows: Any) -> Any:
    """Some rows of every array."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def evenly(b: int, most: int) -> list[Rows]:
    """0 … b − 1 in as few pieces of at most so many as there can be, all of about one size."""
    return chunks(b, -(-b // -(-b // most))) if b else []


def chunks(b: int, size: int) -> list[Rows]:
    """0 … b − 1 in pieces."""
    return [np.arange(k, min(k + size, b)) for k in range(0, b, size)]
