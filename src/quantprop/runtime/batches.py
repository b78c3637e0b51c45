"""Batches of problems of one form: how many are computed at a time, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from quantprop.runtime.mesh import by_device
from quantprop.runtime.precision import float64
from quantprop.runtime.system import cores
from quantprop.runtime.threads import one_blas_thread

MAX_CPU_SLOTS = 64  # problems that one thread evaluates in one call
MAX_CPU_WORK = 5e8  # operations of a sweep of all of them, about half a second: an interrupt waits as long
MAX_DEVICE_SLOTS = 512
MAX_CPU_ROWS, MAX_DEVICE_ROWS = 2**15, 2**18  # whose local rules are evaluated at a time
MEMORY_IN_BATCH = 16 / 7  # memory of a problem in a batch / memory of a problem on its own
DISTANCES_FRACTION = 0.1  # the distances of a batch's problems take at most this fraction of the memory
BATCH_FRACTION = 0.35  # a batch takes at most this fraction of an accelerator's memory: two run at a time

Rows = Int[np.ndarray, " k"]
T = TypeVar("T")
R = TypeVar("R")


def threads() -> int:
    """The number of threads with a batch each: one per core of a CPU; two for an accelerator, which never waits."""
    return cores() if jax.default_backend() == "cpu" else 2


def per_thread(b: int) -> int:
    """The number of b problems that one thread takes: on a CPU all cores share them, otherwise one thread takes all."""
    return max(1, -(-b // (threads() if jax.default_backend() == "cpu" else 1)))


def slots(cost: Any, b: int) -> int:
    """The number of b problems of this cost that are computed at a time: a power of 2, so that other numbers share a
    program, or as many as there is room for. On a CPU an empty slot costs nothing, on an accelerator little.
    """
    if jax.default_backend() == "cpu":
        room = min(MAX_CPU_SLOTS, int(MAX_CPU_WORK / cost.flops))
    else:
        room = min(MAX_DEVICE_SLOTS, int(BATCH_FRACTION * _memory() / (MEMORY_IN_BATCH * cost.peak)))
    return max(1, min(1 << (b - 1).bit_length(), room))


def side_by_side(function: Callable[[T], R], problems: Sequence[T], cost: Any) -> list[R]:
    """The results of a function for problems of this cost. The first is alone, since programs that it compiles serve
    the others; these have a thread on each core of a CPU, as far as there is memory.
    """
    room = int(BATCH_FRACTION * _memory() / cost.peak)
    count = min(cores(), room) if jax.default_backend() == "cpu" and jax.process_count() == 1 else 1
    if count < 2:
        return list(map(function, problems))
    first = function(problems[0])
    with one_blas_thread(), ThreadPoolExecutor(count) as pool:
        tasks = [pool.submit(copy_context().run, float64(function), problem) for problem in problems[1:]]
        try:
            return [first, *(task.result() for task in tasks)]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after an error or an interrupt no other one begins


def held(cost: Any) -> int:
    """The number of problems of this cost that are in progress, by the memory of each between evaluations."""
    return max(1, int(DISTANCES_FRACTION * _memory() / cost.held))


def _memory() -> int:
    """Bytes of an accelerator's memory; on a CPU, a size that every computer has."""
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 2**33)


def each(one: Callable, used: Any, *columns: Any) -> Any:
    """`one` for every slot: all at once on an accelerator, one after the other on a core. This skips the slots that are
    not `used` and the loops that have ended, and keeps one problem's matrices in the core's cache.
    """
    if jax.default_backend() != "cpu":
        return jax.vmap(one)(*columns)
    blank = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), jax.eval_shape(jax.vmap(one), *columns))
    count = len(jax.tree.leaves(columns)[0])
    return jax.lax.map(lambda i: jax.lax.cond(i < used, lambda: one(*of(columns, i)), lambda: blank), jnp.arange(count))


def rowwise(one: Callable, *columns: Any) -> Any:
    """`one` for every row of the columns, on the device that has the row: all at once, or in chunks if there are very
    many, since a rule that integrates takes thousands of bytes per row.
    """
    return by_device(lambda *own: (None, _rowwise(one, *own)), *columns)[1]


def _rowwise(one: Callable, *columns: Any) -> Any:
    n, rows = len(jax.tree.leaves(columns)[0]), MAX_CPU_ROWS if jax.default_backend() == "cpu" else MAX_DEVICE_ROWS
    k = next(k for k in range(-(-n // rows), n + 1) if n % k == 0)  # padded numbers of rows have many divisors
    if k == 1:
        return jax.vmap(one)(*columns)
    split = jax.tree.map(lambda column: jnp.reshape(column, (k, n // k, *jnp.shape(column)[1:])), columns)
    out = jax.lax.map(lambda chunk: jax.vmap(one)(*chunk), split)
    return jax.tree.map(lambda column: column.reshape(n, *column.shape[2:]), out)


def kinds(cases: Sequence[Any]) -> list[list[int]]:
    """The indices of the cases, grouped by the form and the shapes of their trees."""
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


def chunks(b: int, size: int) -> list[Rows]:
    """0 … b − 1 in pieces."""
    return [np.arange(k, min(k + size, b)) for k in range(0, b, size)]
