"""What the tests of the experiments share."""

import os
from pathlib import Path

import pytest

import quantprop

TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """The environment of programs that import this quantprop and these tests, and share what JAX compiles."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(quantprop.__file__).parent.parent), str(TESTS)]),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
