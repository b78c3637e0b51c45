"""What all tests share."""

import gc
import os
from pathlib import Path

import jax
import pytest

if os.environ.get("QUANTPROP_CHECKED"):
    import checked

    checked.install()

os.environ["QUANTPROP_CACHE"] = "off"  # commands would keep compiled programs in the home of who runs the tests

gc.set_threshold(100_000, 50, 1000)  # tracing makes many objects that live on: to look them through takes 3 % of time

MAPS = Path("/proc/self/maps")
MANY = 30_000  # memory maps; a process may hold 65,530, and every compiled program takes some


@pytest.fixture(autouse=True)
def few_compiled_programs():
    """Forget compiled programs before there are more than the system allows."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
