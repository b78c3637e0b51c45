"""The same problem on one device, on several, and in several processes; processes that die."""

import re
import signal
import time

import numpy as np
import pytest

from shards.job import counts, estimators, labels, problem
from shards.jobs import results, started
from shards.test_jobs import compare

pytestmark = pytest.mark.campaign
ROWS = 50_000
SILENCE = 60  # seconds in which the death of a process must be noticed


@pytest.fixture(scope="module")
def one():
    rows = problem(ROWS)
    return {"labels": labels(rows), "counts": counts(rows)}


@pytest.mark.parametrize("case", ["labels", "counts"])
@pytest.mark.parametrize(("processes", "devices"), [(1, 2), (2, 1), (2, 2), (4, 1)])
def test_fits_of_many_rows_are_those_of_one_process(one, tmp_path, case, processes, devices):
    compare(results(tmp_path, case, ROWS, processes, devices), one[case])


def test_estimators_of_two_processes_are_those_of_one(tmp_path):
    compare(results(tmp_path, "estimators", 300, 2), estimators(problem(300)))


@pytest.mark.parametrize("moment", [0.2, 0.35, 0.5, 0.65, 0.8])
def test_the_death_of_a_process_is_noticed_and_the_search_goes_on(tmp_path, moment):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    began = time.monotonic()
    expected = results(whole, "kept", 3000, 2)[0]
    undisturbed = time.monotonic() - began
    jobs = started(cut, "kept", 3000, 2)
    time.sleep(moment * undisturbed)
    victim = int(10 * moment) % 2
    jobs[victim].send_signal(signal.SIGKILL)
    began = time.monotonic()
    said = jobs[1 - victim].communicate(timeout=600)[0]
    assert time.monotonic() - began <= SILENCE
    assert jobs[1 - victim].returncode != 0
    assert re.search("another process of the job ended|distributed service detected", said), said
    jobs[victim].communicate()
    found = results(cut, "kept", 3000, 1 if moment == 0.5 else 2)[0]
    assert np.max(np.abs(found["theta"] - expected["theta"])) <= 1e-6 * np.max(np.abs(expected["theta"]))
