"""Rows to which the kernel gives no variance: f is known there, and their data say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from quantprop import Dense, Inducing, Markov, Model, fit, infer, kernels, likelihoods

POINTS = np.array([[-1.5], [0.7]])
PROCESSES = {"dense": Dense(), "inducing": Inducing(POINTS), "markov": Markov()}
X = np.append(0.0, np.random.default_rng(0).normal(size=29))[:, None]
Y = np.where(X[:, 0] + np.random.default_rng(1).normal(size=30) > 0, 1.0, -1.0)
WITHOUT = (X[:, 0] != 0.0).astype(float)


@pytest.mark.parametrize(
    "name", ["dense", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("markov", "inducing"))]
)
def test_it_is_said_and_weight_0_helps(name):
    model = Model(kernels.Linear(2.0), likelihoods.Probit(), 0.3, PROCESSES[name])
    known = infer(model, X, Y, "ep")
    assert known.status.reason == "no-variance"
    assert "weights to 0" in known.status.remedy
    assert known.marginals.variance[0] == 0.0
    left = infer(model, X, Y, "ep", weights=WITHOUT)
    rest = infer(Model(kernels.Linear(2.0), likelihoods.Probit(), 0.3), X[1:], Y[1:], "ep")
    assert left.converged
    assert left.log_evidence == pytest.approx(rest.log_evidence, abs=1e-6)
    assert left.marginals.mean[0] == pytest.approx(0.3, abs=1e-12)


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp", "vb", "laplace"])
@pytest.mark.parametrize("name", PROCESSES)
def test_learning_without_them(name, method):
    model = Model(kernels.Linear(2.0), likelihoods.Probit(), 0.3, PROCESSES[name])
    left = fit(model, X, Y, method, weights=WITHOUT)
    rest = fit(Model(kernels.Linear(2.0), likelihoods.Probit(), 0.3), X[1:], Y[1:], method)
    assert left.status.reason == rest.status.reason == "converged"
    assert left.objective_value == pytest.approx(rest.objective_value, abs=1e-6)
