"""What a problem takes of a device's memory: asked before the work, and explained where it was too much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

WAYS_OUT = "use fewer rows, a device with more memory, or the CPU (JAX_PLATFORMS=cpu in the environment)"


def check_memory(cost: Any) -> None:
    """Raise before a problem of this cost takes more memory than there is."""
    have = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if jax.default_backend() != "cpu":
        stats = jax.devices()[0].memory_stats() or {}
        have = stats.get("bytes_limit", have) - stats.get("bytes_in_use", 0)
    if cost.peak > have:
        need = f"{cost.words} takes about {cost.peak / 2**30:.1f} GiB ({cost.parts})"
        raise MemoryError(f"{need}, and {have / 2**30:.1f} GiB are free: {WAYS_OUT}")


@contextmanager
def explained(arguments: Any) -> Iterator[None]:
    """Turn XLA's word for a full memory into a MemoryError that says what to do; all other errors pass."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(advice(arguments, str(error))) from error


def advice(arguments: Any, said: str) -> str:
    """What was too large for which device, and the ways out."""
    sizes = [size for leaf in jax.tree.leaves(arguments) for size in getattr(leaf, "shape", ())]
    n, device = max(sizes, default=0), jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    there = f", and it has {limit / 2**30:.1f} GiB in all" if limit else ""
    return (
        f"{device.device_kind} ran out of memory: the largest array has {n} rows{there}: {WAYS_OUT}; with "
        f"fit_many, fewer problems in one call. XLA said: {said.splitlines()[0][:200]}"
    )
