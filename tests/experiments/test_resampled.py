"""The corrected resampled t-test: against scipy where divisions are independent, and its level where they are not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from quantprop.experiments.summary import Difference, difference


def test_without_overlap_it_is_the_paired_t_test():
    a, b = np.random.default_rng(0).standard_normal((2, 30))
    found, reference = difference(a, b, 0.0), stats.ttest_rel(a, b)
    assert found.t == pytest.approx(reference.statistic, rel=1e-12)
    assert found.p_value == pytest.approx(reference.pvalue, rel=1e-12)
    assert found.divisions == 30


@pytest.mark.parametrize(("n", "ratio"), [(10, 1 / 9), (1000, 1 / 9), (200, 1.0)])
def test_the_correction_is_nadeau_and_bengios(n, ratio):
    a, b = np.random.default_rng(1).standard_normal((2, n))
    found, reference = difference(a, b, ratio), stats.ttest_rel(a, b)
    assert found.t == pytest.approx(reference.statistic / np.sqrt(1.0 + n * ratio), rel=1e-12)
    assert found.p_value == pytest.approx(2.0 * stats.t.sf(abs(found.t), n - 1), rel=1e-12)
    assert found.standard_error == pytest.approx(np.std(a - b, ddof=1) * np.sqrt(1 / n + ratio), rel=1e-12)


def test_level_over_repeated_cross_validation():
    """Two methods that are alike, 20 rounds of ten folds on each of 200 data sets of 60 rows.

    The test by independent folds calls two thirds of them different at 5 %; the corrected one no more than 5 %, up to
    three standard deviations of 200 draws.
    """
    rng, rejected = np.random.default_rng(2), {"independent": 0, "corrected": 0}
    for _ in range(200):
        by_row = rng.standard_normal(60)
        folds = np.concatenate([rng.permutation(by_row).reshape(10, 6).mean(1) for _ in range(20)])
        rejected["independent"] += difference(folds, np.zeros(200), 0.0).p_value < 0.05
        rejected["corrected"] += difference(folds, np.zeros(200), 1 / 9).p_value < 0.05
    assert rejected["independent"] > 100
    assert 1 <= rejected["corrected"] <= 19


def test_no_difference_at_all_has_no_p_value():
    same = np.array([0.1, 0.2, 0.3])
    found = difference(same, same, 1 / 9)
    assert found == Difference(0.0, 0.0, 3)
    assert np.isnan(found.t)
    assert np.isnan(found.p_value)
    assert Difference(-1.0, 0.0, 3).p_value == 0.0


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match=r"two or more scores.*needed; got 1 and 1"):
        difference(np.ones(1), np.zeros(1), 1 / 9)
    with pytest.raises(ValueError, match="as many others are needed; got 2 and 3"):
        difference(np.ones(2), np.zeros(3), 1 / 9)
