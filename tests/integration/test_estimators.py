"""Estimators, tables and the command line with hyperparameters integrated."""

import json
import re

import numpy as np
import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Integrated,
    integrate,
    likelihoods,
    load,
    plots,
)
from quantprop.cli.commands import app

RNG = np.random.default_rng(5)
X = RNG.standard_normal((28, 1))
LABELS = np.where(np.sin(2 * X[:, 0]) + 0.5 * RNG.standard_normal(28) > 0, "yes", "no")
NEW = np.linspace(-2, 2, 4)[:, None]


@pytest.fixture(scope="module")
def classifier():
    return GaussianProcessClassifier(method="ep", hyperparameters="integrated").fit(X, LABELS)


def test_a_classifier_mixes_as_the_core_does(classifier):
    found = integrate(classifier.fitted_)
    assert isinstance(classifier.posterior_, Integrated)
    np.testing.assert_allclose(classifier.posterior_.log_evidence, found.log_evidence, atol=1e-8)
    expected = np.exp(found.predict_y(NEW).log_prob(1))
    np.testing.assert_allclose(classifier.predict_proba(NEW)[:, 1], expected, atol=1e-8)
    from_latent = found.weights @ ndtr(found.predict(NEW).means / np.sqrt(1.0 + found.predict(NEW).variances))
    np.testing.assert_allclose(expected, from_latent, atol=1e-9)
    np.testing.assert_allclose(classifier.latent_mean_and_variance(NEW)[1], found.predict(NEW).variance, rtol=1e-6)


def test_an_estimator_is_stored_with_its_average(classifier, tmp_path):
    classifier.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert isinstance(again, GaussianProcessClassifier)
    assert again.get_params()["hyperparameters"] == "integrated"
    np.testing.assert_array_equal(again.predict_proba(NEW), classifier.predict_proba(NEW))


def test_a_picture_of_a_hyperparameter(classifier):
    name = next(iter(classifier.posterior_.parameters))
    ax = plots.hyperparameter(classifier, name, point=1.0)
    x, density = ax.lines[0].get_data()
    marginal = classifier.posterior_.marginal(name)
    np.testing.assert_allclose(np.trapezoid(density, np.log(x)), 0.998, atol=1e-3)
    np.testing.assert_allclose(marginal.cdf(np.log(ax.lines[1].get_xdata()[0])), 0.5, atol=1e-8)
    with pytest.raises(ValueError, match="name must be one of kernel"):
        plots.hyperparameter(classifier, "no such name")
    with pytest.raises(TypeError, match="source must be what integrate returned"):
        plots.hyperparameter(GaussianProcessClassifier(), name)


@pytest.mark.campaign
def test_a_regressor_mixes_likelihoods_too():
    y = np.sin(2 * X[:, 0]) + 0.3 * RNG.standard_normal(28)
    model = GaussianProcessRegressor(likelihood=likelihoods.Gaussian(), method="ep", hyperparameters="integrated").fit(
        X, y
    )
    assert {name.split(".")[-1] for name in model.posterior_.parameters} == {"variance", "lengthscale", "scale"}
    lower, upper = model.predict_interval(NEW, 0.9).T
    np.testing.assert_allclose(model.predictive_cdf(NEW, upper) - model.predictive_cdf(NEW, lower), 0.9, atol=1e-6)
    draws = model.sample_y(NEW, 4000, random_state=1)
    np.testing.assert_allclose((draws < upper[:, None]).mean(axis=1), 0.95, atol=0.02)


def test_held_hyperparameters_are_not_integrated():
    model = GaussianProcessClassifier(optimizer=None, hyperparameters="integrated")
    with pytest.raises(ValueError, match="needs an optimizer"):
        model.fit(X, LABELS)


def test_the_command_line_prints_intervals(tmp_path):
    table, out = tmp_path / "data.csv", tmp_path / "model.safetensors"
    table.write_text("x,y\n" + "".join(f"{a},{b}\n" for a, b in zip(X[:, 0], LABELS, strict=True)))
    given = ["fit", str(table), "--target", "y", "--integrate", "--method", "ep", "--out", str(out), "--json"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    part = json.loads(done.stdout)["models"][0]
    assert part["integration"].startswith("converged by grid")
    told = CliRunner().invoke(app, ["explain", str(out)])
    assert told.exit_code == 0, told.output
    for name, one in part["intervals"].items():
        assert one["lower"] < one["median"] < one["upper"]
        row = re.search(rf"^  {re.escape(name)} +(\S+) +(\S+) +(\S+)  ", told.output.partition("posteriors")[2], re.M)
        assert row, told.output
        assert [float(number) for number in row.groups()] == pytest.approx(
            [one["median"], one["lower"], one["upper"]], rel=1e-3
        )
