"""What the tests of the experiments share."""

import os
from pathlib import Path

import pytest

import quantprop

TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def source():
    """The environment of programs that import this quantprop and these tests."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(quantprop.__file__).parent.parent), str(TESTS)]),
    }
