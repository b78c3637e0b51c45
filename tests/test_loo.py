"""Leave-one-out densities from the cavities against brute force: inference without each point."""

import numpy as np
import pytest

from quantprop import Model, datasets, infer, kernels, likelihoods


def standardised(name):
    data = datasets.load(name, "paper")
    scale = data.X.std(0)
    return (data.X - data.X.mean(0)) / np.where(scale > 0, scale, 1.0), data.y


def differences(name, variance, lengthscale, method, rows):
    """log p(y_i) from the cavity minus that from the posterior without row i."""
    X, y = standardised(name)
    model = Model(kernels.SquaredExponential(variance, lengthscale), likelihoods.Probit())
    whole = infer(model, X, y, method=method, tol=1e-8)
    gaps = []
    for i in rows:
        weights = np.ones(len(y))
        weights[i] = 0.0
        without = infer(model, X, y, method=method, tol=1e-8, weights=weights, sites=whole.sites)
        gaps.append(whole.loo[i] - without.predict_y(X[i : i + 1]).log_prob(y[i])[0])
    return np.array(gaps)


def test_gaussian_leave_one_out_is_exact():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=20)
    model = Model(kernels.SquaredExponential(1.2, 0.8), likelihoods.Gaussian(0.3))
    k = 1.2 * np.exp(-0.5 * ((X - X.T) / 0.8) ** 2) + 0.09 * np.eye(20)
    precision = np.linalg.inv(k)  # Rasmussen and Williams, equations 5.10 to 5.12
    variance = 1.0 / np.diag(precision)
    exact = -0.5 * ((precision @ y) ** 2 * variance + np.log(2.0 * np.pi * variance))
    np.testing.assert_allclose(infer(model, X, y, method="ep", tol=1e-10).loo, exact, atol=1e-8)


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp"])
@pytest.mark.parametrize(("name", "variance", "lengthscale"), [("sonar", 31.6, 6.3), ("wine1", 1e4, 10.0)])
def test_probit_leave_one_out_against_brute_force(name, variance, lengthscale, method):
    _, y = standardised(name)
    assert np.mean(np.abs(differences(name, variance, lengthscale, method, range(len(y))))) <= 0.01
