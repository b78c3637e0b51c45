"""Variances of crossed groups of counts: intervals from the curvature of the objective cover what was generated."""

import numpy as np
import pytest

from quantprop import GaussianProcessRegressor

LEVELS, ROWS, VARIANCES = 25, 300, (0.5, 0.25)


def intervals(seed):
    """95 % intervals of both log variances; the mean is learned with them."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, LEVELS, (ROWS, 2)).astype(float)
    f = sum(v**0.5 * rng.normal(size=LEVELS)[X[:, i].astype(int)] for i, v in enumerate(VARIANCES))
    model = GaussianProcessRegressor("group(0) + group(1)", likelihood="poisson", mean="constant", method="ep")
    model.fit(X, rng.poisson(np.exp(1.0 + f)))
    landscape, theta, step = model._core.landscape, model.fitted_.theta, 1e-4
    slopes = [[landscape.at(theta + s * step * np.eye(3)[i]).gradient for s in (1, -1)] for i in range(3)]
    hessian = np.array([(up - down) / (2 * step) for up, down in slopes])
    errors = np.sqrt(np.diagonal(np.linalg.inv(-0.5 * (hessian + hessian.T))))[:2]
    return theta[:2] - 1.959964 * errors, theta[:2] + 1.959964 * errors


@pytest.mark.campaign
def test_intervals_of_log_variances_cover():
    covered = []
    for seed in range(20):
        lower, upper = intervals(seed)
        covered.append((lower < np.log(VARIANCES)) & (np.log(VARIANCES) < upper))
    counts = np.sum(covered, axis=0)
    print("covered of 20:", counts)
    assert (counts >= 17).all()
