"""Execution of units: by worker processes on this machine, or by a Dask cluster that is already running."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from loky import ProcessPoolExecutor

from quantprop.experiments.sweep import Done, Results, Unit, done

T = TypeVar("T")
R = TypeVar("R")

# One thread each: the number of threads changes the order of sums, and with it the last digits of results.
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # otherwise the first process takes all memory of an accelerator
    "LOKY_MAX_MEMORY_LEAK_SIZE": "16e9",  # bytes: compiled programs stay, which is no leak to end a worker for
}
RETRIES = 3  # on a cluster, if a unit raises; a unit whose worker dies is rescheduled anyway
TIMEOUT = "30s"  # for the scheduler to answer


@dataclass(frozen=True)
class Local:
    """Worker processes of one thread each. One job is one worker too, so results do not depend on `jobs`."""

    jobs: int = 1

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1; got {self.jobs}")

    def carry_out(self, units: list[Unit]) -> Results:
        """Each unit with its rows, as they come. Whatever ends the loop also ends the workers."""
        with closing(in_processes(done, units, min(self.jobs, len(units)), ENVIRONMENT)) as results:
            for _, one in results:
                yield one


@dataclass(frozen=True)
class Dask:
    """The workers of a cluster, by the address of its scheduler, such as ``tcp://host:8786``.

    They need quantprop in the same version. Dask gives NumPy one thread in each of its processes, as `Local` does;
    with other settings, or on another kind of machine, the last digits of results may differ.
    """

    address: str

    def carry_out(self, units: list[Unit]) -> Results:
        """Each unit with its rows, as they come. Whatever ends the loop also cancels the remaining units."""
        try:
            from distributed import Client
            from distributed import as_completed as completed
        except ImportError as error:
            raise RuntimeError(f"{error}: a cluster needs Dask; pip install 'quantprop[cluster]'") from None
        with Client(self.address, timeout=TIMEOUT) as client:
            waiting = {client.submit(done_remotely, unit, pure=False, retries=RETRIES) for unit in units}
            try:
                for future in completed(waiting):
                    waiting.discard(future)
                    yield future.result()
            finally:
                client.cancel(list(waiting))


def done_remotely(unit: Unit) -> Done:
    """A unit carried out. JAX reads its settings when it first computes, which in a fresh worker is here."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return done(unit)


def in_processes(
    work: Callable[[T], R],
    tasks: Sequence[T],
    most: int,
    environment: Mapping[str, str],
) -> Generator[tuple[T, R], None, None]:
    """Each task with its result, as they complete, by up to `most` processes, which end with the loop."""
    if not tasks:
        return
    executor = ProcessPoolExecutor(most, initializer=_obey_parent, env=dict(environment))
    try:
        with _interrupts_held_back():
            waiting: dict[Any, T] = {executor.submit(work, task): task for task in tasks}
        for future in as_completed(waiting):
            yield waiting.pop(future), future.result()
    finally:
        executor.shutdown(kill_workers=True)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes started meanwhile never see interrupts; this one gets those that came, afterwards.

    Processes inherit the mask. It holds this thread alone: an interrupt that another thread receives would still be
    raised in the main thread, in the middle of starting a worker, were it not for the handler.
    """
    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()  # the only one that may set a handler
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number)) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if came:
            signal.raise_signal(signal.SIGINT)


def _obey_parent() -> None:
    """A worker ends when it has no parent any more."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
