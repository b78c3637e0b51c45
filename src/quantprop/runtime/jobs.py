"""The processes of a `jax.distributed` job, each with rows of its own: what they tell each other outside of programs.

Every function here that takes something is collective: all processes call it, in the same order. In a job of one
process it returns what it was given.

Programs over divided rows send messages. So whatever decides which of them run, and when their loops end (tolerances,
starts, what has failed), must be the same in all processes: from the rows of all, from what such a program returned for
all, or `agreed`; never from a process's own rows, memory, clock or random numbers.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from quantprop.runtime.system import available_memory

LOOKED_AT = 20_000  # rows that stand for all of very many
SILENCE = 30  # seconds after which a process that does not answer is taken for dead
LOST = ("Gloo", "NCCL", "peer", "heartbeat", "coordination", "Connection", "UNAVAILABLE", "DEADLINE_EXCEEDED")
ALIKE = ("quantprop", "jax", "jaxlib", "numpy", "scipy")  # packages whose versions decide the bits of results


class JobError(RuntimeError):
    """What went wrong in another process of the job, or between processes."""


def several() -> bool:
    """Whether this process is one of several."""
    return jax.process_count() > 1


def gathered(array: Any) -> list[np.ndarray]:
    """The arrays of all processes, which may have different shapes and types but not hold objects."""
    if not several():
        return [np.asarray(array)]
    file = BytesIO()
    np.save(file, np.asarray(array), allow_pickle=False)
    own = np.frombuffer(file.getvalue(), dtype=np.uint8)  # bytes, since JAX may be told to make float32 of float64
    sizes = _of_all(np.frombuffer(np.int64(len(own)).tobytes(), dtype=np.uint8)).view(np.int64).ravel()
    every = _of_all(np.pad(own, (0, int(sizes.max()) - len(own))))
    return [np.load(BytesIO(bytes(one)), allow_pickle=False) for one in every]


def _of_all(own: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    with answered():
        return np.ascontiguousarray(multihost_utils.process_allgather(own))


@contextmanager
def answered() -> Iterator[None]:
    """Turn the errors of messages between processes into one that says what happened."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(word in str(error) for word in LOST) or not several():
            raise
        raise JobError(
            "another process of the job ended, or its host does not answer: see what it said last; quantprop."
            f"checkpointed(file) lets a job go on from where it was. JAX said: {str(error).splitlines()[0][:200]}"
        ) from error


def join(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Become a process of a job, before anything is computed: told here, or by the environment as `jax.distributed.
    initialize` reads it (SLURM, Open MPI, JAX_COORDINATOR_ADDRESS). A process that dies is noticed within SILENCE.
    """
    jax.distributed.initialize(
        coordinator, processes, process, heartbeat_timeout_seconds=SILENCE, shutdown_timeout_seconds=SILENCE
    )


def sums(*parts: Any) -> list[np.ndarray]:
    """The sum of each of some arrays over all processes."""
    return [np.sum(gathered(part), axis=0) for part in parts]


def largest(number: int) -> int:
    """The largest of the numbers of all processes."""
    return max(int(each) for each in gathered(number))


def all_true(flag: Any) -> bool:
    """Whether it is true in every process."""
    return all(bool(each) for each in gathered(np.asarray(bool(flag))))


def different(values: np.ndarray) -> np.ndarray:
    """The different values in all processes, sorted."""
    own = np.unique(values)
    return np.unique(np.concatenate(gathered(own.astype(str) if own.dtype == object and several() else own)))


def agreed(numbers: np.ndarray) -> np.ndarray:
    """The numbers of the first process, in all of them: what follows from them is then the same to the last bit."""
    return gathered(numbers)[0]


def counted(n: int) -> int:
    """The rows of all processes."""
    return sum(int(each) for each in gathered(n))


def own_part(n: int) -> slice:
    """Where this process's n rows are among those of all, the rows of the first process coming first."""
    before = sum(int(each) for each in gathered(n)[: jax.process_index()])
    return slice(before, before + n)


def rows_of_all(rows: np.ndarray, numbers: Int[np.ndarray, " k"]) -> np.ndarray:
    """Rows by their numbers among those of all processes, the rows of the first process coming first."""
    if not several():
        return rows[numbers]
    ends = np.cumsum([int(each) for each in gathered(len(rows))])
    owner = np.searchsorted(ends, numbers, side="right")
    first = ends[jax.process_index()] - len(rows)
    pieces = gathered(rows[numbers[owner == jax.process_index()] - first])
    found = np.concatenate(pieces)
    return found[np.argsort(np.argsort(owner, kind="stable"), kind="stable")]


def sampled(rows: np.ndarray) -> np.ndarray:
    """Evenly spaced rows of all processes: every one up to LOOKED_AT, and at most twice as many of more."""
    n = counted(len(rows))
    return rows_of_all(rows, np.arange(0, n, max(1, n // LOOKED_AT)))


@contextmanager
def together() -> Iterator[None]:
    """An error in this block in one process is an error in all of them: no process waits for one that gave up."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    told = [str(each) for each in gathered(np.asarray(_in_words(failure)))]
    if failure is not None:
        raise failure
    for process, words in enumerate(told):
        if words:
            raise JobError(f"process {process} of the job stopped: {words}")


def _in_words(failure: Exception | None) -> str:
    return "" if failure is None else f"{type(failure).__name__}: {failure}"


_met: dict[str, int] = {}


def meet() -> None:
    """Once a job: compare the versions of what computes, and the memory of hosts.

    Results of different versions differ in their last bits, and processes that decide differently would wait for each
    other for ever.
    """
    if several() and not _met:
        check_alike([*(f"{name} {import_module(name).__version__}" for name in ALIKE), platform.machine()])
        known = [int(each) for each in gathered(available_memory() or 0)]
        _met["memory"] = min(known)


def least_memory() -> int | None:
    """Bytes that every process of the job can count on, the same number in all; None where that is not known."""
    return _met.get("memory") or None


def check_alike(own: Sequence[str]) -> None:
    """An error in all processes where what they name differs."""
    every = [str(each) for each in gathered(np.asarray(", ".join(own)))]
    for process, words in enumerate(every):
        if words != every[0]:
            raise JobError(
                f"process {process} of the job has {words}, and process 0 has {every[0]}: install the same versions on "
                "all hosts"
            )
