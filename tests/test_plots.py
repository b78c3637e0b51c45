"""Pictures: the numbers that are drawn, against values computed here without the library."""

from __future__ import annotations

import doctest
import inspect

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from scipy.stats import binom, norm, poisson

from quantprop import EP, Dense, Model, infer, kernels, likelihoods, plots
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.predictive import Predictive
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.solution import Solution, Status
from quantprop.plots import canvas
from quantprop.plots.panels import Scale

KERNEL = kernels.SquaredExponential(variance=1.5, lengthscale=0.8)
SITES = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, 0.5])  # ν and τ
LINE = np.array([[0.0], [1.0], [2.5]])
PLANE = np.array([[0.0, 0.0], [1.0, -0.5], [2.0, 1.0]])


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def solution(likelihood, X=LINE, sites=SITES) -> Solution:
    """A Solution with given sites: what a picture shows depends on nothing else."""
    status = Status("converged", 1, 0.0, 1e-6, "parallel", 0)
    nothing = Normal(np.zeros(3), np.ones(3))
    return Solution(Model(KERNEL, likelihood), EP(), X, Natural(*sites), nothing, 0.0, np.zeros(3), status)


def latent(X, new, sites=SITES) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at new inputs: regression on ν/τ with noise variances 1/τ."""

    def k(a, b):
        return 1.5 * np.exp(-0.5 * np.sum((a[:, None] - b) ** 2, axis=2) / 0.8**2)

    gain = np.linalg.solve(k(X, X) + np.diag(1.0 / sites[1]), k(X, new)).T
    return gain @ (sites[0] / sites[1]), 1.5 - np.sum(gain.T * k(X, new), axis=0)


def predictive(likelihood, mean, variance=1e-12, trials=1.0) -> Predictive:
    mean = np.asarray(mean, dtype=float)
    return Predictive(likelihood, Normal(mean, np.full_like(mean, variance)), np.ones_like(mean), trials + 0.0 * mean)


def heights(ax) -> np.ndarray:
    return np.array([bar.get_height() for bar in ax.containers[0]])


def band(collection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, lower and upper ends of a fill_between (its polygon runs along the lower ends and back along the upper)."""
    corners = collection.get_paths()[0].vertices
    n = (len(corners) - 3) // 2
    return corners[1 : n + 1, 0], corners[1 : n + 1, 1], corners[n + 2 : 2 * n + 2, 1][::-1]


# --- posteriors ------------------------------------------------------------------------------------------------------


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


# --- calibration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", [lambda y: y, lambda y: 2 * y - 1, lambda y: y > 0])
def test_reliability_by_hand(coding):
    p = np.array([0.05, 0.15, 0.3, 0.6, 0.7, 1.0])
    ax = plots.reliability(p, coding(np.array([0, 1, 0, 1, 1, 1])), bins=4)
    points = ax.containers[0].lines[0].get_xydata()  # [0, ¼): 0.05, 0.15; [¼, ½): 0.3; [½, ¾): 0.6, 0.7; [¾, 1]: 1
    np.testing.assert_allclose(points, [[0.1, 0.5], [0.3, 0.0], [0.65, 1.0], [1.0, 1.0]])
    assert [text.get_text() for text in ax.texts] == ["2", "1", "2", "1"]
    bars = ax.containers[0].lines[2][0].get_segments()
    for (_, share), n, bar in zip(points, (2, 1, 2, 1), bars, strict=True):
        for end in bar[:, 1]:  # Wilson: the rates p with |share − p| = z √(p(1 − p)/n)
            at_edge = end in (0.0, 1.0)
            assert at_edge or abs(share - end) == pytest.approx(norm.ppf(0.95) * np.sqrt(end * (1.0 - end) / n))


@pytest.mark.parametrize(
    ("probability", "outcome", "more", "message"),
    [
        ([0.5, 1.5], [0, 1], {}, r"lie in \[0, 1\]; got 1.5"),
        ([0.5], [0, 1], {}, "the same length, at least 1; got 1 and 2"),
        ([0.5], [2], {}, "0 and 1, or −1 and 1"),
        ([0.5], [1], {"bins": 0}, "at least 1; got 0"),
        ([np.nan], [1], {}, "NaN"),
    ],
)
def test_reliability_refuses(probability, outcome, more, message):
    with pytest.raises(ValueError, match=message):
        plots.reliability(probability, outcome, **more)


def test_pit_of_numbers_is_their_histogram():
    u = np.array([0.0, 0.1, 0.25, 0.3, 0.74, 0.75, 1.0, 1.0])
    ax = plots.pit(u, bins=4)
    np.testing.assert_allclose(heights(ax), [1.0, 1.0, 0.0 + 0.5, 1.5])
    edges = [bar.get_x() for bar in ax.containers[0]]
    np.testing.assert_allclose(edges, [0.0, 0.25, 0.5, 0.75])
    ends = binom.ppf([0.05, 0.95], 8, 0.25) / 8 * 4
    box = ax.patches[-1].get_bbox()
    np.testing.assert_allclose([box.y0, box.y1], ends)


def test_pit_of_a_continuous_predictive():
    y = np.array([-0.4, 0.1, 2.0])
    ax = plots.pit(predictive(likelihoods.Gaussian(0.5), [0.0, 0.3, 1.0], 0.75), y, bins=5)
    expected = np.histogram(norm.cdf(y, [0.0, 0.3, 1.0], 1.0), np.linspace(0, 1, 6))[0] * 5 / 3
    np.testing.assert_allclose(heights(ax), expected)


def test_pit_of_counts_by_hand():
    # One count with P(Y < y) = 0.2 and P(Y ≤ y) = 0.6: density 1/0.4 between, so of the halves 0.3/0.4 and 0.1/0.4.
    ax = plots.pit([[0.2, 0.6]], bins=2)
    np.testing.assert_allclose(heights(ax), [2 * 0.75, 2 * 0.25])
    # A second one at [0, 1] is flat; a third too improbable to have a width sits at its place, here the end.
    ax = plots.pit([[0.2, 0.6], [0.0, 1.0], [1.0, 1.0]], bins=2)
    np.testing.assert_allclose(heights(ax), np.array([1.5 + 1.0 + 0.0, 0.5 + 1.0 + 2.0]) / 3)


def test_pit_of_poisson_counts():
    """Czado, Gneiting and Held (2009), section 2.1, written as a loop."""
    rates, y = np.array([0.7, 2.0, 5.0]), np.array([0, 3, 4])
    edges, mean = np.linspace(0.0, 1.0, 6), np.zeros(6)
    for rate, count in zip(rates, y, strict=True):
        below, at = poisson.cdf(count - 1, rate), poisson.cdf(count, rate)
        mean += [0.0 if u <= below else 1.0 if u >= at else (u - below) / (at - below) for u in edges]
    ax = plots.pit(predictive(likelihoods.Poisson(), np.log(rates)), y, bins=5)
    np.testing.assert_allclose(heights(ax), 5 * np.diff(mean / 3), atol=1e-6)
    assert heights(ax).sum() == pytest.approx(5.0)


def test_pit_of_two_classes_takes_either_coding():
    two = predictive(likelihoods.Probit(), [0.0, 1.0], 1.0)
    low = 1.0 - norm.cdf(1.0 / np.sqrt(2.0))  # P(y = −1) of the second
    expected = heights(plots.pit([[0.0, 0.5], [low, 1.0]], bins=4))
    for y in ([-1, 1], [0, 1]):
        np.testing.assert_allclose(heights(plots.pit(two, y, bins=4)), expected)


@pytest.mark.parametrize(
    ("given", "y", "message"),
    [
        ([0.5, 1.1], None, r"lie in \[0, 1\]"),
        ([[0.5, 0.4]], None, "not above"),
        ([[0.1, 0.2, 0.3]], None, r"shape \(n,\), or \(n, 2\)"),
        (predictive(likelihoods.Gaussian(), [0.0]), None, "y is needed"),
        (predictive(likelihoods.Censored(), [0.0]), [0.0], "no single y"),
        (predictive(likelihoods.Poisson(), [0.0]), [0.5], "outside the support"),
    ],
)
def test_pit_refuses(given, y, message):
    with pytest.raises(ValueError, match=message):
        plots.pit(given, y)


def test_rootogram_hangs_from_the_expected_counts():
    rates, y = np.array([0.7, 2.0, 5.0, 2.0]), np.array([0, 3, 3, 1])
    ax = plots.rootogram(predictive(likelihoods.Poisson(), np.log(rates)), y)
    expected = poisson.pmf(np.arange(4)[:, None], rates).sum(axis=1)
    observed = np.array([1.0, 1.0, 0.0, 2.0])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([range(4), np.sqrt(expected)]), rtol=1e-6)
    np.testing.assert_allclose(heights(ax), np.sqrt(observed))
    feet = [bar.get_y() for bar in ax.containers[0]]
    np.testing.assert_allclose(feet, np.sqrt(expected) - np.sqrt(observed), atol=1e-6)
    assert ax.get_xlabel() == f"count (beyond 3: {4 - expected.sum():.1f} expected, 0 observed)"


def test_rootogram_stops_where_it_is_told():
    ax = plots.rootogram(predictive(likelihoods.Poisson(), np.zeros(4)), [0, 3, 3, 1], most=1)
    np.testing.assert_allclose(heights(ax), [1.0, 1.0])
    assert ax.get_xlabel().endswith("expected, 2 observed)")


def test_rootogram_refuses():
    with pytest.raises(ValueError, match="gaussian likelihood has none"):
        plots.rootogram(predictive(likelihoods.Gaussian(), [0.0]), [0.0])
    with pytest.raises(ValueError, match="got 5000: pass most="):
        plots.rootogram(predictive(likelihoods.Poisson(), [0.0]), [5000])
    with pytest.raises(TypeError, match=r"of predict_y\); got list"):
        plots.rootogram([1.0], [1.0])  # type: ignore[arg-type]


# --- one site --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cavity", [(-1.0, 4.0), (0.5, 900.0)])
def test_site_draws_densities(cavity):
    ax = plots.site(likelihoods.Probit(), 1, cavity)
    (f, likelihood), *densities = [line.get_data() for line in ax.lines]
    for x, density in densities:
        np.testing.assert_array_equal(x, f)
        assert np.trapezoid(density, f) == pytest.approx(1.0, abs=1e-4)
    prior, tilted, kl, w2 = (density for _, density in densities)
    np.testing.assert_allclose(likelihood / likelihood.max(), norm.cdf(f) / norm.cdf(f).max(), rtol=1e-8, atol=1e-300)
    np.testing.assert_allclose(prior, norm.pdf(f, cavity[0], np.sqrt(cavity[1])), rtol=1e-10)
    unscaled = norm.cdf(f) * prior
    np.testing.assert_allclose(tilted, unscaled / norm.cdf(cavity[0] / np.sqrt(1.0 + cavity[1])), rtol=1e-8, atol=1e-99)
    mean, variance, narrow = _moments(f, tilted), _moments(f, kl), _moments(f, w2)
    np.testing.assert_allclose(variance, mean, rtol=2e-3)  # KL matches both moments
    assert narrow[0] == pytest.approx(mean[0], rel=1e-3)  # W₂ matches the mean ...
    quantile = np.interp(_middles(2000), np.cumsum(tilted * np.gradient(f)), f)
    sd = np.mean(quantile * norm.ppf(_middles(2000)))  # ... and has σ* = ∫ F⁻¹(u) Φ⁻¹(u) du, below the KL's
    assert narrow[1] == pytest.approx(sd**2, rel=0.01)
    assert narrow[1] < variance[1]


def _middles(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n


def _moments(f: np.ndarray, density: np.ndarray) -> tuple[float, float]:
    mean = np.trapezoid(f * density, f)
    return mean, np.trapezoid((f - mean) ** 2 * density, f)


def test_site_takes_one_datum():
    with pytest.raises(ValueError, match=r"one observation with one cavity; got shape \(2,\)"):
        plots.site(likelihoods.Probit(), [1, -1], (0.0, 1.0))


def test_variance_ratio_of_wide_cavities():
    """Φ(f) is a step to them: on it, the ratio is that of a half-normal at every width; far from it nothing happens."""
    ax = plots.variance_ratio(likelihoods.Probit(), 1, mean=(0.0, 1.6e5), sd=(5e3, 2e4), points=3)
    mesh = ax.collections[0]
    ratio = np.asarray(mesh.get_array())
    u = _middles(200_000)
    half = np.mean(norm.ppf(0.5 + 0.5 * u) * norm.ppf(u)) ** 2 / (1.0 - 2.0 / np.pi)
    np.testing.assert_allclose(ratio[:, 0], half, rtol=1e-3)
    np.testing.assert_allclose(ratio[0, 1:], 1.0, atol=1e-12)  # 16 and 32 standard deviations away
    assert (ratio <= 1.0).all()
    assert mesh.get_clim() == (ratio.min(), 1.0)
    assert ax.get_yscale() == "log"
    np.testing.assert_allclose(np.sort(ax.get_xlim()), [-4e4, 2e5])  # cells centred on 0, 8e4, 1.6e5


def test_variance_ratio_of_gaussian_noise_is_one():
    ax = plots.variance_ratio(likelihoods.Gaussian(0.5), 1.0, points=3)
    np.testing.assert_allclose(ax.collections[0].get_array(), 1.0, atol=1e-9)
    assert ax.collections[0].get_clim() == (0.99, 1.0)


@pytest.mark.parametrize("bad", [{"mean": (1.0, 1.0)}, {"sd": (0.0, 1.0)}, {"points": 1}])
def test_variance_ratio_refuses(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        plots.variance_ratio(likelihoods.Probit(), 1, **bad)


# --- learning --------------------------------------------------------------------------------------------------------


def step(restart: int, value: float, gradient: float = 1.0, reason: str = "converged") -> Step:
    return Step(restart, np.zeros(1), value, gradient, reason, 3, 0.1)


def fitted(steps: list[Step], found: Solution | None = None) -> Fitted:
    found = solution(likelihoods.Probit()) if found is None else found
    ending = Ending("converged", len(steps), 0, 0.0, ())
    return Fitted(found.model, found, "loo", 0.0, np.zeros(1), tuple(steps), ending)


def test_trace_draws_every_evaluation():
    steps = [step(0, -9.0, 4.0), step(0, np.nan, np.nan, "stalled"), step(0, -7.0, 0.0), step(1, -8.0, 1e-6)]
    ax = plots.trace(fitted(steps))
    value, failed, restart = ax.lines
    np.testing.assert_array_equal(value.get_xydata(), [[1, -9.0], [2, np.nan], [3, -7.0], [4, -8.0]])
    np.testing.assert_array_equal(failed.get_xdata(), [2])
    np.testing.assert_array_equal(restart.get_xdata(), [3.5, 3.5])
    right = next(other for other in ax.figure.axes if other is not ax)
    np.testing.assert_array_equal(right.lines[0].get_ydata(), [4.0, np.nan, np.nan, 1e-6])
    assert (ax.get_ylabel(), right.get_ylabel(), right.get_yscale()) == ("loo", "gradient", "log")


def test_trace_without_failures_fits_its_figure():
    ax = plots.trace(fitted([step(0, -9.0), step(0, -7.0)]))
    ax.figure.canvas.draw()
    assert len(ax.lines) == 1
    assert ax.get_window_extent().width > 0.6 * ax.figure.bbox.width


def test_trace_needs_a_fit():
    with pytest.raises(TypeError, match=r"what fit returned; got Solution"):
        plots.trace(solution(likelihoods.Probit()))


# --- the examples ----------------------------------------------------------------------------------------------------


FUNCTIONS = {name: thing for name, thing in vars(plots).items() if inspect.isfunction(thing)}
EXAMPLES = {
    name: test
    for name, function in FUNCTIONS.items()
    for test in doctest.DocTestFinder().find(function, name)
    if test.examples
}
SLOW = {
    "posterior",
    "class_probability",
    "decomposition",
    "effect",
    "effects",
    "forecast",
    "hyperparameter",
    "trace",
    "variances",
}  # they infer: most of the time is compilation


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name in SLOW)) for name in EXAMPLES]
)
def test_example(name):
    assert doctest.DocTestRunner().run(EXAMPLES[name]).failed == 0


def test_every_function_has_an_example():
    assert set(EXAMPLES) == set(FUNCTIONS)


# --- components of an additive kernel --------------------------------------------------------------------------------


def additive_solution():
    """A curve of each column, the third of two values, and a product of the first two."""
    rng = np.random.default_rng(4)
    x = np.column_stack([rng.normal(size=(40, 2)), np.arange(40) % 2])
    y = x[:, 0] + 2.0 * x[:, 0] * x[:, 1] + x[:, 2] + 0.1 * rng.normal(size=40)
    kernel = kernels.Additive(order=2, variance=[1.0, 2.0, 2.0]).measured(x)
    return infer(Model(kernel, likelihoods.Gaussian(0.1)), x, y, "ep")


def test_components_are_drawn_as_the_solution_has_them():
    solution = additive_solution()
    axes = {ax.get_title(loc="left"): ax for ax in plots.effects(solution)}
    shares = solution.sobol().shares
    assert list(axes) == [name for name, one in shares.items() if ":" not in name or one.share >= 0.01]
    assert next(iter(axes)) == "0:1"  # from the largest
    at, mean = axes["1"].lines[0].get_data()
    there = np.zeros((len(at), 3))
    there[:, 1] = at
    own = solution.components(there)["1"]
    np.testing.assert_allclose(mean, own.mean, atol=1e-12)
    band = axes["1"].collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((own.mean + 1.6448536 * np.sqrt(own.variance)).max(), abs=1e-6)
    assert len(axes["2"].lines[-1].get_xdata()) == 2  # a point for each of two values


def test_a_surface_is_drawn_by_its_sections_in_units_of_the_table():
    solution, scale = additive_solution(), Scale({0: "age", 1: "dose"}, {}, {1: 100.0}, {1: 10.0})
    ax = plots.effect(solution, "0:1", scale=scale)
    quantiles = np.quantile(solution.X[:, 1], (0.05, 0.5, 0.95))
    assert ax.get_legend().get_title().get_text() == "dose"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"{100.0 + 10.0 * q:.3g}" for q in quantiles]
    at, mean = ax.lines[2].get_data()
    there = np.column_stack([at, np.full(len(at), quantiles[2]), np.zeros(len(at))])
    np.testing.assert_allclose(mean, solution.components(there)["0:1"].mean, atol=1e-12)
    assert Scale(centre={0: 3.0}).label(0, -3.0 + 1e-15) == "0"


def test_levels_of_one_variable_are_drawn_as_points_and_curves():
    rng = np.random.default_rng(5)
    word, age = rng.integers(0, 3, 40), rng.normal(size=40)
    x = np.column_stack([age, (word[:, None] == [0, 1, 2]) * 2.0 - 1.0])
    y = np.array([0.0, 2.0, 1.0])[word] + np.where(word == 1, 2.0 * age, 0.0)
    solution = infer(Model(kernels.Additive(order=2).measured(x), likelihoods.Gaussian(0.1)), x, y, "ep")
    scale = Scale({0: "age", 1: "colour=red", 2: "colour=green", 3: "colour=blue"})
    ax = plots.effect(solution, "1+2+3", scale=scale)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["red", "blue", "green"]  # by their effect
    rows = np.column_stack([np.zeros(3), np.eye(3) * 2.0 - 1.0])[[0, 2, 1]]
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), solution.components(rows)["1+2+3"].mean, atol=1e-12)
    assert ax.get_xlabel() == "colour (3 levels)"
    ax = plots.effect(solution, "0:1+2+3", scale=scale)
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"red", "green", "blue"}
    assert ax.get_legend().get_title().get_text() == "colour"
    green = next(line for line in ax.lines if line.get_label() == "green")
    rows = np.column_stack([green.get_xdata(), np.tile([-1.0, 1.0, -1.0], (len(green.get_xdata()), 1))])
    np.testing.assert_allclose(green.get_ydata(), solution.components(rows)["0:1+2+3"].mean, atol=1e-12)
