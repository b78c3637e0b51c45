"""Learned fits by neighbours over likelihoods, scales, repeated rows, constant columns: nothing is silently wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from quantprop import Inducing, Model, Neighbours, Parameter, fit, kernels, likelihoods

LIKELIHOODS = {
    "probit": likelihoods.Probit, "poisson": likelihoods.Poisson, "gaussian": likelihoods.Gaussian,
    "student-t": likelihoods.StudentT, "negative-binomial": likelihoods.NegativeBinomial,
}  # fmt: skip


def drawn(rng: np.random.Generator, name: str) -> tuple[np.ndarray, np.ndarray]:
    n, d = int(rng.integers(3, 60)), int(rng.integers(1, 4))
    x = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3, d) + 10.0 ** rng.uniform(-3, 3)
    if rng.random() < 0.3:
        x[:, 0] = 1.0
    if rng.random() < 0.3:
        x = x[rng.integers(0, n, n)]
    f = np.sin(x @ (rng.normal(size=d) / np.maximum(x.std(axis=0), 1e-9)))
    if name == "probit":
        return x, np.sign(f + rng.normal(size=n))
    if name in ("gaussian", "student-t"):
        return x, 10.0 ** rng.uniform(-4, 4) * (f + rng.standard_t(2, size=n))
    return x, rng.poisson(np.exp(rng.uniform(-2, 4) + f)).astype(float)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_a_fit_is_finite_or_says_why_not(seed):
    rng = np.random.default_rng(seed)
    name = list(LIKELIHOODS)[seed % len(LIKELIHOODS)]
    x, y = drawn(rng, name)
    m, points = int(rng.choice([1, 4, 100])), int(rng.choice([0, min(3, len(np.unique(x, axis=0)))]))
    process = Inducing(points, neighbours=m) if points else Neighbours(m)
    spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    kernel = rng.choice([kernels.Matern32, kernels.SquaredExponential])(1.0, spread)
    model = Model(kernel, LIKELIHOODS[name](), Parameter(0.0), process)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fit(model, x, y, str(rng.choice(["ep", "qp", "laplace", "vb"])), max_evaluations=40)
    if not fitted.converged:
        assert fitted.status.remedy or fitted.solution.status.reason != "converged"
        return
    ahead = fitted.solution.predict(np.concatenate([x[:3], x[:1] + 5.0 * spread]))
    for found in (fitted.theta, fitted.objective_value, fitted.solution.loo, ahead.mean, ahead.variance):
        assert np.isfinite(found).all()
    assert (ahead.variance > 0).all()
