"""Device memory that a problem takes: checked before the work, and explained if it was too much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax

from quantprop.runtime.jobs import answered, least_memory
from quantprop.runtime.system import available_memory, limits

SMALL = 2**26  # bytes below which the system is not asked, since that takes a millisecond or more
EXHAUSTED_WORDS = ("RESOURCE_EXHAUSTED", "Out of memory")  # in XLA's errors


def check_memory(cost: Any) -> None:
    """Raise before a problem of this cost takes more memory than available. If that is unknown, it is tried."""
    if cost.peak < SMALL and not limits():
        return
    have = _own_memory("bytes_in_use")
    if have is not None and cost.peak > have:
        need = f"{cost.words} takes about {_written(cost.peak)} ({cost.parts})"
        raise MemoryError(f"{need}, and at most {_written(have)} are available: {ways_out()}")


def _written(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 0.1 * 2**30 else f"{size / 2**20:.0f} MiB"


def _own_memory(*taken: str) -> int | None:
    """Bytes of the device that computes, minus some that are taken; on a CPU, those available."""
    if jax.default_backend() == "cpu":
        return available_memory()
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] - sum(stats.get(name, 0) for name in taken) if "bytes_limit" in stats else None


_fixed_memory = cache(_own_memory)


def capacity() -> int | None:
    """The bytes that this process can count on, the same number at every call and in every process of a job; None if
    unknown.
    """
    return least_memory() or _fixed_memory()


def ways_out() -> str:
    """Remedies for too many rows, on the device of this process."""
    if jax.default_backend() == "cpu":
        raised = f", raise the limits of the process ({', '.join(limits())})" if limits() else ""
        return (
            f"use fewer rows, end other work that uses memory{raised}, or use a computer or container with more of it"
        )
    return "use fewer rows, a device with more memory, or the CPU (JAX_PLATFORMS=cpu in the environment)"


@contextmanager
def explained(arguments: Any) -> Iterator[None]:
    """Turn XLA's error for exhausted memory into a MemoryError with remedies, and its error for a process of the job
    that does not answer into a JobError; all other errors pass.
    """
    try:
        with answered():
            yield
    except jax.errors.JaxRuntimeError as error:
        if not any(words in str(error) for words in EXHAUSTED_WORDS):
            raise
        raise MemoryError(advice(arguments, str(error))) from error


def advice(arguments: Any, error: str) -> str:
    """The size of the problem, the device on which it was too large, and the remedies."""
    sizes = [size for leaf in jax.tree.leaves(arguments) for size in getattr(leaf, "shape", ())]
    n, device = max(sizes, default=0), jax.local_devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    there = f", and it has {limit / 2**30:.1f} GiB in all" if limit else ""
    return (
        f"{device.device_kind} ran out of memory: the largest array has {n} rows{there}: {ways_out()}; with "
        f"fit_many, fewer problems in one call. XLA said: {error.splitlines()[0][:200]}"
    )
