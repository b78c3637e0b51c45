"""A search that was interrupted goes on to the end that it would have had."""

import numpy as np
import pytest

import quantprop
from quantprop import Model, fit, kernels, likelihoods
from quantprop.learning.fitting import watched
from quantprop.learning.landscape import Landscape
from shards.job import problem

MODEL = Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit())


class Stopped(Exception):
    """An interruption."""


def stopping_after(evaluations):
    def report(step, count):
        if count == evaluations:
            raise Stopped

    return report


@pytest.mark.parametrize("evaluations", [1, 4, 9])  # the first, few, and more than there are warm starts
def test_an_interrupted_search_goes_on(tmp_path, monkeypatch, evaluations):
    rows, file = problem(30), tmp_path / "search"
    whole = fit(MODEL, rows["x"], rows["label"], "ep")
    with quantprop.checkpointed(file, minutes=0), watched(stopping_after(evaluations)), pytest.raises(Stopped):
        fit(MODEL, rows["x"], rows["label"], "ep")
    evaluated, at = [], Landscape.at
    monkeypatch.setattr(Landscape, "at", lambda self, *args: evaluated.append(args) or at(self, *args))
    with quantprop.checkpointed(file, minutes=0):
        resumed = fit(MODEL, rows["x"], rows["label"], "ep")
    assert len(evaluated) == len(resumed.trace) - evaluations
    assert [step.value for step in resumed.trace] == [step.value for step in whole.trace]  # to the last bit
    assert np.array_equal(resumed.theta, whole.theta)
    assert resumed.solution.log_evidence == pytest.approx(whole.solution.log_evidence, rel=1e-9)


def test_the_file_of_another_search_is_refused(tmp_path):
    rows, file = problem(30), tmp_path / "search"
    with quantprop.checkpointed(file, minutes=0):
        fit(MODEL, rows["x"], rows["label"], "ep", max_evaluations=2)
    with quantprop.checkpointed(file), pytest.raises(ValueError, match=r"another search .its rows: 30 there, 29 here"):
        fit(MODEL, rows["x"][1:], rows["label"][1:], "ep", max_evaluations=2)
    file.write_bytes(file.read_bytes()[:-8])
    with quantprop.checkpointed(file), pytest.raises(ValueError, match="is not a quantprop model"):
        fit(MODEL, rows["x"], rows["label"], "ep", max_evaluations=2)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, small_files):
    rows, file = problem(30), tmp_path / "search"
    with quantprop.checkpointed(file, minutes=0), watched(stopping_after(3)), pytest.raises(Stopped):
        fit(MODEL, rows["x"], rows["label"], "ep")
    before = file.read_bytes()
    with quantprop.checkpointed(file, minutes=0), small_files(1000):  # noqa: SIM117
        with pytest.raises(OSError, match=r"File too large: the checkpoint cannot be written.*search"):
            fit(MODEL, rows["x"], rows["label"], "ep")
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["search"]
