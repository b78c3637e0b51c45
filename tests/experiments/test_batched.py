"""All folds at once against one by one."""

import numpy as np
import pytest
from experiments.pretend import made_up

from quantprop.experiments.batched import Batched, apart, by_size, together
from quantprop.experiments.rows import lines
from quantprop.experiments.sweep import Done, Plan, Unit, done, missing


@pytest.mark.campaign
def test_rows_of_a_batch_are_those_of_single_fits():
    units = missing(Plan(datasets=("wine2",), methods=("ep", "qp", "vb"), rounds=1), [])
    for unit, rows, _ in Batched().carry_out(units):
        for row, single in zip(rows, done(unit).rows, strict=True):
            assert row.key == single.key
            assert row.te == single.te
            # QP's search with the paper's gradient ends where that gradient misleads it
            assert row.ntll == pytest.approx(single.ntll, rel=1e-2 if row.method == "qp" else 1e-4)
            assert row.evidence == pytest.approx(single.evidence, rel=1e-5)
            assert row.test["y"] == single.test["y"]
            if row.method == "qp":
                assert (np.array(row.test["variance_at_ep"]) < np.array(rows[0].test["variance"])).all()


def test_the_authors_program_is_not_batched():
    units = [Unit(unit.experiment, unit.methods) for unit in missing(Plan(variant="code", rounds=1), [])[:1]]
    with pytest.raises(ValueError, match="leave --batched out"):
        next(Batched().carry_out(units))


@pytest.mark.parametrize(
    ("variant", "expected"),
    [("paper", [("ep", "qp"), ("vb",), ("laplace",)]), ("clean", [("ep", "qp", "vb", "laplace")])],
)
def test_methods_that_need_nothing_of_each_other_are_apart(variant, expected):
    """And a unit is done when all its parts are, whichever comes first, with each of its rows once."""
    plan = Plan(datasets=("wine2",), methods=("ep", "qp", "vb", "laplace"), rounds=1, variant=variant)
    units = missing(plan, [])
    parts = apart(units)
    assert [part[0].methods for part in parts] == expected
    assert all(len(part) == len(units) for part in parts)
    tasks = [(None, [_done(unit) for unit in part]) for part in parts]
    told = list(together(units, reversed(tasks)))
    assert [unit for unit, _, _ in told] == units
    for unit, new, text in told:
        assert sorted(row.method for row in new) == sorted(unit.methods)
        assert {row.fold for row in new} == {unit.experiment.fold}
        assert text == lines(new)


def test_methods_whose_start_is_there_already_are_apart():
    experiment = missing(Plan(datasets=("wine2",), rounds=1, variant="clean"), [])[0].experiment
    unit = Unit(experiment, ("qp", "vb"), made_up(experiment, "ep"))
    assert [part[0].methods for part in apart([unit])] == [("qp",), ("vb",)]


def _done(unit):
    new = [made_up(unit.experiment, method) for method in unit.methods]
    return Done(unit, new, lines(new))


def test_data_sets_of_one_size_and_likelihood_share_a_process():
    groups = [missing(Plan(datasets=(name,), rounds=1), []) for name in ("wine1", "mining", "wine3", "sonar", "crabs")]
    together = [list(dict.fromkeys(unit.experiment.dataset for unit in part)) for part in by_size(groups)]
    assert together == [["sonar", "crabs"], ["wine1", "wine3"], ["mining"]]
