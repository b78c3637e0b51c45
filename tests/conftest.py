"""What all tests share."""

from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")
MANY = 30_000  # memory maps; a process may hold 65,530, and every compiled program takes some


@pytest.fixture(autouse=True)
def few_compiled_programs():
    """Forget compiled programs before there are more than the system allows."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
