"""Pausing the cyclic garbage collector where it would traverse what has just been made and find nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector, if it is on, until the end of the block; what was made in it counts as old from then on.

    Importing JAX and tracing programs make some hundred thousand objects that stay. To look through all of them again
    and again took a fifth of a second of the 3.2 s of a first fit (`benchmarks/run.py --only cold`).
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            if gc.get_freeze_count() == 0:  # nothing that the user has set aside
                gc.freeze()
                gc.unfreeze()  # all objects are in the oldest generation now, unseen
            gc.enable()
