"""Forecasts of the regressor: medians where there are no moments, ordered labels, scores, and the units of y."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import stats
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import cross_val_score

from quantprop import GaussianProcessRegressor, Parameter, likelihoods, load
from quantprop.estimators.forecasts import MomentWarning, _mean_or_median

RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(-3.0, 3.0, (24, 1)), axis=0)
F = np.sin(X[:, 0])
NAMES = np.array(["low", "middle", "high"])
GRADES = np.digitize(F + 0.3 * RNG.normal(size=24), [-0.5, 0.5])
EXPOSURE = np.linspace(1.0, 20.0, 24)
COUNTS = RNG.poisson(EXPOSURE * np.exp(F)).astype(float)


def regressor(likelihood, **settings):
    """As given, without learning: few programs are compiled."""
    settings = {"method": "laplace", "optimizer": None, "kernel": RBF(1.0), **settings}
    return GaussianProcessRegressor(likelihood=likelihood, **settings)


def student(df):
    return regressor(likelihoods.StudentT(Parameter(df, fixed=True), Parameter(0.2, fixed=True))).fit(X, F)


@pytest.fixture(scope="module")
def graded():
    return regressor("ordinal").fit(X, pd.Categorical(NAMES[GRADES], categories=NAMES, ordered=True))


def test_where_y_has_no_mean_the_median_is_predicted_aloud():
    model = student(0.9)
    with pytest.warns(MomentWarning, match=r"no finite mean.*predict_quantiles.*bounds="):
        mean = model.predict(X)
    np.testing.assert_allclose(mean, model.solution_.predict(X).mean, atol=1e-9)  # the noise is symmetric
    counts = SimpleNamespace(mean=np.array([2.0, np.inf]), median=np.array([1.5, 3.0]))
    with pytest.warns(MomentWarning, match="set a prior on the kernel's variance"):
        np.testing.assert_array_equal(_mean_or_median(counts), [2.0, 3.0])
    with pytest.warns(MomentWarning, match="infinite"):
        _, deviation = model.predict(X, return_std=True)
    assert np.isposinf(deviation).all()
    assert np.isfinite(model.predict_quantiles(X)).all()


@pytest.mark.parametrize(("df", "finite"), [(1.5, False), (2.5, True)])
def test_a_deviation_is_finite_or_said_to_be_infinite(df, finite, recwarn):
    mean, deviation = student(df).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all() == finite
    assert any(w.category is MomentWarning for w in recwarn) != finite


@pytest.mark.campaign
def test_df_is_learned_where_moments_exist():
    """Noise of a Cauchy distribution: the likeliest df is near 1."""
    y = F + 0.05 * stats.cauchy.ppf((np.random.default_rng(0).permutation(24) + 0.5) / 24)
    model = GaussianProcessRegressor(likelihood="student-t", kernel=RBF(1.0, "fixed"), method="laplace").fit(X, y)
    assert model.likelihood_.df >= 2.1
    assert np.isfinite(model.predict(X, return_std=True)).all()


def test_labels_in_their_order_by_name(graded):
    """Probabilities add up, the prediction is their median, and quantiles are labels."""
    assert graded.classes_.tolist() == NAMES.tolist()
    p = graded.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    median = NAMES[np.argmax(np.cumsum(p, axis=1) >= 0.5, axis=1)]
    np.testing.assert_array_equal(graded.predict(X), median)
    np.testing.assert_array_equal(graded.predict_quantiles(X, 0.5)[:, 0], median)
    np.testing.assert_allclose(graded.predictive_cdf(X, ["middle"] * 24), p[:, 0] + p[:, 1], rtol=1e-10)
    assert graded.score(X, NAMES[GRADES]) == pytest.approx(np.mean(np.log(p[np.arange(24), GRADES])))
    assert set(graded.sample_y(X, 5).ravel()) <= set(NAMES)
    with pytest.raises(ValueError, match="labels have no standard deviation"):
        graded.predict(X, return_std=True)


def test_labels_that_are_numbers_are_the_same_model(graded):
    model = regressor("ordinal").fit(X, 10.0 * GRADES - 3.0)
    assert model.classes_.tolist() == [-3.0, 7.0, 17.0]
    np.testing.assert_array_equal(model.predict_proba(X), graded.predict_proba(X))
    np.testing.assert_array_equal(NAMES[((model.predict(X) + 3.0) / 10.0).astype(int)], graded.predict(X))


def test_cutpoints_start_from_the_shares_of_labels(graded):
    """Under the prior, f + ε ~ N(0, 2), labels are as frequent as in y."""
    below = stats.norm.cdf(graded.likelihood_.cutpoints / np.sqrt(2.0))
    np.testing.assert_allclose(below, np.cumsum(np.bincount(GRADES))[:2] / 24, atol=0.5 / 24)


def test_a_model_of_labels_is_stored(graded, tmp_path):
    graded.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), graded.predict(X))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (NAMES[GRADES], r"whose order is not known.*Categorical"),
        (np.where(GRADES == 1, np.nan, GRADES), r"y\[\d+\] is NaN"),
        (np.ones(24), "two or more different labels"),
        (GRADES[:-1], "inconsistent numbers of samples"),
    ],
)
def test_labels_without_an_order_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        regressor("ordinal").fit(X, y)


def test_a_label_that_was_not_learned_is_named(graded):
    with pytest.raises(ValueError, match=r"y\[1\] = .*best.* is not one of the labels"):
        graded.log_predictive_density(X[:2], ["low", "best"])


def test_only_models_of_labels_have_probabilities():
    assert not hasattr(regressor("poisson"), "predict_proba")
    with pytest.raises(AttributeError, match="only if fitted with likelihood='ordinal'"):
        _ = regressor("poisson").fit(X, COUNTS).classes_


def test_score_of_counts_is_the_mean_log_density():
    model = regressor("poisson").fit(X, COUNTS, exposure=EXPOSURE)
    density = model.log_predictive_density(X, COUNTS, exposure=EXPOSURE)
    weights = np.linspace(0.0, 1.0, 24)
    assert model.score(X, COUNTS, exposure=EXPOSURE) == pytest.approx(density.mean())
    assert model.score(X, COUNTS, weights, exposure=EXPOSURE) == pytest.approx(np.average(density, weights=weights))
    with pytest.raises(ValueError, match=r"fitted with exposure.*set_score_request"):
        model.score(X, COUNTS)


def test_cross_validation_passes_exposure_on():
    with sklearn.config_context(enable_metadata_routing=True):
        model = regressor("poisson").set_fit_request(exposure=True).set_score_request(exposure=True)
        scores = cross_val_score(model, X, COUNTS, params={"exposure": EXPOSURE}, cv=2)
    halves = np.arange(24) < 12
    for test, got in zip((halves, ~halves), scores, strict=True):
        alone = regressor("poisson").fit(X[~test], COUNTS[~test], exposure=EXPOSURE[~test])
        assert got == alone.score(X[test], COUNTS[test], exposure=EXPOSURE[test])


@pytest.mark.campaign
def test_cross_validation_of_censored_rows():
    y = np.stack([np.minimum(F, 0.5), np.where(F > 0.5, np.inf, F)], axis=1)
    scores = cross_val_score(regressor("censored"), X, y, cv=2)
    alone = regressor("censored").fit(X[12:], y[12:])
    assert scores[0] == np.mean(alone.log_predictive_density(X[:12], y[:12]))


def test_score_of_real_y_is_still_r2():
    model = regressor("gaussian", alpha=0.1).fit(X, F)
    assert model.score(X, F) == 1.0 - np.sum((F - model.predict(X)) ** 2) / np.sum((F - F.mean()) ** 2)


@pytest.mark.parametrize(
    "likelihood", ["gaussian", "student-t", pytest.param("double-exponential", marks=pytest.mark.campaign)]
)
def test_loo_is_per_unit_of_y_as_it_was_given(likelihood):
    """Against the model of y that was normalised by hand: densities differ by the deviation of y."""
    y, settings = 100.0 * F + 30.0, {"method": "ep", "alpha": 0.1}
    given = regressor(likelihood, normalize_y=True, **settings).fit(X, y)
    by_hand = regressor(likelihood, **settings).fit(X, (y - y.mean()) / y.std())
    np.testing.assert_allclose(given.loo_, by_hand.loo_ - np.log(y.std()), rtol=1e-9)


@pytest.mark.parametrize("first", ["2024-01-01", "2024-01-01T00:00"])
def test_times_of_dates_are_printed_in_full(first):
    """Days since 1970 differ in their fifth digit, hours in their seventh."""
    times = np.datetime64(first) + np.arange(24)
    X = pd.DataFrame({"date": times.astype("datetime64[us]")})
    model = GaussianProcessRegressor("periodic(date, period=7)", optimizer=None).fit(X, np.arange(24.0) % 7)
    ahead = model.forecast(3)
    printed = [line.split()[0] for line in repr(ahead).splitlines()[2:]]
    days = (times[-1] + np.arange(1, 4) * np.diff(times)[0] - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    np.testing.assert_allclose([float(text) for text in printed], days, rtol=0, atol=1e-6)
    assert len(set(printed)) == 3
    assert all(f"<td>{text}</td>" in ahead._repr_html_() for text in printed)
