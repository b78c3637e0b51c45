"""Pausing the cyclic garbage collector while many objects are made that stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector, if it is on, until the end of the block; objects made in it then count as old.

    Importing JAX and tracing programs make some hundred thousand objects. Traversing them again and again took 0.2 of
    the 3.2 s of a first fit (`benchmarks/run.py --only cold`).
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            if gc.get_freeze_count() == 0:  # the user has frozen nothing
                gc.freeze()
                gc.unfreeze()  # all objects are in the oldest generation now
            gc.enable()
