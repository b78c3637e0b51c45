"""Expectation propagation against GPy 1.15 (tests/oracles/make_gpy_reference.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from quantprop import EP, Model, datasets, infer, kernels, likelihoods

FILE = Path(__file__).parents[1] / "oracles" / "gpy_reference.json"
RECORDS = json.loads(FILE.read_text())["records"]
CASES = [
    pytest.param(name, i, marks=[pytest.mark.campaign] * (name != "crabs"))
    for name, records in RECORDS.items()
    for i in range(len(records))
]


def standardised(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features by all rows and the population's deviation, constant columns dropped, as the reference has them."""
    data = datasets.load(name, "paper")
    x = data.X[:, np.ptp(data.X, axis=0) > 0]
    return (x - x.mean(axis=0)) / x.std(axis=0), data.y


def test_the_reference_has_three_settings_for_three_sets():
    assert {name: len(records) for name, records in RECORDS.items()} == {"ionosphere": 3, "crabs": 3, "sonar": 3}


@pytest.mark.parametrize(("name", "setting"), CASES)
def test_evidence_and_marginals_are_those_of_gpy(name, setting):
    record = RECORDS[name][setting]
    x, y = standardised(name)
    model = Model(kernels.SquaredExponential(record["variance"], record["lengthscale"]), likelihoods.Probit())
    solution = infer(model, x, y, EP(), tol=1e-9)
    assert solution.converged, str(solution.status)
    assert solution.log_evidence == pytest.approx(record["log_evidence"], abs=1e-6)
    variance = np.array(record["latent_variance"])
    error = (solution.marginals.mean - record["latent_mean"]) / np.sqrt(variance)
    assert np.abs(error).max() < 1e-6
    np.testing.assert_allclose(solution.marginals.variance, variance, rtol=1e-6)
