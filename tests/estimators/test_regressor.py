"""The regressor's noise: learned without a kernel of the user's, known with one; and what fails."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn import gaussian_process
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV

import quantprop
from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRanker,
    GaussianProcessRegressor,
    Inducing,
    likelihoods,
)
from quantprop.core.gaussian import Natural

RNG = np.random.default_rng(11)
X = np.sort(RNG.uniform(0, 6, 40))[:, None]
NEW = np.linspace(-1, 7, 9)[:, None]
NOISY = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=40)
SMALLEST = 1e-10  # alpha's default


def theirs(model, y, scale=1.0):
    """scikit-learn's regressor with the learned kernel, and the learned noise as a WhiteKernel."""
    kernel = model.kernel_ + WhiteKernel(float(model.likelihood_.scale) ** 2)
    return gaussian_process.GaussianProcessRegressor(kernel, alpha=SMALLEST, **{"optimizer": None}).fit(X, y / scale)


@pytest.fixture(scope="module")
def default():
    return GaussianProcessRegressor().fit(X, 300.0 + 100.0 * NOISY)


def test_learned_noise_is_scikit_learns_white_noise(default, tmp_path):
    y = 300.0 + 100.0 * NOISY
    other = theirs(default, y)
    default.save(tmp_path / "model.safetensors")
    for model in (default, quantprop.load(tmp_path / "model.safetensors")):
        for options in ({"return_std": True}, {"return_cov": True}):
            for found, expected in zip(model.predict(NEW, **options), other.predict(NEW, **options), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-4)
        evidence, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
        expected = other.log_marginal_likelihood(other.kernel_.theta, eval_gradient=True)
        assert evidence == pytest.approx(expected[0], abs=1e-6) == model.log_marginal_likelihood_value_
        np.testing.assert_allclose(slope, expected[1][:2], atol=1e-5)
    draws = default.sample_y(NEW, 4000)
    np.testing.assert_allclose(draws.std(axis=1), other.predict(NEW, return_std=True)[1], rtol=0.05)


def test_scikit_learn_finds_no_better_noise(default):
    length, size = float(np.ptp(X)), 9e4
    kernel = ConstantKernel(size, (1e-5 * size, 1e8 * size)) * RBF(1.0, (1e-3 * length, 1e3 * length))
    kernel += WhiteKernel(1e3, (1e-5, 1e6))
    learned = gaussian_process.GaussianProcessRegressor(kernel, n_restarts_optimizer=4, random_state=0)
    best = learned.fit(X, 300.0 + 100.0 * NOISY).log_marginal_likelihood_value_
    assert default.log_marginal_likelihood_value_ == pytest.approx(best, abs=1e-4)


LUNG = np.random.default_rng(3).integers(39, 83, 80).astype(float)[:, None]  # ages, many of them equal
TIMES = np.round(300.0 * np.exp(0.05 * (60.0 - LUNG[:, 0])) * np.random.default_rng(4).weibull(1.3, 80))
TABLE = {"size 300": (X, 300.0 + 5.0 * NOISY), "repeated rows": (LUNG, TIMES), "noise": (X, NOISY)}


DEFAULT = {("repeated rows", None), ("size 300", "se(0) + linear(0)"), ("noise", "matern32(0) + white()")}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "kernel"), [
    pytest.param(name, kernel, marks=[pytest.mark.campaign] * ((name, kernel) not in DEFAULT))
    for name in TABLE for kernel in (None, "ard", "se(0) + linear(0)", "matern32(0) + white()")
])  # fmt: skip
def test_without_a_kernel_intervals_hold_their_share(name, kernel):
    x, y = TABLE[name]
    model = GaussianProcessRegressor(kernel, mean="constant").fit(x, y)
    lower, upper = model.predict_interval(x, 0.9).T
    assert 0.8 <= np.mean((lower <= y) & (y <= upper)) <= 1.0
    mean, deviation = model.predict(x, return_std=True)
    assert 0.4 < np.sqrt(np.mean((y - mean) ** 2)) / np.sqrt(np.mean(deviation**2)) < 1.2


def test_alpha_or_a_white_term_is_the_noise_instead():
    known = GaussianProcessRegressor(alpha=0.09).fit(X, NOISY)
    kernel = known.kernel_
    other = gaussian_process.GaussianProcessRegressor(kernel, alpha=0.09, optimizer=None).fit(X, NOISY)
    np.testing.assert_allclose(
        known.predict(NEW, return_std=True)[1], other.predict(NEW, return_std=True)[1], rtol=1e-6
    )
    by_row = GaussianProcessRegressor(alpha=np.full(40, 0.09)).fit(X, NOISY)
    np.testing.assert_allclose(by_row.predict(NEW), known.predict(NEW), rtol=1e-5)
    learned, white = (GaussianProcessRegressor(k).fit(X, NOISY) for k in (None, "se(0) + white()"))
    noise = white.fitted_.hyperparameters["kernel.right.variance"]
    assert noise == pytest.approx(learned.likelihood_.scale**2, rel=1e-3)
    for found, expected in zip(white.predict(NEW, return_std=True), learned.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_learned_noise_goes_with_the_other_settings():
    base = GaussianProcessRegressor().fit(X, NOISY)
    scaled = GaussianProcessRegressor(normalize_y=True).fit(X, 5.0 + 100.0 * (NOISY - NOISY.mean()))
    assert scaled.likelihood_.scale * NOISY.std() == pytest.approx(base.likelihood_.scale, rel=0.02)
    start = GaussianProcessRegressor(optimizer=None)
    repeated, weighted = start.fit(np.tile(X, (2, 1)), np.tile(NOISY, 2)).predict(NEW), np.full(40, 2.0)
    np.testing.assert_allclose(start.fit(X, NOISY, sample_weight=weighted).predict(NEW), repeated, rtol=1e-9)
    assert clone(base).get_params() == GaussianProcessRegressor().get_params()
    search = GridSearchCV(GaussianProcessRegressor(), {"alpha": [SMALLEST, 25.0]}, cv=2).fit(X[::2], NOISY[::2])
    assert search.best_params_ == {"alpha": SMALLEST}


@pytest.mark.campaign
def test_learned_noise_goes_with_other_processes_and_integrates():
    scale = GaussianProcessRegressor().fit(X, NOISY).likelihood_.scale
    for process in (Inducing(20), "markov"):
        other = GaussianProcessRegressor(process=process).fit(X, NOISY)
        assert other.likelihood_.scale == pytest.approx(scale, rel=0.05)
    integrated = GaussianProcessRegressor(hyperparameters="integrated").fit(X, NOISY)
    mean, covariance = integrated.predict(NEW, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), integrated.predict(NEW, return_std=True)[1], rtol=1e-9)
    assert (np.diag(covariance) > 0.25 * scale**2).all()
    np.testing.assert_array_equal(mean, integrated.predict(NEW))


# --- given kernels that leave no digits ------------------------------------------------------------------------------

SINGULAR = ConstantKernel(1e8, "fixed") * RBF(10.0, "fixed")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimizer", [None, "fmin_l_bfgs_b"])
def test_a_given_kernel_that_cannot_be_factorised_is_scikit_learns_error_and_each_remedy_works(optimizer):
    with pytest.raises(np.linalg.LinAlgError, match="not returning a positive definite matrix"):
        gaussian_process.GaussianProcessRegressor(SINGULAR, optimizer=optimizer).fit(X, NOISY)
    with pytest.raises(np.linalg.LinAlgError, match=r"not returning a positive definite matrix.*likelihoods.Gaussian"):
        GaussianProcessRegressor(SINGULAR, optimizer=optimizer).fit(X, NOISY)
    for kernel, settings in (
        (SINGULAR, {"likelihood": likelihoods.Gaussian()}), (SINGULAR, {"alpha": 0.1}), (SINGULAR + WhiteKernel(), {}),
    ):  # fmt: skip
        model = GaussianProcessRegressor(kernel, optimizer=optimizer, **settings).fit(X, NOISY)
        assert np.abs(model.predict(X) - np.sin(X[:, 0])).mean() < 0.5


FAILED = {
    "regressor": lambda: GaussianProcessRegressor().fit(X, NOISY),
    "counts": lambda: GaussianProcessRegressor(likelihood="poisson", method="laplace").fit(X, np.round(NOISY + 2)),
    "ordinal": lambda: GaussianProcessRegressor(likelihood="ordinal", method="laplace").fit(X, np.round(NOISY)),
    "integrated": lambda: GaussianProcessRegressor(hyperparameters="integrated").fit(X, NOISY),
    "classifier": lambda: GaussianProcessClassifier(method="laplace").fit(X, NOISY > 0),
    "several": lambda: GaussianProcessClassifier(method="laplace").fit(X, np.round(NOISY)),
    "joint": lambda: GaussianProcessClassifier(multi_class="joint", optimizer=None).fit(X[::4], np.arange(10) % 3),
    "ranker": lambda: GaussianProcessRanker(method="laplace").fit(X, np.arange(40).reshape(20, 2)),
}


CHEAP = ("regressor", "integrated", "classifier")


def lost(core):
    """The same model with a posterior that failed."""

    def failed(one):
        nothing = Natural(np.full_like(one.sites.nu, np.nan), np.full_like(one.sites.tau, np.nan))
        return replace(one, sites=nothing, status=replace(one.status, reason="improper-start"))

    mixture = core.mixture
    if mixture is not None:
        mixture = replace(mixture, components=tuple(map(failed, mixture.components)))
    return replace(core, fitted=replace(core.fitted, solution=failed(core.fitted.solution)), mixture=mixture)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in CHEAP else pytest.mark.campaign) for name in FAILED]
)
def test_no_estimator_predicts_nan(name):
    model = FAILED[name]()
    if isinstance(model, GaussianProcessClassifier):
        model._finish([lost(core) for core in model._cores()])
    else:
        model._core = lost(model._core)
    ways = [getattr(model, way) for way in ("predict", "predict_quantiles", "sample_y", "predict_log_proba", "latent")
            if hasattr(model, way)]  # fmt: skip
    ways += [lambda x: model.predict_proba(x, x)] if name == "ranker" else []
    assert len(ways) >= 2
    for way in ways:
        with pytest.raises(np.linalg.LinAlgError, match="is not finite: inference stopped with status improper-start"):
            way(NEW)


# --- weights that are whole but for rounding -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    [
        GaussianProcessClassifier(multi_class="joint", optimizer=None),
        pytest.param(
            GaussianProcessClassifier(ConstantKernel(1.0) + WhiteKernel(1.0), optimizer=None, method="laplace"),
            marks=pytest.mark.campaign,
        ),
        GaussianProcessRegressor(RBF(1.0) + WhiteKernel(1.0), optimizer=None),
        GaussianProcessRegressor(RBF(1.0), optimizer=None, alpha=0.1),
        pytest.param(GaussianProcessRegressor(likelihood="ordinal", method="laplace"), marks=pytest.mark.campaign),
    ],
)
def test_weights_that_are_whole_but_for_rounding_are_whole(model):
    x, labels = X[:9], np.arange(9) % 3
    weights = np.tile([0.3 / 0.1, 0.1 * 3 / 0.1, 1.0], 3)  # 2.9999999999999996, 3.0000000000000004
    assert (weights[:2] != 3.0).all()
    rounded, whole = (clone(model).fit(x, labels, sample_weight=w) for w in (weights, np.rint(weights)))
    inner = (
        (rounded.base_estimator_, whole.base_estimator_) if hasattr(rounded, "base_estimator_") else (rounded, whole)
    )
    for one, other in zip(*(getattr(each, "estimators_", [each]) for each in inner), strict=True):
        np.testing.assert_array_equal(one.X_train_, other.X_train_)
        np.testing.assert_array_equal(one.y_train_, other.y_train_)
    assert rounded.log_marginal_likelihood_value_ == pytest.approx(whole.log_marginal_likelihood_value_, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_noise_given_by_row_is_its_mean_at_new_rows(unit):
    """Equal noise for all rows, said by an array or by a number, is the same noise, in any unit of y."""
    y = unit * NOISY
    by_row, by_number = (
        GaussianProcessRegressor(alpha=alpha).fit(X, y) for alpha in (np.full(40, 0.09 * unit**2), 0.09 * unit**2)
    )
    expected = by_number.predict_interval(NEW, 0.9) / unit
    np.testing.assert_allclose(by_row.predict_interval(NEW, 0.9) / unit, expected, rtol=1e-6)
    halves = np.where(np.arange(40) % 2, 0.05, 0.13) * unit**2
    kernel = ConstantKernel(unit**2) * RBF(1.0)
    known = gaussian_process.GaussianProcessRegressor(kernel, alpha=halves, optimizer=None).fit(X, y)
    ours = GaussianProcessRegressor(kernel, alpha=halves, optimizer=None).fit(X, y)
    np.testing.assert_allclose(ours.predict(NEW), known.predict(NEW), rtol=1e-9, atol=1e-9 * unit)
