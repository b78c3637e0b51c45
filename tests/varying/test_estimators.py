"""Estimators with a parameter that varies, by terms and by kernels; bad input; stacks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from varying.families import GAUSSIAN, MODEL, RNG, X, Y, kernel_of

from quantprop import (
    GaussianProcessRegressor,
    Model,
    active,
    fit,
    infer,
    kernels,
    likelihoods,
    load,
    project,
    stack,
)
from quantprop.kernels.categories import NewLevelWarning
from quantprop.likelihoods import Varying

# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Varying(likelihoods.Gaussian(), "scael"), "scale"),
        (lambda: Varying(likelihoods.Probit(), "scale"), "Probit has no positive parameter"),
        (lambda: Varying(likelihoods.StudentT(), "df"), "df of StudentT must be the same for all x; scale may vary"),
        (lambda: Varying(likelihoods.ByOutput((likelihoods.Gaussian(),)), "scale"), "ByOutput is not supported"),
        (lambda: infer(Model(kernels.Matern32(), GAUSSIAN), X, Y, "ep"), "PerParameter"),
        (lambda: infer(Model(kernel_of(), likelihoods.Gaussian()), X, Y, "ep"), "likelihoods.Varying"),
        (lambda: infer(MODEL, X, Y, "vb"), "VB does not support a parameter that varies"),
        (lambda: infer(MODEL, X, Y, "laplace"), "Laplace does not support a parameter that varies"),
        (lambda: infer(MODEL, X, Y, "ep", weights=np.full(30, 0.5)), "weights of 0, 1 or more"),
        (lambda: infer(MODEL, X, Y, "ep").predict_y(X, output=0), "single output"),
        (lambda: infer(MODEL, X, Y, "ep").corrected(), "constant parameter"),
        (lambda: project(GAUSSIAN, 1.0, (0.0, 1.0)), "project takes one latent value"),
    ],
)
def test_errors_say_what_would_work(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_estimator_with_both_kernels(tmp_path):
    model = GaussianProcessRegressor(MODEL.kernel, likelihood=GAUSSIAN, method="ep").fit(X, Y)
    alone = fit(MODEL, X, Y, "ep")
    assert model.solution_.log_evidence >= alone.solution.log_evidence - 1e-6
    new = [[1.0], [2.5]]
    expected = np.sqrt(model.solution_.predict_y(new).variance)
    np.testing.assert_array_equal(model.predict(new, return_std=True)[1], expected)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        load(tmp_path / "model.safetensors").predict_interval(new), model.predict_interval(new)
    )
    draws, upper = model.sample_y(new, 4000), model.predict_quantiles(new, 0.9)[:, 0]
    np.testing.assert_allclose(np.mean(draws <= upper[:, None], axis=1), 0.9, atol=0.02)


@pytest.fixture(scope="module")
def by_terms():
    """Rows of a frame, y in another unit than in the other tests, and a model of both functions by their terms."""
    frame = pd.DataFrame({"z": RNG.standard_normal(len(X)), "x": X[:, 0]})
    model = GaussianProcessRegressor("se(x)", varying={"scale": "se(x) + linear(z)"}, method="ep", normalize_y=True)
    return frame, 10.0 + 3.0 * Y, model.fit(frame, 10.0 + 3.0 * Y)


def test_an_estimator_of_terms_learns_both_functions(by_terms):
    """Its kernels are those of the core, learned to the same evidence, and the scale is in the unit of y."""
    frame, y, model = by_terms
    again = infer(Model(model.kernel_, model.likelihood_), frame[["x", "z"]].to_numpy(), (y - y.mean()) / y.std(), "ep")
    assert model.solution_.log_evidence == pytest.approx(again.log_evidence, abs=1e-6)
    at = model.parameter_at(frame[:2])
    np.testing.assert_allclose(at.median, y.std() * again.parameter_at(frame[["x", "z"]][:2]).median, rtol=1e-6)
    np.testing.assert_allclose(at.quantile(0.9), at.median * np.exp(norm.ppf(0.9) * np.sqrt(at.latent.variance)))


def test_a_summary_names_the_terms_of_both_functions(by_terms):
    frame, _, model = by_terms
    record = model.summary().record["models"][0]
    varying, median = record["varying"], model.parameter_at(frame).median
    assert set(varying["shares"]) == {"se(x)", "linear(z)"}
    assert set(record["shares"]) == {"se(x)"}
    assert [varying["smallest"], varying["largest"]] == pytest.approx([median.min(), median.max()])
    assert "scale varies" in str(model.summary())


def test_files_of_estimators_hold_the_terms_of_a_parameter(by_terms, tmp_path):
    frame, _, model = by_terms
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    assert read.varying == model.varying
    np.testing.assert_array_equal(read.parameter_at(frame).median, model.parameter_at(frame).median)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"varying": {"scael": "se(x)"}}, "did you mean 'scale'"),
        ({"varying": {"df": "se(x)"}, "likelihood": "student-t"}, "scale may vary"),
        ({"varying": {"scale": "se(w)"}}, "it has 'z', 'x'"),
        ({"varying": {}}, "must name one parameter"),
        ({"varying": {"scale": "se(x)"}, "alpha": 0.1}, "omit alpha"),
        ({"varying": {"scale": "se(x)"}, "monotone": {"x": 1}}, "monotone"),
        ({"varying": {"scale": "se(x)"}, "method": "laplace"}, "use EP or QP"),
    ],
)
def test_settings_of_a_parameter_that_are_refused(settings, message, by_terms):
    frame, y, _ = by_terms
    with pytest.raises(ValueError, match=message):
        GaussianProcessRegressor("se(x)", **settings).fit(frame, y)


def test_a_stack_averages_what_each_model_predicts():
    varying, plain = fit(MODEL, X, Y, "ep"), fit(Model(MODEL.kernel.function, GAUSSIAN.base), X, Y, "ep")
    stacked, y = stack({"varying": varying, "plain": plain}), np.array([0.3])
    each = [np.exp(one.solution.predict_y([[2.0]]).log_prob(y)) for one in (varying, plain)]
    assert np.exp(stacked.predict_y([[2.0]]).log_prob(y)) == pytest.approx(stacked.weights @ np.array(each), rel=1e-9)


def test_estimators_do_not_take_it_by_name():
    with pytest.raises(ValueError, match="likelihood"):
        GaussianProcessRegressor(likelihood="varying").fit(X, Y)


def test_rows_told_later_are_rows_of_a_fit():
    some = infer(MODEL, X[:-2], Y[:-2], "ep", tol=1e-10)
    told, whole = active.tell(some, X[-2:], Y[-2:]), infer(MODEL, X, Y, "ep", tol=1e-10)
    assert told.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)


@pytest.fixture(scope="module")
def by_groups():
    """A scale that depends on a group, whose terms are those of f as well."""
    rng = np.random.default_rng(8)
    groups = rng.permutation(np.repeat(["a", "b", "c"], 16))
    y = (groups == "b") + np.select([groups == "a", groups == "b"], [0.2, 0.4], 1.6) * rng.standard_normal(48)
    frame = pd.DataFrame({"g": groups})
    return GaussianProcessRegressor("group(g)", varying={"scale": "group(g)"}, method="ep").fit(frame, y)


def test_a_level_that_was_not_there(by_groups):
    """Its parameter is that of a new group: between those known, and less certain."""
    with pytest.warns(NewLevelWarning, match="unseen in training .*z"):
        at = by_groups.parameter_at(pd.DataFrame({"g": ["a", "c", "z"]}))
    assert at.median[0] < at.median[2] < at.median[1]
    assert at.latent.variance[2] > 2.0 * at.latent.variance[:2].max()


def test_levels_are_those_of_f_and_contrasts_of_y_their_differences(by_groups):
    latent = by_groups.solution_.predict(np.arange(3.0)[:, None])
    found = by_groups.levels("g").columns
    np.testing.assert_allclose(found["estimate"], latent.mean, atol=1e-8)
    np.testing.assert_allclose(found["error"], np.sqrt(latent.variance), atol=1e-8)
    contrasts = by_groups.contrasts("g")
    np.testing.assert_allclose(contrasts["difference"], latent.mean[1:] - latent.mean[0], atol=1e-8)
    joint = by_groups.solution_.predict(np.arange(3.0)[:, None], full_cov=True).covariance
    variance = np.diagonal(joint)[1:] + joint[0, 0] - 2.0 * joint[0, 1:]
    np.testing.assert_allclose(contrasts["error"], np.sqrt(variance), atol=1e-8)
