"""Simulation-based calibration of EP and QP: where the truth lies in their predictive distributions."""

from __future__ import annotations

import numpy as np
import pytest
from reference.calibration import Calibration, calibrate, simulate
from scipy.special import ndtr

from quantprop import Model, kernels, likelihoods

INPUTS, HELD_OUT = np.linspace(0.0, 8.0, 32)[:, None], np.array([[4.1]])


def simulated(likelihood: likelihoods.Likelihood, mean: float, draws: int):
    model = Model(kernels.SquaredExponential(2.0, 1.0), likelihood, mean)
    return simulate(model, INPUTS, HELD_OUT, draws, seed=0)


def passes(found: Calibration) -> bool:
    """Uniform at 1 %, as a whole and in the tails, and no coverage more than 3.3 standard errors from its level."""
    draws = len(found.pit_f)
    near = [
        abs(part - level) < 3.3 * np.sqrt(level * (1.0 - level) / draws)
        for level in (0.5, 0.9, 0.99)
        for part in found.coverage(level)
    ]
    return found.failed == 0 and min(*found.p_values, *found.tail_p_values) > 0.01 and all(near)


@pytest.mark.campaign
def test_ep_on_probit():
    assert passes(calibrate(simulated(likelihoods.Probit(), 0.0, 500), "ep"))


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp"])
@pytest.mark.parametrize(
    ("likelihood", "mean"), [(likelihoods.Probit(), 0.0), (likelihoods.Poisson(), 1.0)], ids=["probit", "poisson"]
)
def test_ep_and_qp(method, likelihood, mean):
    assert passes(calibrate(simulated(likelihood, mean, 500), method))


def test_the_test_itself():
    """Too narrow, too wide and shifted predictive distributions fail it; a right one passes."""
    z = np.random.default_rng(0).standard_normal(500)
    assert passes(Calibration(ndtr(z), ndtr(z), 0))
    for wrong in (1.3 * z, 0.75 * z, z + 0.25):
        assert not passes(Calibration(ndtr(wrong), ndtr(wrong), 0))
    assert not passes(Calibration(ndtr(z), ndtr(z), 1))


def test_tails_are_seen():
    """Student's t with 5 degrees of freedom for a Gaussian: uniform to Kolmogorov and Smirnov, not in the tails."""
    u = ndtr(np.random.default_rng(1).standard_t(5, 500))
    found = Calibration(u, np.where(np.arange(500) == 7, np.nan, u), 1)
    assert min(found.p_values) > 0.05
    assert max(found.tail_p_values) < 0.01
