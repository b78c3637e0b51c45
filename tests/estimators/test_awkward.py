"""Awkward input: clear errors where there is no answer, right answers where there is one."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_matrix
from scipy.special import log_ndtr, ndtr
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, KernelWarning

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(30, 2))
Y = (X[:, 0] + 0.3 * RNG.normal(size=30) > 0).astype(int)
NEW = RNG.normal(size=(20, 2))
KERNEL = ConstantKernel(1.0) * RBF(1.0)


def changed(array, value):
    array = np.array(array, dtype=float)
    array.flat[3] = value
    return array


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (changed(X, np.nan), Y, "NaN"),
        (changed(X, np.inf), Y, "infinity"),
        (X, changed(Y, np.nan), "NaN"),
        (X, np.ones(30), "2 or more distinct classes; got 1 class .only class 1.0"),
        (X[:1], Y[:1], "2 or more distinct classes"),
        (X, Y[:-1], "inconsistent numbers of samples"),
    ],
)
def test_input_that_cannot_be_learned_from(x, y, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessClassifier().fit(x, y)


def test_sparse_matrices_are_refused():
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        GaussianProcessClassifier().fit(csr_matrix(X), Y)


@pytest.mark.parametrize("estimator", [GaussianProcessClassifier(), GaussianProcessRegressor()])
def test_prediction_before_learning(estimator):
    with pytest.raises(NotFittedError, match="not fitted"):
        estimator.predict(X)


def test_negative_counts_are_named():
    with pytest.raises(ValueError, match=r"y\[3\] = -1.*outside the support of the poisson"):
        GaussianProcessRegressor(likelihood="poisson").fit(X, changed(Y, -1.0))


def fixed():
    return GaussianProcessClassifier(KERNEL, optimizer=None)


def test_columns_at_prediction_must_be_those_of_learning():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = fixed().fit(frame, Y)
    with pytest.raises(ValueError, match="features"):
        model.predict(NEW[:, :1])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(NEW, columns=["b", "a"]))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(NEW, columns=["a", "c"]))
    assert model.feature_names_in_.tolist() == ["a", "b"]


def test_frames_lists_and_float32_give_the_same():
    expected = fixed().fit(X, Y).predict_proba(NEW)
    frames = [(pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame(NEW, columns=["a", "b"]))]
    frames += [(pl.DataFrame(X, schema=["a", "b"]), pl.DataFrame(NEW, schema=["a", "b"])), (X.tolist(), NEW.tolist())]
    for x, new in frames:
        np.testing.assert_array_equal(fixed().fit(x, list(Y)).predict_proba(new), expected)
    single = fixed().fit(X.astype(np.float32), Y).predict_proba(NEW.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, expected, atol=1e-5)


def test_three_string_classes():
    centres = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    x = np.repeat(centres, 10, axis=0) + 0.5 * RNG.normal(size=(30, 2))
    labels = np.repeat(["left", "right", "top"], 10)
    for kind in ("one_vs_rest", "one_vs_one"):
        model = GaussianProcessClassifier(multi_class=kind, method="laplace").fit(x, labels)
        assert model.predict(centres).tolist() == ["left", "right", "top"]
    means, variances = model.latent(centres)
    assert means.shape == variances.shape == (3, 3)
    probability = GaussianProcessClassifier(method="laplace").fit(x, labels).predict_proba(centres)
    np.testing.assert_allclose(probability.sum(1), 1.0)
    assert (np.diag(probability) > 0.8).all()


def test_identical_rows_predict_their_share():
    model = GaussianProcessClassifier().fit(np.ones((30, 2)), np.arange(30) < 6)
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 2)))[0, 1], 0.2, atol=0.06)


def test_five_equal_rows_are_a_weight_of_five():
    x, y = X[:6], Y[:6]
    repeated = GaussianProcessClassifier(KERNEL).fit(np.repeat(x, 5, axis=0), np.repeat(y, 5))
    weighted = GaussianProcessClassifier(KERNEL).fit(x, y, sample_weight=np.full(6, 5.0))
    np.testing.assert_allclose(repeated.predict_proba(NEW), weighted.predict_proba(NEW), atol=1e-4)
    assert repeated.log_marginal_likelihood_value_ == pytest.approx(weighted.log_marginal_likelihood_value_, abs=1e-6)


def test_a_constant_feature_changes_nothing():
    with_constant = np.column_stack([X, np.full(30, 7.0)])
    plain = GaussianProcessClassifier().fit(X, Y).predict_proba(NEW)
    more = GaussianProcessClassifier().fit(with_constant, Y).predict_proba(np.column_stack([NEW, np.full(20, 7.0)]))
    np.testing.assert_allclose(more, plain, atol=1e-5)


@pytest.mark.parametrize("scale", [1e8, 1e-8])
def test_the_default_kernel_follows_the_scale_of_the_features(scale):
    plain = GaussianProcessClassifier().fit(X, Y).predict_proba(NEW)
    scaled = GaussianProcessClassifier().fit(scale * X, Y).predict_proba(scale * NEW)
    np.testing.assert_allclose(scaled, plain, atol=1e-4)


@pytest.mark.parametrize(("length", "word"), [(1e8, "constant"), (1e-8, "diagonal")])
def test_a_kernel_that_sees_nothing_brings_a_warning(length, word):
    with pytest.warns(KernelWarning, match=word):
        GaussianProcessClassifier(RBF(length, "fixed"), optimizer=None).fit(X, Y)


def test_separable_data():
    y = (X[:, 0] > 0).astype(int)
    model = GaussianProcessClassifier().fit(X, y)
    assert model.score(X, y) == 1.0
    assert np.isfinite(model.predict_log_proba(100.0 * NEW)).all()


def test_two_rows():
    model = GaussianProcessClassifier().fit([[0.0], [1.0]], ["a", "b"])
    probability = model.predict_proba([[0.0], [0.5], [1.0]])[:, 1]
    assert probability[0] < 0.5 < probability[2]
    assert probability[1] == pytest.approx(0.5, abs=1e-6)


def test_more_features_than_rows():
    x = RNG.normal(size=(40, 500))
    y = (x[:, :250].sum(1) > 0).astype(int)
    model = GaussianProcessClassifier().fit(x[:32], y[:32])
    assert model.score(x[:32], y[:32]) == 1.0
    assert (model.predict_proba(x[32:])[:, 1] > 0).all()


@pytest.mark.campaign
def test_imbalance():
    """One positive in two hundred: the mean predicted share must not be drawn towards a half."""
    x = RNG.normal(size=(200, 2))
    y = np.arange(200) == 7
    model = GaussianProcessClassifier().fit(x, y)
    assert model.predict_proba(RNG.normal(size=(200, 2)))[:, 1].mean() == pytest.approx(0.005, abs=0.02)


def test_a_kernel_of_huge_variance_and_lengthscale():
    """Variance 1e8 and lengthscale 1e3 make a line a + b x with a ~ N(0, 1e8) and b ~ N(0, 100): integrate over it."""
    x = np.linspace(-2.0, 2.0, 24)
    y = np.where(x + 0.8 * np.random.default_rng(2).normal(size=24) > 0, 1.0, -1.0)
    kernel = ConstantKernel(1e8, "fixed") * RBF(1e3, "fixed")
    new = np.array([-1.5, -0.3, 0.4, 1.8])
    ours = GaussianProcessClassifier(kernel).fit(x[:, None], y).predict_proba(new[:, None])[:, 1]
    a, b = np.meshgrid(np.linspace(-12.0, 12.0, 801), np.linspace(-15.0, 25.0, 801), indexing="ij")
    log_weight = -0.5 * (a / 1e4) ** 2 - 0.5 * (b / 10.0) ** 2
    for xi, yi in zip(x, y, strict=True):
        log_weight += log_ndtr(yi * (a + b * xi))
    weight = np.exp(log_weight - log_weight.max())
    exact = [(weight * ndtr(a + b * t)).sum() / weight.sum() for t in new]
    np.testing.assert_allclose(ours, exact, atol=0.01)
