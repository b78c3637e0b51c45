"""Fits by neighbours on rows that they have not seen, and fits that were interrupted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from quantprop import Model, Neighbours, Parameter, checkpointed, fit, infer, kernels, likelihoods
from quantprop.learning.fitting import watched

KERNEL = kernels.Matern32(0.8, 0.15)


def field(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts of a Poisson process whose logarithm of the rate is drawn from KERNEL."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    r = np.sqrt(3.0) * np.linalg.norm(x[:, None] - x, axis=2) / 0.15
    f = np.linalg.cholesky(0.8 * (1.0 + r) * np.exp(-r) + 1e-9 * np.eye(n)) @ rng.normal(size=n)
    return x, rng.poisson(np.exp(1.0 + f)).astype(float)


@pytest.mark.campaign
def test_held_out_counts_are_calibrated():
    x, y = field(2000, 1)
    model = Model(KERNEL, likelihoods.Poisson(), 1.0, Neighbours(16))
    ahead = infer(model, x[:1200], y[:1200], "ep").predict_y(x[1200:])
    top, bottom = np.asarray(ahead.cdf(y[1200:])), np.asarray(ahead.cdf(y[1200:] - 1.0))
    pit = bottom + np.random.default_rng(2).random(800) * (top - bottom)
    assert kstest(pit, "uniform").pvalue > 0.01


@pytest.mark.campaign
def test_leave_one_out_densities_are_those_without_the_row():
    x, y = field(500, 3)
    model = Model(KERNEL, likelihoods.Poisson(), 1.0, Neighbours(16))
    loo = infer(model, x, y, "ep").loo[:100]
    actual = np.array([
        infer(model, np.delete(x, i, 0), np.delete(y, i), "ep").predict_y(x[i : i + 1]).log_prob(y[i])[0]
        for i in range(100)
    ])  # fmt: skip
    assert np.abs(loo - actual).mean() < 0.01
    assert np.abs(loo - actual).max() < 0.1


class _Killed(Exception):
    pass


@pytest.mark.campaign
@pytest.mark.parametrize("evaluations", [3, 12, 20])  # in the first search, and in later ones, whose sets are others
def test_a_fit_that_was_killed_resumes_with_the_same_bits(tmp_path, evaluations):
    x, y = field(200, 4)
    model = Model(kernels.Matern32(1.0, [0.03, 1.0]), likelihoods.Poisson(), Parameter(0.0), Neighbours(8))
    whole = fit(model, x, y, "ep")
    assert whole.status.rounds > 1
    assert len(whole.trace) > 20
    seen = []

    def note(step, count):
        seen.append(step)
        if len(seen) == evaluations:
            raise _Killed

    with pytest.raises(_Killed), checkpointed(tmp_path / "kept", minutes=0.0), watched(note):
        fit(model, x, y, "ep")
    with checkpointed(tmp_path / "kept", minutes=0.0):
        resumed = fit(model, x, y, "ep")
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    assert resumed.objective_value == whole.objective_value
    np.testing.assert_array_equal(resumed.solution.sites.nu, whole.solution.sites.nu)
