"""Pictures of one site, of learning and of components; and the examples of all pictures."""

from __future__ import annotations

import doctest
import inspect

import numpy as np
import pytest
from plots.drawn import fitted, solution, step
from scipy.stats import norm

from quantprop import Model, infer, kernels, likelihoods, plots
from quantprop.plots.panels import Scale

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
    "class_regions",
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


@pytest.fixture(scope="module")
def additive():
    """A curve of each column, the third of two values, and a product of the first two."""
    rng = np.random.default_rng(4)
    x = np.column_stack([rng.normal(size=(40, 2)), np.arange(40) % 2])
    y = x[:, 0] + 2.0 * x[:, 0] * x[:, 1] + x[:, 2] + 0.1 * rng.normal(size=40)
    kernel = kernels.Additive(order=2, variance=[1.0, 2.0, 2.0]).measured(x)
    return infer(Model(kernel, likelihoods.Gaussian(0.1)), x, y, "ep")


@pytest.mark.campaign
def test_components_are_drawn_as_the_solution_has_them(additive):
    axes = {ax.get_title(loc="left"): ax for ax in plots.effects(additive)}
    shares = additive.sobol().shares
    assert list(axes) == [name for name, one in shares.items() if ":" not in name or one.share >= 0.01]
    assert next(iter(axes)) == "0:1"  # from the largest
    at, mean = axes["1"].lines[0].get_data()
    there = np.zeros((len(at), 3))
    there[:, 1] = at
    own = additive.components(there)["1"]
    np.testing.assert_allclose(mean, own.mean, atol=1e-12)
    band = axes["1"].collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((own.mean + 1.6448536 * np.sqrt(own.variance)).max(), abs=1e-6)
    assert len(axes["2"].lines[-1].get_xdata()) == 2  # a point for each of two values


def test_a_surface_is_drawn_by_its_sections_in_units_of_the_table(additive):
    scale = Scale({0: "age", 1: "dose"}, {}, {1: 100.0}, {1: 10.0})
    ax = plots.effect(additive, "0:1", scale=scale)
    quantiles = np.quantile(additive.X[:, 1], (0.05, 0.5, 0.95))
    assert ax.get_legend().get_title().get_text() == "dose"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"{100.0 + 10.0 * q:.3g}" for q in quantiles]
    at, mean = ax.lines[2].get_data()
    there = np.column_stack([at, np.full(len(at), quantiles[2]), np.zeros(len(at))])
    np.testing.assert_allclose(mean, additive.components(there)["0:1"].mean, atol=1e-12)
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
