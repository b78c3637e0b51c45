"""Shapes and types as functions declare them, in a process whose imports are checked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


@pytest.mark.campaign
def test_every_backend_keeps_the_shapes_that_are_declared():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])}
    done = subprocess.run([sys.executable, "-m", "checked"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *learned, last = done.stdout.splitlines()
    assert [line.endswith("(3,)") for line in learned] == [True] * 3
    assert last == "refused"
