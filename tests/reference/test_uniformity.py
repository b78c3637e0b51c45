"""Anderson and Darling's test of uniformity: statistic, p-value, and what it sees that others miss."""

from __future__ import annotations

import numpy as np
import pytest
from reference.calibration import _survival, anderson_darling
from scipy import stats


@pytest.mark.parametrize("power", [0.8, 1.0, 1.2])
def test_statistic_and_p_value_against_scipy(power):
    """scipy finds the p-value by simulation: 2,000 draws have a standard error of 0.011 at most."""
    u = np.random.default_rng(3).uniform(size=50) ** power
    uniform = {"loc": 0.0, "scale": 1.0}
    reference = stats.goodness_of_fit(
        stats.uniform, u, known_params=uniform, statistic="ad", n_mc_samples=2000, rng=np.random.default_rng(0)
    )
    statistic, p = anderson_darling(u)
    assert statistic == pytest.approx(reference.statistic, rel=1e-10)
    assert p == pytest.approx(reference.pvalue, abs=0.04)


def adinf(z: float) -> float:
    """P(A² > z) by the short approximation of Marsaglia and Marsaglia (2004), right to 2e-5."""
    if z < 2.0:
        rising = np.polynomial.polynomial.polyval(z, (2.00012, 0.247105, -0.0649821, 0.0347962, -0.011672, 0.00168691))
        return 1.0 - np.exp(-1.2337141 / z) / np.sqrt(z) * rising
    falling = np.polynomial.polynomial.polyval(z, (1.0776, -2.30695, 0.43424, -0.082433, 0.008056, -0.0003146))
    return -np.expm1(-np.exp(falling))


@pytest.mark.parametrize("z", [0.01, 0.029, 0.031, 0.1, 0.3, 0.7, 1.2, 1.99, 2.01, 2.492, 3.857, 6.0, 8.0])
def test_the_limit_law(z):
    assert _survival(z) == pytest.approx(adinf(z), abs=2e-5)


@pytest.mark.parametrize("z", [10.0, 30.0, 100.0])
def test_the_far_tail(z):
    """The largest weight rules: P(χ²₁ > 2 z) Π (1 − 2 / (j (j + 1)))^−½ over j ≥ 2, which is √3 (Zolotarev 1961)."""
    assert _survival(z) == pytest.approx(np.sqrt(3.0) * stats.chi2.sf(2.0 * z, 1), rel=0.4 / z)


def test_printed_percentage_points():
    """Stephens (1974), case 0."""
    for point, level in ((1.933, 0.10), (2.492, 0.05), (3.070, 0.025), (3.857, 0.01)):
        assert _survival(point) == pytest.approx(level, abs=2.5e-4)


def test_a_number_at_the_end_is_impossible():
    for end in (0.0, 1.0):
        statistic, p = anderson_darling(np.array([0.2, 0.5, end]))
        assert (statistic, p) == (np.inf, 0.0)


def test_power_in_the_tails():
    """Transforms of Student's t with 5 degrees of freedom taken for a Gaussian: right in the middle, too far out."""
    rng, found = np.random.default_rng(1), {"ks": 0, "ad": 0}
    for _ in range(40):
        u = stats.norm.cdf(rng.standard_t(5, 500))
        found["ks"] += stats.kstest(u, "uniform").pvalue < 0.01
        found["ad"] += anderson_darling(u)[1] < 0.01
    assert found["ks"] <= 8
    assert found["ad"] >= 20


def test_level():
    """Of 400 uniform samples 5 % are rejected at 5 %: 20, with a standard deviation of 4.4."""
    rng = np.random.default_rng(2)
    rejected = sum(anderson_darling(rng.uniform(size=100))[1] < 0.05 for _ in range(400))
    assert 6 <= rejected <= 34
