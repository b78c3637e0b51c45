"""The same problem on one device, on several, and in several processes; processes that die."""

import re
import signal
import time

import numpy as np
import pytest

from shards.job import estimators, problem
from shards.jobs import results, started
from shards.meshes import MESHES, compared, run
from shards.test_jobs import REST, THETA, compare

pytestmark = pytest.mark.campaign
ROWS = 50_000
GRADIENT = 1e-8  # sums in another order, enlarged by the covariance of the points, whose jitter is 1e-9
SILENCE = 60  # seconds in which the death of a process must be noticed


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("meshes")


@pytest.mark.parametrize("case", ["labels", "counts"])
@pytest.mark.parametrize("mesh", MESHES[1:])
def test_fits_of_many_rows_are_those_of_one_device(place, case, mesh):
    for each in (MESHES[0], mesh):
        run(place, case, ROWS, each)
    differences = compared(place, case, mesh)
    for name in ("start.value", "start.evidence", "start.mean", "start.variance", "start.sweeps", "first", "points"):
        assert differences.pop(name) <= REST, name
    for name in ("start.gradient", "slope"):
        assert differences.pop(name) <= GRADIENT, name
    differences.pop("sweeps")  # of the last evaluation, which starts from other sites
    for name, difference in differences.items():
        assert difference <= (REST if name.startswith("rows.start.") else THETA), name  # what follows from θ


def test_estimators_of_two_processes_are_those_of_one(tmp_path):
    compare(results(tmp_path, "estimators", 300, 2), estimators(problem(300)))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What two processes learn, and in how many seconds."""
    began = time.monotonic()
    return results(tmp_path_factory.mktemp("whole"), "kept", 3000, 2)[0], time.monotonic() - began


@pytest.mark.parametrize("number", range(5))
def test_the_death_of_a_process_is_noticed_and_the_search_goes_on(tmp_path, undisturbed, number):
    expected, seconds = undisturbed
    draw = np.random.default_rng(number)
    jobs = started(tmp_path, "kept", 3000, 2)
    time.sleep(draw.uniform(0.3, 0.95) * seconds)
    victim = int(draw.integers(2))
    jobs[victim].send_signal(signal.SIGKILL)
    began = time.monotonic()
    said = jobs[1 - victim].communicate(timeout=600)[0]
    assert time.monotonic() - began <= SILENCE
    assert jobs[1 - victim].returncode != 0
    assert re.search("another process of the job ended|distributed service detected", said), said
    jobs[victim].communicate()
    found = results(tmp_path, "kept", 3000, 1 if number == 0 else 2)[0]
    assert np.max(np.abs(found["theta"] - expected["theta"])) <= 1e-6 * np.max(np.abs(expected["theta"]))
    assert not number or np.array_equal(found["theta"], expected["theta"])  # in as many processes, to the last bit
