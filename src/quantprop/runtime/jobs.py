"""The processes of a `jax.distributed` job, each with its own rows: what they exchange outside of programs.

Every function here that has arguments is collective: all processes call it, in the same order. In a job of one process
it returns its argument.

Programs over divided rows exchange messages. So everything that decides which of them run, and when their loops end
(tolerances, starts, failures), must be the same in all processes: computed from the rows of all, returned by such a
program, or `agreed`; never from a process's own rows, memory, clock or random numbers.
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

LOOKED_AT = 20_000  # rows that represent all of very many
MAX_SILENCE = 30  # seconds after which a process that does not answer counts as dead
MARKS_OF_LOSS = ("Gloo", "NCCL", "peer", "heartbeat", "coordination", "Connection", "UNAVAILABLE", "DEADLINE_EXCEEDED")
VERSIONED = ("quantprop", "jax", "jaxlib", "numpy", "scipy")  # packages whose versions decide the bits of results

_memory: list[int] = []  # the least of all hosts, known once versions have been compared


class JobError(RuntimeError):
    """A failure in another process of the job, or between processes."""


def join(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Become a process of a job, before anything is computed, by these arguments or by the environment as
    `jax.distributed.initialize` reads it (SLURM, Open MPI, JAX_COORDINATOR_ADDRESS).
    """
    jax.distributed.initialize(
        coordinator, processes, process, heartbeat_timeout_seconds=MAX_SILENCE, shutdown_timeout_seconds=MAX_SILENCE
    )


def several() -> bool:
    """Return whether the job has more than one process."""
    return jax.process_count() > 1


def gathered(array: Any) -> list[np.ndarray]:
    """The arrays of all processes, which may differ in shape and type but not hold objects."""
    if not several():
        return [np.asarray(array)]
    file = BytesIO()
    np.save(file, np.asarray(array), allow_pickle=False)
    own = np.frombuffer(file.getvalue(), dtype=np.uint8)  # bytes, since JAX may turn float64 into float32
    sizes = _of_all(np.frombuffer(np.int64(len(own)).tobytes(), dtype=np.uint8)).view(np.int64).ravel()
    every = _of_all(np.pad(own, (0, int(sizes.max()) - len(own))))
    return [np.load(BytesIO(bytes(each)), allow_pickle=False) for each in every]


def _of_all(own: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    with answered():
        return np.ascontiguousarray(multihost_utils.process_allgather(own))


@contextmanager
def answered() -> Iterator[None]:
    """Turn the errors of messages between processes into a JobError that says what happened."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(word in str(error) for word in MARKS_OF_LOSS) or not several():
            raise
        raise JobError(
            "another process of the job ended, or its host does not answer: read its last message; "
            "quantprop.checkpointed(file) lets a job resume from its last checkpoint. JAX reported: "
            f"{str(error).splitlines()[0][:200]}"
        ) from error


def _numbers(number: Any) -> list[int]:
    return [int(each) for each in gathered(number)]


def sums(*parts: Any) -> list[np.ndarray]:
    """The sum of each of these arrays over all processes."""
    return [np.sum(gathered(part), axis=0) for part in parts]


def job_total(n: int) -> int:
    """The sum of the numbers of all processes."""
    return sum(_numbers(n))


def largest(number: int) -> int:
    """The largest of the numbers of all processes."""
    return max(_numbers(number))


def all_true(flag: Any) -> bool:
    """Return whether it is true in every process."""
    return all(_numbers(bool(flag)))


def agreed(numbers: np.ndarray) -> np.ndarray:
    """The numbers of the first process, in all of them, so that results are bitwise identical."""
    return gathered(numbers)[0]


def different(values: np.ndarray) -> np.ndarray:
    """The unique values of all processes, sorted."""
    own = np.unique(values)
    return np.unique(np.concatenate(gathered(own.astype(str) if own.dtype == object and several() else own)))


def own_part(n: int) -> slice:
    """The slice of this process's n rows among those of all, in the order of the processes."""
    before = sum(_numbers(n)[: jax.process_index()])
    return slice(before, before + n)


def rows_of_all(rows: np.ndarray, numbers: Int[np.ndarray, " k"]) -> np.ndarray:
    """Rows by their numbers among those of all processes, in the order of the processes."""
    if not several():
        return rows[numbers]
    own = own_part(len(rows))
    here = (numbers >= own.start) & (numbers < own.stop)
    found, places = (np.concatenate(gathered(part)) for part in (rows[numbers[here] - own.start], np.flatnonzero(here)))
    return found[np.argsort(places)]


def sampled(rows: np.ndarray) -> np.ndarray:
    """Evenly spaced rows of all processes: all up to LOOKED_AT, and at most twice that of more."""
    n = job_total(len(rows))
    return rows_of_all(rows, np.arange(0, n, max(1, n // LOOKED_AT)))


@contextmanager
def together() -> Iterator[None]:
    """Raise an error of this block in all processes if one of them raises it: none waits for one that gave up."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    words = "" if failure is None else f"{type(failure).__name__}: {failure}"
    every = [str(each) for each in gathered(np.asarray(words))]
    if failure is not None:
        raise failure
    for process, words in enumerate(every):
        if words:
            raise JobError(f"process {process} of the job stopped: {words}")


def meet() -> None:
    """Compare the versions of the packages that compute, and the memory of hosts, once per job.

    Results of different versions differ in their last bits, and processes that decide differently would wait for each
    other for ever.
    """
    if several() and not _memory:
        check_alike([*(f"{name} {import_module(name).__version__}" for name in VERSIONED), platform.machine()])
        _memory.append(min(_numbers(available_memory() or 0)))


def least_memory() -> int | None:
    """Bytes that every process of the job can count on, the same number in all; None if unknown."""
    return _memory[0] or None if _memory else None


def check_alike(own: Sequence[str]) -> None:
    """Raise in all processes if their names differ."""
    every = [str(each) for each in gathered(np.asarray(", ".join(own)))]
    for process, words in enumerate(every):
        if words != every[0]:
            raise JobError(
                f"process {process} of the job has {words}, and process 0 has {every[0]}: install the same versions on "
                "all hosts"
            )
