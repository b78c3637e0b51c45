"""Pictures of posteriors: the numbers that are drawn, against values computed here without the library."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from plots.drawn import LINE, PLANE, SITES, band, fitted, latent, predictive, solution, step
from scipy.stats import norm

from quantprop import Dense, Model, infer, kernels, likelihoods, plots
from quantprop.plots import canvas
from quantprop.plots.panels import Scale


@pytest.mark.parametrize(("of", "noise"), [("f", 0.0), ("y", 0.3)])
def test_posterior_draws_mean_and_intervals(of, noise):
    new, y = np.linspace(-1.0, 3.0, 7), np.array([0.2, -0.4, 1.0])
    ax = plots.posterior(solution(likelihoods.Gaussian(0.3)), LINE, y, of, Xnew=new)
    mean, variance = latent(LINE, new[:, None])
    sd = np.sqrt(variance + noise**2)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([new, mean]), rtol=1e-10)
    for drawn, z in zip(ax.collections, (1.6448536269514722, 0.6744897501960817), strict=True):
        x, lower, upper = band(drawn)
        np.testing.assert_allclose(x, new)
        np.testing.assert_allclose(lower, mean - z * sd, rtol=1e-8)
        np.testing.assert_allclose(upper, mean + z * sd, rtol=1e-8)
    (data,) = ax.lines[1:]
    np.testing.assert_array_equal(data.get_xydata(), np.column_stack([LINE[:, 0], y if of == "y" else np.zeros(3)]))
    assert data.get_transform() == (ax.transData if of == "y" else ax.get_xaxis_transform())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", of)


def test_posterior_covers_the_data_and_draws_on_the_axes_it_is_given():
    mine = plt.subplots()[1]
    ax = plots.posterior(solution(likelihoods.Gaussian()), LINE, np.zeros(3), ax=mine)
    assert ax is mine
    x = ax.lines[0].get_xdata()
    assert len(x) == 200
    np.testing.assert_allclose(x[[0, -1]], [-0.125, 2.625])


def test_forecast_draws_a_fan_and_the_data():
    times, mean = np.array([3.0, 1.0, 2.0]), np.array([0.3, 0.1, 0.7])
    found = predictive(likelihoods.Gaussian(0.5), mean, 0.75)
    ax = plots.forecast(times, found, [0.0, 1.0], [0.2, 0.4], levels=(0.5, 0.9))
    for drawn, z in zip(ax.collections, (1.6448536269514722, 0.6744897501960817), strict=True):
        x, lower, upper = band(drawn)
        np.testing.assert_allclose(x, [1.0, 2.0, 3.0])
        np.testing.assert_allclose(lower, mean[[1, 2, 0]] - z, rtol=1e-8)
        np.testing.assert_allclose(upper, mean[[1, 2, 0]] + z, rtol=1e-8)
    median, data = ax.lines
    np.testing.assert_allclose(median.get_xydata(), [[1.0, 0.1], [2.0, 0.7], [3.0, 0.3]], rtol=1e-8)
    np.testing.assert_array_equal(data.get_xydata(), [[0.0, 0.2], [1.0, 0.4]])
    for bad, message in (({"times": times[:2]}, "times must have one entry"), ({"levels": (1.0,)}, "levels must be")):
        with pytest.raises(ValueError, match=message):
            plots.forecast(**({"times": times, "predictive": found} | bad))


def test_decomposition_draws_every_term_with_its_bands_and_the_rest():
    t = np.r_[np.arange(30.0), 12.5]
    y, counts = np.sin(t), (t != 4.0).astype(float)
    kernel = kernels.Matern32(1.0, 9.0).on(0) + kernels.Periodic(0.5, 3.0, 7.0).on(0) + kernels.Constant(0.3)
    model = Model(kernel, likelihoods.Gaussian(0.1), 0.25, Dense())
    found = infer(model, np.column_stack([t, 0.0 * t]), y, "ep", weights=counts)
    axes = plots.decomposition(found)
    assert [ax.get_title(loc="left") for ax in axes] == ["all terms", "matern32(0)", "periodic(0, period=7)", "rest"]
    whole, trend, season, rest = axes
    x = trend.lines[0].get_xdata()
    assert np.isin(t, x).all()
    terms = found.terms(np.column_stack([x, 0.0 * x]))
    for ax, name in ((trend, "matern32(0)"), (season, "periodic(0, period=7)")):
        np.testing.assert_allclose(ax.lines[0].get_ydata(), terms[name].mean, atol=1e-12)
        at, lower, upper = band(ax.collections[0])
        np.testing.assert_allclose(at, x)
        half = 1.6448536269514722 * np.sqrt(terms[name].variance)
        np.testing.assert_allclose(upper - lower, 2.0 * half, rtol=1e-8)
    sums = sum(terms[name].mean for name in ("matern32(0)", "periodic(0, period=7)", "constant()"))
    np.testing.assert_allclose(whole.lines[0].get_ydata(), sums, atol=1e-10)
    np.testing.assert_allclose(whole.lines[1].get_ydata(), np.where(counts > 0, y - 0.25, np.nan), atol=1e-12)
    np.testing.assert_allclose(rest.lines[0].get_ydata()[counts > 0], (y - found.marginals.mean)[counts > 0])
    season = plots.effect(found, "periodic(0, period=7)")
    np.testing.assert_allclose(season.lines[0].get_xdata()[[0, -1]], [0.0, 7.0])
    of_two = infer(Model(kernel + kernels.Linear().on(1), likelihoods.Gaussian(0.1)), found.X, y, "ep")
    with pytest.raises(ValueError, match="all depend on one column of X"):
        plots.decomposition(of_two)


def test_decomposition_of_dates_shows_the_last_periods_of_a_fast_season():
    t = np.arange(200.0)
    kernel = kernels.Matern32(1.0, 90.0).on(0) + kernels.Periodic(0.5, 3.0, 7.0).on(0)
    found = infer(Model(kernel, likelihoods.Gaussian(0.1), 0.0, Dense()), t[:, None], np.sin(t), "ep")
    scale = Scale({0: "date"}, centre={0: 20454.0}, dates=(0,))  # 2026-01-01
    _, trend, season, rest = plots.decomposition(found, scale=scale)
    assert season.get_xlim() == (20454.0 + 199.0 - 21.0, 20454.0 + 199.0)
    assert trend.get_xlim()[0] < 20454.0
    rest.figure.canvas.draw()
    assert [label.get_text() for label in rest.get_xticklabels()][:3] == ["2026", "Feb", "Mar"]


def test_posterior_draws_censored_rows():
    y = np.array([[0.5, 0.5], [1.0, np.inf], [-np.inf, -1.0]])
    ax = plots.posterior(solution(likelihoods.Censored(0.2)), LINE, y, Xnew=LINE)
    drawn = {line.get_marker(): line.get_xydata().tolist() for line in ax.lines[1:]}
    assert drawn == {".": [[0.0, 0.5]], "^": [[1.0, 1.0]], "v": [[2.5, -1.0]]}


def test_class_probability_is_drawn_over_the_plane():
    ax = plots.class_probability(solution(likelihoods.Probit(), PLANE), PLANE, [0, 1, 1], points=5)
    mesh = next(c for c in ax.collections if isinstance(c, QuadMesh))
    at = mesh.get_coordinates().reshape(-1, 2)
    np.testing.assert_allclose([at.min(axis=0), at.max(axis=0)], [[-0.1, -0.575], [2.1, 1.075]])
    mean, variance = latent(PLANE, at)
    np.testing.assert_allclose(mesh.get_array().ravel(), norm.cdf(mean / np.sqrt(1.0 + variance)), rtol=1e-9)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), PLANE[1:])
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), PLANE[:1])


def test_class_probability_takes_the_labels_of_an_estimator():
    class Estimator:
        solution_ = solution(likelihoods.Probit(), PLANE)
        classes_ = np.array(["no", "yes"])

    ax = plots.class_probability(Estimator(), PLANE, ["yes", "no", "yes"], points=5)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), PLANE[[0, 2]])


def test_variances_are_drawn_against_each_other():
    new, tighter = np.array([[0.5], [4.0]]), (SITES[0], 2.0 * SITES[1])
    loose, tight = solution(likelihoods.Probit()), solution(likelihoods.Probit(), sites=tighter)
    ax = plots.variances(loose, tight, new)
    expected = np.column_stack([latent(LINE, new)[1], latent(LINE, new, tighter)[1]])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), expected, rtol=1e-10)
    ends = expected.min(), expected.max()
    np.testing.assert_allclose(ax.lines[1].get_xydata(), [[ends[0]] * 2, [ends[1]] * 2])
    ratio = np.median(expected[:, 1] / expected[:, 0])
    assert ax.lines[0].get_label() == f"QP smaller at 2 of 2, median ratio {ratio:.3g}"


def test_a_source_is_a_solution_or_carries_one():
    found = solution(likelihoods.Probit())
    assert canvas.solution_of(found) is found
    assert canvas.solution_of(fitted([step(0, 1.0)], found)) is found
    with pytest.raises(TypeError, match=r"source must be a Solution.*got list"):
        canvas.solution_of([1.0])


@pytest.mark.parametrize(
    ("function", "X", "y", "message"),
    [
        (plots.posterior, PLANE, np.zeros(3), r"posterior plots over 1 column\(s\) of X; X has 2"),
        (plots.posterior, LINE, np.zeros(2), r"one entry per row of X, 3; got shape \(2,\)"),
        (plots.class_probability, LINE, np.ones(3), "X has 1"),
        (plots.class_probability, PLANE, np.ones(3), "the model's X has 1"),
    ],
)
def test_data_that_do_not_fit_the_picture(function, X, y, message):
    with pytest.raises(ValueError, match=message):
        function(solution(likelihoods.Probit()), X, y)


def test_class_probability_needs_two_classes():
    with pytest.raises(ValueError, match="two classes; got gaussian"):
        plots.class_probability(solution(likelihoods.Gaussian(), PLANE), PLANE, np.ones(3))


def test_posterior_of_something_else():
    with pytest.raises(ValueError, match="one of y, f; got 'g'"):
        plots.posterior(solution(likelihoods.Gaussian()), LINE, np.zeros(3), "g")
