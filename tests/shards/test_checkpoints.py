"""A search that was interrupted goes on to the end that it would have had."""

import numpy as np
import pytest

import quantprop
from quantprop import EP, Inducing, Model, Parameter, fit, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.checkpoints import Checkpoint, opened, problem_of
from quantprop.learning.fingerprints import of_rows
from quantprop.learning.fitting import watched
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.storage import files
from shards.job import NEW, problem

MODEL = Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit())


class Stopped(Exception):
    """An interruption."""


def stopping_after(evaluations):
    def report(step, count):
        if count == evaluations:
            raise Stopped

    return report


@pytest.mark.parametrize("evaluations", [1, 4, 7])  # the first, few, and more than there are warm starts
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


def test_a_place_that_cannot_be_written_to_is_named_before_anything_is_learned(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"),
        quantprop.checkpointed(tmp_path / "nowhere" / "x"),
    ):
        pass
    for minutes in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="minutes must be"), quantprop.checkpointed(tmp_path / "x", minutes):
            pass


def test_the_file_of_another_search_is_refused(tmp_path):
    rows, file = problem(30), tmp_path / "search"
    with quantprop.checkpointed(file, minutes=0):
        fit(MODEL, rows["x"], rows["label"], "ep", max_evaluations=2)
    with (
        quantprop.checkpointed(file),
        pytest.raises(ValueError, match=r"different search .its rows: 30 there, 29 here"),
    ):
        fit(MODEL, rows["x"][1:], rows["label"][1:], "ep", max_evaluations=2)
    file.write_bytes(file.read_bytes()[:-8])
    with quantprop.checkpointed(file), pytest.raises(ValueError, match="is not a quantprop model"):
        fit(MODEL, rows["x"], rows["label"], "ep", max_evaluations=2)


def test_other_data_and_another_model_are_another_search(tmp_path):
    """The same names and as many rows: told the recorded values, the search would end where the other one did."""
    rows, file = problem(30), tmp_path / "search"
    x, y, counts = rows["x"], rows["label"], rows["count"]
    poisson = Model(kernels.SquaredExponential(1.0, Parameter(1.0, fixed=True)), likelihoods.Poisson())
    with quantprop.checkpointed(file, minutes=0):
        fit(MODEL, x, y, "laplace", max_evaluations=2)
        fit(poisson, x, counts, "laplace", max_evaluations=2)
    other = y.copy()
    other[7] = -other[7]
    moved = x + 1e-9 * (np.arange(30) == 4)[:, None]
    kernel = Model(kernels.Matern52(1.0, 1.0), likelihoods.Probit())
    fixed = Model(kernels.SquaredExponential(1.0, Parameter(0.3, fixed=True)), likelihoods.Poisson())
    for what, given in (
        ("data", (MODEL, x, other)), ("data", (MODEL, moved, y)), ("data", (MODEL, x[::-1], y[::-1])),
        ("kernel", (kernel, x, y)),
    ):  # fmt: skip
        with quantprop.checkpointed(file), pytest.raises(ValueError, match=f"a different search .its {what}: "):
            fit(*given, "laplace", max_evaluations=2)
    second = f"{file}.1"
    for what, given, exposure in (("kernel", fixed, None), ("data", poisson, np.full(30, 10.0))):
        with quantprop.checkpointed(second), pytest.raises(ValueError, match=f"a different search .its {what}: "):
            fit(given, x, counts, "laplace", exposure=exposure, max_evaluations=2)


def test_what_tells_a_model_from_others_does_not_depend_on_the_rows_of_a_process():
    """However many rows there are, also as many as points; a prior mean that is given by row is told with the rows."""

    def told(n, slope):
        rows, process = problem(n), Inducing(NEW)
        model = Model(kernels.SquaredExponential(), likelihoods.Probit(), lambda x: slope * x[:, 0], process)
        task = prepare(model, rows["x"], rows["label"], EP(), None, None, None)
        return problem_of(Landscape(model, task, EP(), Evidence()))

    as_many_as_points, padded, many, other = told(len(NEW), 1.0), told(40, 1.0), told(64, 1.0), told(64, 2.0)
    assert as_many_as_points["numbers"] == padded["numbers"] == many["numbers"] == other["numbers"]
    assert many["data"] == told(64, 1.0)["data"]
    assert many["data"] != other["data"]


def test_fingerprints_of_parts_are_those_of_the_whole():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(50, 3)), draw.normal(size=50)
    whole = of_rows(0, x, y)
    with np.errstate(over="ignore"):
        assert of_rows(0, x[:20], y[:20]) + of_rows(20, x[20:], y[20:]) == whole
    swapped = np.column_stack([x[:, 1], x[:, 0], x[:, 2]])
    order = draw.permutation(50)
    others = [of_rows(0, x, np.nextafter(y, 9)), of_rows(0, swapped, y), of_rows(0, x[order], y[order])]
    assert len({whole, *others}) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda content, tensors: content.update(reasons="c" * len(content["reasons"])),
        lambda content, tensors: content.update(place=2.0),
        lambda content, tensors: content.update(unresolved=-1),
        lambda content, tensors: tensors.update(value=tensors["value"].astype(np.int64)),
        lambda content, tensors: tensors.update(theta=np.full_like(tensors["theta"], 1e200)),  # outside the bounds
        lambda content, tensors: tensors.update(sweeps=np.full(len(tensors["sweeps"]), np.inf)),
        lambda content, tensors: tensors.update(
            {name: tensors[name][:0] for name in ("known.theta", "known.log_tau", "known.pull")}
        ),
    ],
)
def test_files_with_other_parts_are_refused(tmp_path, change):
    rows, file = problem(30), tmp_path / "search"
    with quantprop.checkpointed(file, minutes=0), watched(stopping_after(3)), pytest.raises(Stopped):
        fit(MODEL, rows["x"], rows["label"], "laplace")
    document = files.read(str(file))
    content, tensors = dict(document.content), dict(document.tensors)
    change(content, tensors)
    files.write(files.ModelFile(document.kind, content, tensors), str(file))
    with quantprop.checkpointed(file), pytest.raises(ValueError, match=r"search.*it has wrong entries"):
        fit(MODEL, rows["x"], rows["label"], "laplace")


def test_where_few_nodes_have_given_up_they_are_not_tried_again(tmp_path):
    """Which rule computes the next point is part of the checkpoint."""
    rows, file = problem(30), str(tmp_path / "search")
    task = prepare(MODEL, rows["x"], rows["label"], EP(), None, None, None)
    first, second = (Landscape(MODEL, task, EP(), Evidence()) for _ in range(2))
    first.unresolved = 2
    Checkpoint(file).visit(first, packed(first.parts), 0.0)
    opened(Checkpoint(file), second)
    assert second.unresolved == 2


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
