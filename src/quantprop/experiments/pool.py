"""Worker processes on this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from loky import ProcessPoolExecutor

from quantprop.experiments.sweep import Results, Unit, done

T = TypeVar("T")
R = TypeVar("R")

# One thread each: the number of threads changes the order of sums, and with it the last digits of results.
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # else the first process takes the whole of an accelerator's memory
    "LOKY_MAX_MEMORY_LEAK_SIZE": "16e9",  # bytes: compiled programs stay, which is no leak to end a worker for
}


@dataclass(frozen=True)
class Local:
    """So many worker processes of one thread each. One job is one worker too, so results do not depend on `jobs`."""

    jobs: int = 1

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1; got {self.jobs}")

    def carry_out(self, units: list[Unit]) -> Results:
        """Each unit with its rows, as they come. Whatever ends the loop also ends the workers."""
        with closing(in_processes(done, units, min(self.jobs, len(units)), ENVIRONMENT)) as results:
            for _, one in results:
                yield one


def in_processes(
    work: Callable[[T], R],
    tasks: Sequence[T],
    most: int,
    environment: Mapping[str, str],
    following: Callable[[R], Sequence[T]] = lambda result: (),
) -> Generator[tuple[T, R], None, None]:
    """Each task with its result, as they complete, by up to `most` processes, which end with the loop; and each task
    that can be done once a result is there.
    """
    if not tasks:
        return
    executor = ProcessPoolExecutor(most, initializer=_obey_parent, env=dict(environment))
    waiting: dict[Any, T] = {}
    over: SimpleQueue[Any] = SimpleQueue()

    def submit(more: Sequence[T]) -> None:
        with _interrupts_held_back():
            new = {executor.submit(work, task): task for task in more}
        waiting.update(new)
        for future in new:
            future.add_done_callback(over.put)

    try:
        submit(tasks)
        while waiting:
            future = over.get()
            task, result = waiting.pop(future), future.result()
            submit(following(result))
            yield task, result
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
