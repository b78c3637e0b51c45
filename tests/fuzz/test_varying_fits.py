"""Learned fits whose parameter varies, on adversarial data: finite numbers, or a reason why not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from quantprop import GaussianProcessRegressor

FITS = 200
FAMILIES = {
    "gaussian": "scale", "student-t": "scale", "double-exponential": "scale", "negative-binomial": "dispersion",
    "zero-inflated-poisson": "inflation", "gamma": "shape", "beta": "precision",
}  # fmt: skip


def drawn(rng, family):
    """Rows in any unit, some of them repeated, some columns constant; y with an outlier in a third of the sets."""
    n, d = int(rng.integers(3, 33)), int(rng.choice([1, 2]))
    x = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3, d) + 10.0 ** rng.uniform(-3, 3)
    x = x[rng.integers(0, n, n)] if rng.random() < 0.3 else x
    if rng.random() < 0.2:
        x[:, 0] = 1.0
    f = np.sin(x @ (rng.normal(size=d) / np.maximum(x.std(axis=0), 1e-9)))
    wide = np.exp(rng.normal(0.0, 1.0, n))
    if family in ("gaussian", "student-t", "double-exponential"):
        y = 10.0 ** rng.uniform(-6, 6) * (f + wide * rng.standard_t(2, size=n))
    elif family in ("negative-binomial", "zero-inflated-poisson"):
        y = rng.poisson(np.exp(rng.uniform(-2, 4) + f) * wide).astype(float)
    elif family == "gamma":
        y = np.exp(rng.uniform(-6, 6) + f) * np.maximum(rng.gamma(2.0 * wide), 1e-8)
    else:
        y = np.clip(rng.beta(wide, 1.0 / wide), 1e-6, 1.0 - 1e-6)
    if rng.random() < 0.3 and family != "beta":
        y[0] = np.round(1e3 * (1.0 + np.abs(y).max()))
    return x, y


def check(number):
    rng = np.random.default_rng([number, 49])
    family = list(FAMILIES)[number % len(FAMILIES)]
    x, y = drawn(rng, family)
    method = "ep" if rng.random() < 0.7 else "qp"
    model = GaussianProcessRegressor(varying={FAMILIES[family]: None}, likelihood=family, method=method)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y)
    fitted = model.fitted_
    if not fitted.converged:
        assert any(fitted.status.reason in str(one.message) for one in caught), (number, str(fitted.status))
        return
    new = np.concatenate([x[:2], 1e3 * x[:1] + 1.0])
    latent, at = fitted.solution.predict(new), model.parameter_at(new)
    for found in (fitted.theta, fitted.solution.loo, latent.mean, latent.variance, at.latent.mean, at.latent.variance):
        assert np.isfinite(found).all(), (number, family)
    assert (at.quantile(0.9) >= at.median).all()
    assert np.isfinite(model.predict_quantiles(new, 0.5)).all(), (number, family)


def test_a_gaussian_fit():
    check(0)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(20))
def test_two_hundred_fits(part):
    for number in range(part, FITS, 20):
        check(number)
