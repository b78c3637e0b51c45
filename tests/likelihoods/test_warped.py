"""Warped Gaussian processes: the identity is the Gaussian likelihood; learned warps beat fixed ones on skewed data."""

import numpy as np
import pytest

from quantprop import EP, QP, GaussianProcessRegressor, Laplace, Model, infer, kernels, likelihoods
from quantprop.likelihoods import Gaussian, Warped

RNG = np.random.default_rng(2)
X = RNG.uniform(0.0, 6.0, (30, 1))
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=30)
NEW = np.linspace(-0.5, 6.5, 5)[:, None]
IDENTITY = Warped(0.3, [], [], [], 0.2, 1.5)  # no steps


@pytest.mark.parametrize(
    "method", [Laplace(), *(pytest.param(method, marks=pytest.mark.campaign) for method in (EP(), QP()))], ids=repr
)
def test_the_identity_is_the_gaussian_likelihood(method):
    warped, plain = (
        infer(Model(kernels.SquaredExponential(), kind), X, Y, method, exposure=1.0 + np.arange(30) % 3)
        for kind in (IDENTITY, Gaussian(0.3))
    )
    assert warped.log_evidence == pytest.approx(plain.log_evidence, rel=1e-12)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(warped.marginals, name), getattr(plain.marginals, name), rtol=0, atol=1e-12)
    np.testing.assert_allclose(warped.loo, plain.loo, rtol=0, atol=1e-10)
    ours, theirs = warped.predict_y(NEW, exposure=2.0), plain.predict_y(NEW, exposure=2.0)
    for ask in (
        lambda y: y.mean, lambda y: y.variance, lambda y: y.quantile([0.01, 0.5, 0.975]), lambda y: y.cdf(0.4),
        lambda y: y.log_prob(0.4), lambda y: y.sample(3, seed=1),
    ):  # fmt: skip
        np.testing.assert_allclose(ask(ours), ask(theirs), rtol=0, atol=1e-10)


def test_a_warp_and_its_inverse():
    warp = Warped(0.3, [2.0, 30.0], [0.01, 0.5], [0.3, -1.0], 100.0, 20.0)
    y = np.concatenate([np.linspace(-500.0, 700.0, 301), 100.0 + 20.0 * (0.3 + np.geomspace(1e-9, 0.1, 20))])
    np.testing.assert_allclose(warp.unwarp(warp.warp(y)), y, rtol=1e-12, atol=1e-12)
    step = 1e-6
    np.testing.assert_allclose(warp.slope(y), (warp.warp(y + step) - warp.warp(y - step)) / (2 * step), rtol=1e-4)


def skewed(seed):
    """Positive y, exponential in a Gaussian variable where it is small and linear where it is large."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 6.0, (200, 1))
    return x, np.logaddexp(0.0, 2.0 * (1.5 * np.sin(x[:, 0]) + 0.6 * rng.normal(size=200)))


def diabetes():
    """Progression of diabetes after a year (Efron et al. 2004), by body mass, blood pressure and a serum value."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes()
    rows = np.random.default_rng(0).permutation(len(found.target))[:250]
    return found.data[rows][:, [2, 3, 8]] / found.data[:, [2, 3, 8]].std(axis=0), found.target[rows]


def held_out(likelihood, x, y, log=False):
    """Log densities of the last 100 rows, per unit of y; learned from the others."""
    z = np.log(y) if log else y
    model = GaussianProcessRegressor(likelihood=likelihood, mean="constant", method="ep").fit(x[:-100], z[:-100])
    assert model.fitted_.status.reason == "converged"
    return model.solution_.predict_y(x[-100:]).log_prob(z[-100:]) - (np.log(y[-100:]) if log else 0.0)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: skewed(0), id="generated"),
        *(pytest.param(lambda s=s: skewed(s), id=f"generated {s}", marks=pytest.mark.campaign) for s in (1, 2, 3)),
        pytest.param(diabetes, id="diabetes", marks=pytest.mark.campaign),
    ],
)
def test_skewed_positive_data(data):
    """A learned warp predicts held-out y better than no warp, and better than the logarithm."""
    x, y = data()
    warped = held_out(Warped(), x, y).mean()
    assert warped > held_out(Gaussian(), x, y).mean() + 0.03
    assert warped > held_out(Gaussian(), x, y, log=True).mean() + 0.03


def test_the_estimator_measures_the_warp_in_units_of_y():
    x, y = skewed(0)
    model = GaussianProcessRegressor(likelihood="warped", method="ep", optimizer=None).fit(x[:50], 1000.0 * y[:50])
    own = model.likelihood_
    assert own.location == pytest.approx(np.median(1000.0 * y[:50]), rel=0.1)
    assert 300.0 < own.unit < 3000.0
    given = likelihoods.Warped(0.5, location=3.0, unit=2.0).measured(7.0, 5.0)
    assert (given.location, given.unit) == (3.0, 2.0)
