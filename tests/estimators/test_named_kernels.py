"""The kernels "shrunk" and "additive": in units of X and y, the same for all folds, in files and with further rows."""

import numpy as np
import pytest

import quantprop
from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, Inducing, kernels
from quantprop.core.parameters import LogNormal
from quantprop.runtime.programs import _cache

RNG = np.random.default_rng(2)
N = 60
X = np.column_stack([RNG.normal(size=N), RNG.gamma(2.0, size=N), RNG.integers(0, 2, N), RNG.normal(size=N)])
Y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.2 * RNG.normal(size=N)
NEW = X[:7] + np.array([0.1, 0.2, 0.0, -0.3])
NAMES = ("additive", pytest.param("shrunk", marks=pytest.mark.campaign))
UNITS = {"y": (1.0, 0.0, 1e6), "small y": (1.0, 0.0, 1e-6), "X": (1e6, 0.0, 1.0), "small X": (1e-6, 0.0, 1.0),
         "shifted": (1.0, 1e3, 1.0)}  # fmt: skip


@pytest.fixture(scope="module", params=NAMES)
def base(request):
    return request.param, GaussianProcessRegressor(request.param, method="ep").fit(X, Y)


@pytest.mark.parametrize("unit", UNITS)
def test_units_and_zeros_do_not_matter(base, unit):
    (name, model), (by, shift, of_y) = base, UNITS[unit]
    other = GaussianProcessRegressor(name, method="ep").fit(by * X + shift, of_y * Y)
    mean, deviation = other.predict(by * NEW + shift, return_std=True)
    wanted, its_deviation = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean / of_y, wanted, rtol=0, atol=1e-6)
    np.testing.assert_allclose(deviation / of_y, its_deviation, rtol=1e-6)
    size = len(other.fitted_.theta) - 1  # the last is the scale of the noise
    np.testing.assert_allclose(other.fitted_.theta[:size], model.fitted_.theta[:size], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_units_do_not_matter_to_classes(name):
    labels = np.median(Y) < Y
    wanted = GaussianProcessClassifier(name, method="ep").fit(X, labels).predict_proba(NEW)
    for by, shift in ((1e6, 0.0), (1e-6, 0.0), (1.0, 1e3)):
        found = GaussianProcessClassifier(name, method="ep").fit(by * X + shift, labels).predict_proba(by * NEW + shift)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_priors_are_those_of_standardised_columns():
    shrunk = GaussianProcessClassifier("shrunk", optimizer=None).fit(X, Y > 0).fitted_.model.kernel
    np.testing.assert_allclose(shrunk.scale, X.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(shrunk.centre, X.mean(axis=0), rtol=1e-12)
    own = shrunk.kernel.lengthscale
    assert own.prior == LogNormal(2.0 * 4**0.5, 1.0)
    np.testing.assert_array_equal(own.value, np.full(4, 4.0))
    additive = GaussianProcessClassifier("additive", optimizer=None).fit(X, Y > 0).fitted_.model.kernel
    assert (additive.order, additive.lengthscale.prior, additive.variance.prior) == (
        2, LogNormal(2.0, 1.0), LogNormal(1.0, 2.0)
    )  # fmt: skip
    assert additive.lengthscale.value.tolist() == [2.0] * 3  # the column of two values has a relevance
    assert (additive.relevance.value.tolist(), additive.relevance.prior) == ([0.4], LogNormal(0.4, 2.0))
    alone = GaussianProcessClassifier("additive", optimizer=None).fit(X[:, :1], Y > 0).fitted_.model.kernel
    assert alone.order == 1


def test_shrinkage_lets_a_column_without_effect_go():
    kernel = GaussianProcessRegressor("shrunk", method="ep").fit(X, Y).fitted_.model.kernel
    lengthscale = kernel.right.kernel.lengthscale.value
    assert lengthscale[3] > 2.0 * lengthscale[0]


@pytest.mark.parametrize("name", NAMES)
def test_folds_share_their_programs(name):
    GaussianProcessRegressor(name, method="ep").fit(X[:50], Y[:50])
    made = _cache.made
    GaussianProcessRegressor(name, method="ep").fit(X[10:], 3.0 * Y[10:])
    assert _cache.made == made


@pytest.mark.parametrize("name", NAMES)
def test_files_and_further_rows_keep_the_columns(name, tmp_path):
    model = GaussianProcessRegressor(name, method="ep", process=Inducing(30), optimizer=None).fit(X[:40], Y[:40])
    kernel = model.fitted_.model.kernel.right
    model.save(tmp_path / "model.safetensors")
    again = quantprop.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.predict(NEW), model.predict(NEW), rtol=1e-12)
    again.partial_fit(X[40:], Y[40:])
    for field in ("centre", "scale") if name == "shrunk" else ("nodes", "weights"):
        np.testing.assert_array_equal(getattr(again.fitted_.model.kernel.right, field), getattr(kernel, field))


@pytest.mark.campaign
def test_terms_of_additive_effects():
    model = GaussianProcessRegressor("additive(0, 2) + linear(1)", method="ep", optimizer=None).fit(X, Y)
    assert list(model.solution_.terms(X)) == ["additive(0, 2, order=2)", "linear(1)"]
    assert list(model.solution_.components(X)) == ["level", "0", "2", "0:2", "linear(1)"]
    total = sum(part.mean for part in model.solution_.components(NEW).values())
    np.testing.assert_allclose(total, model.solution_.predict(NEW).mean, rtol=0, atol=1e-10)
    every = GaussianProcessRegressor("additive(*, order=1)", method="ep", optimizer=None).fit(X, Y)
    assert list(every.solution_.components(X)) == ["level", "0", "1", "2", "3"]
    assert kernels.written(every.fitted_.model.kernel, None) == "additive(*, order=1)"


@pytest.mark.parametrize(("name", "nearest"), [("shrink", "shrunk"), ("additve", "additive")])
def test_unknown_names_are_said(name, nearest):
    with pytest.raises(ValueError, match=nearest):
        GaussianProcessRegressor(name).fit(X, Y)
