"""All folds at once against one by one."""

import numpy as np
import pytest

from quantprop.experiments.batched import Batched, apart, together
from quantprop.experiments.sweep import Plan, Unit, do, missing


@pytest.mark.campaign
def test_rows_of_a_batch_are_those_of_single_fits():
    units = missing(Plan(datasets=("wine2",), methods=("ep", "qp", "vb"), rounds=1), [])
    for unit, rows in Batched().carry_out(units):
        for row, single in zip(rows, do(unit), strict=True):
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
    done = [(None, [(some, [f"{some.experiment.fold} {one}" for one in some.methods]) for some in p]) for p in parts]
    told = list(together(units, reversed(done)))
    assert [unit for unit, _ in told] == units
    for unit, rows in told:
        assert sorted(rows) == sorted(f"{unit.experiment.fold} {method}" for method in unit.methods)
