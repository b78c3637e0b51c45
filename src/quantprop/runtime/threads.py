"""The number of BLAS threads: by default all cores, which is wrong for small matrices and for many at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

import jax
from threadpoolctl import ThreadpoolController

SMALL_WORK = 1e9  # operations of a sweep (a dense one of 1,000 rows), below which one thread is enough

_gate = Lock()
_holders: list[Any] = []  # the first one with the limit, which the last one lifts


def blas_threads_for(cost: Any) -> AbstractContextManager[None]:
    """One thread for problems whose sweeps are short, or made of many small matrices.

    A second one saves nothing there, and if another process takes its core, the first waits for it many times as long
    as it works: with one of two cores busy, EP on 480 rows took 75 ms with one thread and 640 ms with two. XLA's own
    products use all cores; ten classes of 500 rows take 1.1 s an evaluation with one thread and 2.7 s with two.
    """
    work = min(cost.flops, (cost.held / 8) ** 1.5)  # of all of a sweep, or of one product of the matrices held
    return one_blas_thread() if work < SMALL_WORK and jax.default_backend() == "cpu" else nullcontext()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A block in which several threads compute: BLAS's would wait for each other far longer than they work.

    The limit is the process's, so blocks that overlap in time share it: otherwise the first to end would lift it for
    the others, and the last would restore the limit instead of the original number.
    """
    with _gate:
        _holders.append(None if _holders else _libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _gate:
            if len(_holders) == 1:
                _holders[0].restore_original_limits()
                _holders.clear()
            else:
                _holders.pop()


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  # whose BLAS is JAX's too; only a library that is loaded can be limited

    return ThreadpoolController()
