"""The claims of the demonstration's page."""

from dataclasses import replace

import pytest

from quantprop import comparison
from quantprop.report import demo


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(5))
def test_the_stack_predicts_better_than_boosting_and_a_linear_model(seed):
    posed = demo.problem(demo.GLASS)
    division = comparison.folds(posed, demo.GLASS.folds, seed)
    found = comparison.compare(posed, demo.GLASS.methods, replace(division, shown=division.splits[0][0]))
    scores = {one.method: one.scores["ntll"][0] for one in found.all}
    print(seed, scores)
    assert scores["ep"] < min(scores["boosting"], scores["linear"], scores["constant"])
