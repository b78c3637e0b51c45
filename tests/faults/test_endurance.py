"""One process that makes fit after fit, no two of one shape, kernel, likelihood and method."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import quick

import quantprop

TESTS = Path(__file__).resolve().parent.parent
SOURCE = Path(quantprop.__file__).resolve().parent.parent


def endured(*arguments):
    """Memory maps and resident bytes after every fit of `faults.endurance`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(TESTS)]), "OPENBLAS_NUM_THREADS": "1"}
    environment["XLA_FLAGS"] = quick.FLAGS
    command = [sys.executable, "-W", "ignore", "-m", "faults.endurance", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    number, maps, resident = np.array([line.split() for line in done.stdout.splitlines()], dtype=int).T
    assert len(number) == arguments[0]
    return maps, resident


@pytest.mark.campaign
def test_memory_maps_stay_where_they_are():
    """A dozen fits need 50 programs, and 16 may stay; all kept, the last fits had 660 maps more than the first four."""
    maps, _ = endured(12, 16)
    assert max(maps[4:]) <= max(maps[:4]) + 400


@pytest.mark.campaign
def test_a_thousand_fits_end_with_the_memory_of_two_hundred():
    maps, resident = endured(1000)
    assert max(maps[200:]) <= 1.1 * max(maps[:200]) < 65_530 / 2
    assert max(resident[200:]) <= 1.1 * max(resident[:200])
