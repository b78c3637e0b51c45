"""`integrate`: against brute-force quadrature over θ, and consistent with itself."""

import numpy as np
import pytest
from integration.quadrature import truth
from scipy.stats import norm

from quantprop import (
    Inducing,
    Integrated,
    LogNormal,
    Markov,
    Model,
    Parameter,
    fit,
    infer,
    integrate,
    kernels,
    likelihoods,
    load,
)
from quantprop.learning.integration import integrating
from quantprop.learning.integration.surface import Surface

NOISE = 0.3
RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(-3, 3, 18))
Y = np.sin(1.5 * X) + NOISE * RNG.standard_normal(18)
X_NEW, Y_NEW = np.array([-2.0, 0.3, 4.0]), np.array([0.2, 0.5, -1.0])
PRIOR = {"variance": LogNormal(1.0, 1.0), "lengthscale": LogNormal(1.5, 0.7), "scale": LogNormal(0.5, 0.7)}


def normal(theta, names):
    """The log density of the priors, in θ."""
    centre = np.log([PRIOR[name].median for name in names])
    deviation = np.array([PRIOR[name].deviation for name in names])
    return (-0.5 * ((theta - centre) / deviation) ** 2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)).sum(1)


def model(noise):
    kernel = kernels.SquaredExponential(*(Parameter(1.0, prior=PRIOR[name]) for name in ("variance", "lengthscale")))
    return Model(kernel, likelihoods.Gaussian(noise))


@pytest.fixture(scope="module")
def fitted():
    return fit(model(Parameter(NOISE, fixed=True)), X[:, None], Y, "ep")


@pytest.fixture(scope="module")
def two(fitted):
    """Two hyperparameters, by a grid."""
    return integrate(fitted)


@pytest.fixture(scope="module")
def two_exactly():
    axes = (np.linspace(-5, 6, 67), np.linspace(-2.5, 3, 67))
    return truth(X, Y, X_NEW, Y_NEW, axes, lambda t: normal(t, ("variance", "lengthscale")), NOISE)


def test_two_hyperparameters_equal_quadrature(two, two_exactly):
    assert two.status.reason == "converged"
    assert two.status.scheme == "grid"
    mean, sd = two.weights @ two.theta, np.sqrt(two.weights @ (two.theta - two.weights @ two.theta) ** 2)
    np.testing.assert_allclose(mean, two_exactly.mean, atol=0.01 * two_exactly.sd.min())
    np.testing.assert_allclose(sd, two_exactly.sd, rtol=0.01)
    np.testing.assert_allclose(two.log_evidence, two_exactly.log_evidence, atol=2e-3)
    np.testing.assert_allclose(two.predict_y(X_NEW[:, None]).log_prob(Y_NEW), two_exactly.log_density, atol=1e-3)


def test_marginals_are_smooth_and_near_the_exact_ones(two, two_exactly):
    """Smoothing by half a step of the grid costs less than 0.006 of a probability; Silverman's width cost 0.01."""
    for i, name in enumerate(two.parameters):
        at = two_exactly.mean[i] + two_exactly.sd[i] * np.linspace(-3.0, 3.0, 61)
        marginal = two.marginal(name)
        found = np.array([marginal.cdf(value)[0] for value in at])
        np.testing.assert_allclose(found, two_exactly.cdf(i, at), atol=0.006)


@pytest.mark.parametrize(
    "bounds",
    [
        {"lengthscale": (0.05, 0.9)},
        *(
            pytest.param(bounds, marks=pytest.mark.campaign)
            for bounds in ({"lengthscale": (1.1, 20.0)}, {"variance": (0.6, 1.4)})
        ),
        {"variance": (0.01, 0.8), "lengthscale": (0.9, 1.2)},
    ],
    ids=str,
)
def test_bounds_that_cut_the_posterior_off(bounds):
    """Means, deviations, evidence and forecasts are those inside the bounds, and the status names the bounds."""
    names = ("variance", "lengthscale")
    ends = {name: bounds.get(name, (1e-5, 1e5)) for name in names}
    start = {name: Parameter(np.sqrt(np.prod(ends[name])), ends[name], prior=PRIOR[name]) for name in names}
    likelihood = likelihoods.Gaussian(Parameter(NOISE, fixed=True))
    found = integrate(fit(Model(kernels.SquaredExponential(**start), likelihood), X[:, None], Y, "ep"))
    wide = {"variance": (-5.0, 6.0), "lengthscale": (-2.5, 3.0)}
    axes = tuple(_midpoints(*(np.log(bounds[name]) if name in bounds else wide[name])) for name in names)
    inside = np.sum([np.log(np.ptp(norm.cdf(np.log(ends[name]), np.log(PRIOR[name].median), PRIOR[name].deviation)))
                     for name in names])  # fmt: skip
    exactly = truth(X, Y, X_NEW, Y_NEW, axes, lambda t: normal(t, names) - inside, NOISE)
    assert found.converged
    assert set(found.status.at_bounds) == {f"kernel.{name}" for name in bounds}
    _close(found, exactly, mean=0.02, sd=0.02, density=1e-3, evidence=5e-3)


def _midpoints(lower, upper, count=80):
    """Of as many cells of one size, so that their sum is an integral that ends at the bounds."""
    width = (upper - lower) / count
    return lower + width * (0.5 + np.arange(count))


def test_intervals_hold_their_probability(two):
    """The smooth marginal has the moments of the components, and intervals are its quantiles."""
    for i, (name, found) in enumerate(two.parameters.items()):
        marginal = two.marginal(name)
        points = two.theta[:, i]
        np.testing.assert_allclose(marginal.mean[0], two.weights @ points, rtol=1e-10)
        np.testing.assert_allclose(marginal.variance[0], two.weights @ (points - two.weights @ points) ** 2)
        held = marginal.cdf(np.log(found.upper))[0] - marginal.cdf(np.log(found.lower))[0]
        np.testing.assert_allclose(held, 0.95, atol=1e-8)
        assert found.lower < found.median < found.upper
        assert found.prior == repr(PRIOR[name.split(".")[-1]])


def test_mixtures_are_consistent(two):
    """Quantiles invert cdfs, moments are those of draws, and f's mixture is y's without the noise."""
    y, f = two.predict_y(X_NEW[:, None]), two.predict(X_NEW[:, None])
    q = np.array([0.01, 0.3, 0.5, 0.975])
    for mixture in (y, f):
        for level, at in zip(q, mixture.quantile(q), strict=True):
            np.testing.assert_allclose(mixture.cdf(at), level, atol=1e-8)
        draws = mixture.sample(40_000, seed=1)
        np.testing.assert_allclose(draws.mean(0), mixture.mean, atol=5 * np.sqrt(mixture.variance.max() / 40_000))
        np.testing.assert_allclose(draws.var(0), mixture.variance, rtol=0.1)
        step = 1e-4
        slope = (mixture.cdf(0.2 + step) - mixture.cdf(0.2 - step)) / (2 * step)
        np.testing.assert_allclose(np.exp(mixture.log_prob(0.2)), slope, rtol=1e-5)
    np.testing.assert_allclose(y.variance, f.variance + NOISE**2)
    joint = two.predict(X_NEW[:, None], full_cov=True)
    np.testing.assert_allclose(np.diagonal(joint.covariance), f.variance, rtol=1e-9)
    draws = two.sample(X_NEW[:, None], 20_000, seed=2)
    np.testing.assert_allclose(np.cov(draws.T), joint.covariance, atol=0.05)


def test_the_batch_equals_a_loop(two):
    """Every component is what inference says at its hyperparameters, and so are its predictions."""
    some = [0, len(two.components) // 2, len(two.components) - 1]
    at = two.predict(X_NEW[:, None])
    for i in some:
        alone = infer(two.components[i].model, X[:, None], Y, "ep", tol=1e-10)
        np.testing.assert_allclose(two.components[i].log_evidence, alone.log_evidence, atol=1e-8)
        np.testing.assert_allclose(at.means[i], alone.predict(X_NEW[:, None]).mean, atol=1e-8)


def test_leave_one_out_is_that_of_a_posterior_without_the_row(two):
    """Leaving a row out changes the weights of θ too: by quadrature without it."""
    i, rest = 4, np.arange(18) != 4
    axes = (np.linspace(-5, 6, 45), np.linspace(-2.5, 3, 45))
    without = truth(
        X[rest], Y[rest], X[i : i + 1], Y[i : i + 1], axes, lambda t: normal(t, ("variance", "lengthscale")), NOISE
    )
    np.testing.assert_allclose(two.loo[i], without.log_density[0], atol=5e-3)


@pytest.mark.campaign
def test_a_row_of_no_weight_is_as_a_new_one():
    """It changes no weight of θ, also where it is left out."""
    weights = np.ones(18)
    weights[4] = 0.0
    start, rest = model(Parameter(NOISE, fixed=True)), weights > 0.0
    found = integrate(fit(start, X[:, None], Y, "ep", weights=weights)).loo[4]
    without = integrate(fit(start, X[rest, None], Y[rest], "ep"))
    assert found == pytest.approx(without.predict_y(X[[4], None]).log_prob(Y[[4]])[0], abs=1e-4)


SEVERAL = {
    "probit": (likelihoods.Probit(), np.sign(Y), {"weights": np.resize([0.0, 1.0, 2.0, 3.0, 1.0], 18)}),
    "probit in parts": (likelihoods.Probit(), np.sign(Y), {"weights": np.resize([0.0, 0.5, 1.0, 2.0, 3.5], 18)}),
    "student-t": (
        likelihoods.StudentT(Parameter(0.3, fixed=True), Parameter(4.0, fixed=True)),
        Y + 3.0 * (np.arange(18) == 5),
        {},
    ),
    "poisson": (likelihoods.Poisson(), np.round(np.exp(1.0 + Y)), {"exposure": np.linspace(0.5, 2.0, 18)}),
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", SEVERAL)
def test_components_leave_rows_out_as_inference_does(name, monkeypatch):
    """Computed with the batch, or where that is NaN or was not, one by one."""
    likelihood, y, more = SEVERAL[name]
    fitted = fit(Model(model(NOISE).kernel, likelihood), X[:, None], y, "ep", **more)
    found = integrate(fitted, tol=1e-8)
    for component in found.components[:: max(1, len(found.components) // 4)]:
        alone = infer(component.model, X[:, None], y, "ep", tol=1e-8, **more)
        np.testing.assert_allclose(component.loo, alone.loo, atol=1e-6)
    answered = Surface.answered
    for lost in (lambda loo: None, lambda loo: np.nan * loo):
        monkeypatch.setattr(
            Surface,
            "answered",
            lambda self, rows, lost=lost: [one._replace(loo=lost(one.loo)) for one in answered(self, rows)],
        )
        np.testing.assert_allclose(integrate(fitted, tol=1e-8).loo, found.loo, atol=1e-9)


def test_where_inference_fails_everywhere_the_fit_stands_alone(fitted, monkeypatch):
    monkeypatch.setattr(Surface, "_solved", lambda self, theta: [None] * len(theta))
    found = integrate(fitted, max_points=100)
    assert found.status.reason == "no-mode"
    assert found.components == (fitted.solution,)


@pytest.mark.parametrize(
    ("name", "value"), [("max_points", 0), ("max_points", 2.5), ("seed", -1), ("tol", 0.0), ("tol", np.nan)]
)
def test_numbers_that_mean_nothing_are_refused(fitted, name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        integrate(fitted, **{name: value})


def test_files(two, tmp_path):
    """What is read predicts the same bits."""
    path = tmp_path / "integrated.safetensors"
    two.save(path)
    again = load(path)
    assert isinstance(again, Integrated)
    assert repr(again) == repr(two)
    assert again.parameters == two.parameters
    np.testing.assert_array_equal(again.predict_y(X_NEW[:, None]).mean, two.predict_y(X_NEW[:, None]).mean)
    np.testing.assert_array_equal(again.theta, two.theta)


@pytest.fixture(scope="module")
def three():
    """Three hyperparameters."""
    return fit(model(Parameter(NOISE, prior=PRIOR["scale"])), X[:, None], Y, "ep")


@pytest.fixture(scope="module")
def three_exactly():
    axes = (np.linspace(-4, 5, 31), np.linspace(-2, 2.5, 31), np.linspace(-2.6, 0.4, 31))
    return truth(X, Y, X_NEW, Y_NEW, axes, lambda t: normal(t, tuple(PRIOR)))


def test_three_hyperparameters_by_a_composite_design(three, three_exactly):
    found = integrate(three)
    assert found.status.scheme == "central composite design"
    assert found.status.points == 22
    _close(found, three_exactly, mean=0.1, sd=0.15, density=0.02, evidence=0.1)


@pytest.mark.campaign
def test_three_hyperparameters_by_importance_sampling(three, three_exactly, monkeypatch):
    monkeypatch.setattr(integrating, "MIN_EFFICIENCY", 2.0)  # no design is as good as that
    found = integrate(three)
    assert found.status.scheme == "central composite design, then importance sampling"
    assert found.converged
    _close(found, three_exactly, mean=0.1, sd=0.1, density=0.02, evidence=0.03)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("kernel", "process"),
    [(kernels.SquaredExponential, Inducing(6)), (kernels.SquaredExponential, Inducing(6, learn=True)),
     (kernels.Matern32, Markov())],
)  # fmt: skip
def test_other_processes(kernel, process):
    """Inducing points stay where learning put them; components are what inference says at their hyperparameters."""
    start = Model(kernel(), likelihoods.Gaussian(Parameter(NOISE, fixed=True)), process=process)
    fitted = fit(start, X[:, None], Y, "ep")
    found = integrate(fitted)
    assert found.converged
    assert list(found.parameters) == ["kernel.variance", "kernel.lengthscale"]
    at = found.predict(X_NEW[:, None])
    for i in (0, len(found.weights) - 1):
        alone = infer(found.components[i].model, X[:, None], Y, "ep", tol=1e-10)
        np.testing.assert_allclose(found.components[i].log_evidence, alone.log_evidence, atol=1e-7)
        np.testing.assert_allclose(at.means[i], alone.predict(X_NEW[:, None]).mean, atol=1e-7)


def test_three_hyperparameters_of_which_one_is_cut_off(three_exactly):
    """By a central composite design in coordinates without the bound, in which the posterior is skewed."""
    noise = Parameter(0.2, (0.05, 0.28), prior=PRIOR["scale"])
    found = integrate(fit(model(noise), X[:, None], Y, "ep"))
    axes = (np.linspace(-4, 5, 31), np.linspace(-2, 2.5, 31), _midpoints(np.log(0.05), np.log(0.28), 31))
    inside = np.log(np.ptp(norm.cdf(np.log([0.05, 0.28]), np.log(0.5), 0.7)))
    exactly = truth(X, Y, X_NEW, Y_NEW, axes, lambda t: normal(t, tuple(PRIOR)) - inside)
    assert found.status.at_bounds == ("likelihood.scale",)
    _close(found, exactly, mean=0.15, sd=0.15, density=0.03, evidence=0.15)


def test_a_solution_alone_is_refused():
    model = Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3))
    with pytest.raises(TypeError, match=r"fitted must be what fit returned.*got Solution"):
        integrate(infer(model, X[:9, None], np.sin(X[:9]), "ep"))


def test_several_classes_are_refused_by_name():
    classes = Model(kernels.SquaredExponential(), likelihoods.MultinomialProbit(3))
    fitted = fit(classes, X[:9, None], np.arange(9) % 3, "laplace", max_evaluations=2)
    with pytest.raises(ValueError, match=r"models of one latent function.*hyperparameters='integrated'"):
        integrate(fitted)


def _close(found, exactly, mean, sd, density, evidence):
    centre = found.weights @ found.theta
    spread = np.sqrt(found.weights @ (found.theta - centre) ** 2)
    np.testing.assert_allclose((centre - exactly.mean) / exactly.sd, 0.0, atol=mean)
    np.testing.assert_allclose(spread, exactly.sd, rtol=sd)
    np.testing.assert_allclose(found.log_evidence, exactly.log_evidence, atol=evidence)
    np.testing.assert_allclose(found.predict_y(X_NEW[:, None]).log_prob(Y_NEW), exactly.log_density, atol=density)
