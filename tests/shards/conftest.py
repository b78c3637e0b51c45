"""Faults of a disk."""

import resource
from contextlib import contextmanager

import pytest


@pytest.fixture
def small_files():
    """A context in which no file can grow beyond so many bytes, as if the disk were full."""

    @contextmanager
    def limited(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited
