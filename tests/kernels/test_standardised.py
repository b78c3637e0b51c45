"""Kernels of standardised columns and of rank-normal scores."""

import jax
import numpy as np
import pytest
from scipy.stats import norm, rankdata

from quantprop import Model, fit, infer, kernels, likelihoods
from quantprop.core.parameters import values
from quantprop.kernels.structure import measured
from quantprop.storage.records import decode, encode

RNG = np.random.default_rng(4)
X = np.stack([np.exp(2.0 * RNG.normal(size=300)), RNG.poisson(2.0, size=300), np.arange(300) % 2], axis=1)


def test_standardised_columns():
    centre, scale = np.array([1e3, -2.0]), np.array([50.0, 0.1])
    x = centre + scale * RNG.normal(size=(8, 2))
    plain, kernel = kernels.SquaredExponential(1.3, [0.7, 2.0]) + kernels.White(0.1), None
    kernel = kernels.Standardised(plain, centre, scale)
    with jax.enable_x64(True):
        np.testing.assert_allclose(kernel.gram(x), plain.gram((x - centre) / scale), rtol=1e-13)
        np.testing.assert_allclose(kernel.cross(x, x[:3]), plain.cross((x - centre) / scale, (x[:3] - centre) / scale))
        np.testing.assert_allclose(kernel.diagonal(x), 1.4, rtol=1e-14)
        np.testing.assert_allclose(kernel.noise(x), 0.1)
        np.testing.assert_allclose(kernel(x[0], x[1]), kernel.cross(x, x)[0, 1], rtol=1e-13)


def scores(x, rows=X, counts=None):
    with jax.enable_x64(True):
        return np.asarray(kernels.RankNormal(kernels.Linear()).measured(rows, counts).of(x))


def test_scores_are_normal_quantiles_of_the_middle_ranks():
    wanted = norm.ppf((rankdata(X, axis=0) - 0.5) / len(X))
    np.testing.assert_allclose(scores(X), wanted, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(scores(X[7]), scores(X)[7])
    counts = RNG.integers(0, 4, size=300)
    np.testing.assert_allclose(scores(X, X, counts), scores(X, np.repeat(X, counts, axis=0)), rtol=1e-12, atol=1e-13)


def test_new_rows_have_scores_between_those_of_their_neighbours():
    new = np.linspace(-1.0, 1.1 * X.max(), 5000)
    found = scores(np.stack([new] * 3, axis=1))
    assert (np.diff(found, axis=0) >= 0).all()
    for j in range(3):
        known, first = np.unique(X[:, j], return_index=True)
        np.testing.assert_allclose(found[:, j], np.interp(new, known, scores(X)[first, j]), rtol=1e-10, atol=1e-12)


def test_of_many_values_some_have_exact_scores_and_the_others_nearly():
    x = np.sort(RNG.standard_cauchy(size=(5000, 1)), axis=0)
    exact = norm.ppf((np.arange(5000) + 0.5) / 5000)[:, None]
    found = scores(x, x)
    assert (np.diff(found[:, 0]) > 0).all()
    np.testing.assert_allclose(found[[0, -1]], exact[[0, -1]], rtol=1e-12)
    assert (found[5:] >= exact[:-5]).all()  # a value that is stored is at most five ranks away
    assert (found[:-5] <= exact[5:]).all()


def test_the_covariance_is_that_of_the_scores():
    inner = kernels.SquaredExponential(1.3, [0.7, 2.0, 1.0]) + kernels.White(0.1)
    with jax.enable_x64(True):
        kernel = kernels.RankNormal(inner).measured(X)
        np.testing.assert_allclose(kernel.gram(X), inner.gram(scores(X)), rtol=1e-13)
        np.testing.assert_allclose(
            kernel.cross(X, X[:3] + 0.1), inner.cross(scores(X), scores(X[:3] + 0.1)), rtol=1e-13
        )
        again = decode(encode(kernel, "kernel"), "kernel")
        np.testing.assert_array_equal(again.gram(X[:9]), kernel.gram(X[:9]))
    assert repr(kernel) == f"RankNormal({inner!r})"


def test_fit_learns_the_scores_from_rows_that_count():
    y, counts = np.log(X[:, 0]), 1.0 * (np.arange(300) < 200)
    model = Model(kernels.RankNormal(kernels.SquaredExponential()).on([0]), likelihoods.Gaussian(0.1))
    fitted = fit(model, X, y, "ep", weights=counts, max_evaluations=3)
    own = fitted.model.kernel.kernel
    assert own.values.max() == X[:200, 0].max()
    again = fit(fitted.model, X[::-1] + 1.0, y[::-1], "ep", weights=counts, max_evaluations=3)
    np.testing.assert_array_equal(again.model.kernel.kernel.values, own.values)
    with pytest.raises(ValueError, match="RankNormal: the scores of its columns are not set"):
        infer(model, X, y, "ep")


@pytest.mark.parametrize("outer", [
    kernels.RankNormal(kernels.Additive(2)),
    pytest.param(kernels.Standardised(kernels.Additive(2), np.array([5.0, 2.0, 0.0]), np.array([9.0, 1.0, 1.0])),
                 marks=pytest.mark.campaign),
])  # fmt: skip
def test_an_additive_kernel_inside_has_the_distributions_of_what_it_sees(outer):
    kernel = values(measured(outer, X))
    with jax.enable_x64(True):
        seen = np.asarray(kernel.of(X))
        wanted = values(kernels.Additive(2).measured(seen))
        np.testing.assert_allclose(kernel.gram(X[:20]), wanted.gram(seen[:20]), rtol=1e-9)
