"""Checks of a model: left-out distributions against refits, and what a wrong model shows."""

import numpy as np
import pytest
from scipy import stats

from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, Model, infer, kernels, likelihoods, plots
from quantprop.plots.checks import left_out

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 80))[:, None]
NOISY = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(80)
KERNEL = kernels.SquaredExponential(1.0, 1.0) + kernels.Constant(4.0)


def test_left_out_distributions_are_those_of_refits():
    """Under Gaussian noise exactly; a row of weight 2 is left out once."""
    model, weights = Model(KERNEL, likelihoods.Gaussian(0.3)), np.where(np.arange(80) == 5, 2.0, 1.0)
    out, kept = left_out(infer(model, X, NOISY, "ep", weights=weights))
    assert kept.all()
    for row in (0, 5, 40):
        fewer = np.where(np.arange(80) == row, weights - 1.0, weights)
        refit = infer(model, X[fewer > 0], NOISY[fewer > 0], "ep", weights=fewer[fewer > 0]).predict(X[[row]])
        assert out.latent.mean[row] == pytest.approx(refit.mean[0], abs=1e-8)
        assert out.latent.variance[row] == pytest.approx(refit.variance[0], rel=1e-8)


def test_panels_of_real_numbers():
    """Densities are in units of y; residuals of Gaussian noise are left-out errors over their deviations."""
    model = GaussianProcessRegressor("se(0) + linear(0)", method="ep", mean="constant", normalize_y=True)
    model.fit(X, 100.0 + 10.0 * NOISY)
    density, histogram, *terms = plots.check(model, draws=5)
    at, height = density.lines[-1].get_xydata().T
    assert stats.gaussian_kde(100.0 + 10.0 * NOISY)(at) == pytest.approx(height)
    assert [line.get_label() for line in density.lines].count("replicates") == 1
    assert len(density.lines) == 6
    assert histogram.get_xlabel() == "PIT"
    assert {ax.get_xlabel() for ax in terms} == {"se(0)", "linear(0)"}
    residuals = terms[0].lines[1].get_ydata()
    out, _ = left_out(model.solution_)
    expected = (model.y_train_ - out.mean) / np.sqrt(out.variance)
    np.testing.assert_allclose(residuals, expected, atol=1e-6)


def test_a_wrong_model_of_counts_shows():
    """Counts with twice the variance of a Poisson: residuals spread too far; negative binomial noise mends it."""
    y = RNG.negative_binomial(4, 4 / (4 + np.exp(1.5 + np.sin(X[:, 0]))))
    wide = {}
    for name, likelihood in {"poisson": likelihoods.Poisson(), "wide": likelihoods.NegativeBinomial(0.25)}.items():
        axes = plots.check(infer(Model(KERNEL, likelihood), X, y, "ep"), seed=1)
        wide[name] = np.std(axes[2].lines[1].get_ydata())
        assert axes[0].get_ylabel() == "√frequency"
    assert wide["poisson"] > 1.2
    assert 0.8 < wide["wide"] < 1.2


def test_two_classes_and_what_has_no_check():
    y = (NOISY > 0).astype(int)
    reliability, *_ = plots.check(GaussianProcessClassifier(method="ep").fit(X, y))
    assert reliability.get_xlabel().startswith("predicted probability")
    times = np.column_stack([np.exp(NOISY), np.exp(NOISY)])
    with pytest.raises(ValueError, match="check needs one y and one function"):
        plots.check(GaussianProcessRegressor(likelihood="weibull").fit(X, times))
    with pytest.raises(ValueError, match="axes must be one for each of 3 panels; got 1"):
        plots.check(infer(Model(KERNEL, likelihoods.Gaussian(0.3)), X, NOISY, "ep"), axes=[plots.canvas.axes_of(None)])
