"""When a device runs out of memory: what was too large, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

MATRICES = 16  # n × n float64 arrays alive at the peak of learning


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
        f"{device.device_kind} ran out of memory: the largest array has {n} rows; learning with a dense prior over {n} "
        f"rows takes about {MATRICES * 8 * n * n / 2**30:.1f} GiB ({MATRICES} matrices of {n} × {n}){there}. Use fewer "
        "rows, a device with more memory, the CPU (JAX_PLATFORMS=cpu in the environment) or, with fit_many, fewer "
        f"problems in one call. XLA said: {said.splitlines()[0][:200]}"
    )
