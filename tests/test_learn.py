"""Learning: known optima, restarts, bounds, back-off, and honest endings."""

import math

import numpy as np
import pytest

from quantprop import (
    KernelWarning,
    Model,
    Parameter,
    PrecisionWarning,
    datasets,
    fit,
    infer,
    kernels,
    likelihoods,
)
from quantprop.learning.fitting import Landscape
from quantprop.learning.landscape import Point

GPY_OPTIMUM = {"crabs": 27.0321, "ionosphere": 89.4527}  # negative log evidence that GPy 1.15's nested EP reaches


def first_split(name):
    """NumPy RandomState(0) permutation, the first n // 10 rows held out, standardised on the rest."""
    data = datasets.load(name, "paper")
    order = np.random.RandomState(0).permutation(len(data.y))
    kept = order[len(order) // 10 :]
    centre, scale = data.X[kept].mean(0), data.X[kept].std(0)
    return (data.X[kept] - centre) / np.where(scale > 0, scale, 1.0), data.y[kept]


def probit():
    return Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit())


@pytest.mark.parametrize("name", ["crabs", pytest.param("ionosphere", marks=pytest.mark.campaign)])
def test_the_optimum_of_ep_is_gpys(name):
    ep = fit(probit(), *first_split(name), method="ep")
    assert ep.converged
    assert -ep.objective_value == pytest.approx(GPY_OPTIMUM[name], abs=1e-3)


@pytest.mark.campaign
@pytest.mark.parametrize("name", GPY_OPTIMUM)
def test_the_optimum_of_qp_is_flat(name):
    qp = fit(probit(), *first_split(name), method="qp")
    assert qp.converged
    assert qp.status.gradient <= 1e-4


X = np.linspace(-3.0, 3.0, 30)[:, None]
Y = np.where(np.sin(2.0 * X[:, 0]) > 0, 1.0, -1.0)


def test_what_is_returned_agrees_with_inference_at_the_learned_numbers():
    fitted = fit(probit(), X, Y)
    again = infer(fitted.model, X, Y, tol=1e-8)
    assert fitted.objective_value == pytest.approx(again.log_evidence, abs=1e-7)
    np.testing.assert_allclose(fitted.solution.marginals.mean, again.marginals.mean, atol=1e-6)
    assert fitted.hyperparameters["kernel.lengthscale"] == fitted.model.kernel.lengthscale
    assert len(fitted.trace) == fitted.status.evaluations
    values = [step.value for step in fitted.trace]
    assert fitted.objective_value in values
    assert max(values) == pytest.approx(fitted.objective_value, abs=1e-9)  # on the way inference is less precise


def test_fixed_and_bounded_parameters_are_kept():
    kernel = kernels.SquaredExponential(Parameter(2.0, fixed=True), Parameter(0.2, bounds=(0.1, 0.3)))
    fitted = fit(Model(kernel, likelihoods.Probit()), X, Y)
    assert fitted.model.kernel.variance.value == 2.0
    assert fitted.model.kernel.lengthscale.value == pytest.approx(0.3)
    assert fitted.status.at_bounds == ("kernel.lengthscale",)


def test_separable_data_end_at_finite_numbers():
    fitted = fit(probit(), X, np.where(X[:, 0] > 0, 1.0, -1.0))
    assert fitted.converged
    assert np.isfinite([*fitted.hyperparameters.values(), fitted.objective_value]).all()


def test_restarts_never_end_lower_and_repeat_with_their_seed():
    start = Model(kernels.SquaredExponential(1.0, 1e-3), likelihoods.Probit())
    once, often, again = fit(start, X, Y), fit(start, X, Y, restarts=3), fit(start, X, Y, restarts=3)
    assert often.objective_value >= once.objective_value
    np.testing.assert_array_equal(often.theta, again.theta)


def test_a_failing_trial_point_is_backed_off_from(monkeypatch):
    """Inference that fails for every lengthscale above 0.5 must not stop learning, nor be its end."""
    honest = Landscape._from

    def failing(self, theta, *more):
        point = honest(self, theta, *more)
        return point if np.exp(theta[1]) < 0.5 else point._replace(value=np.nan)

    monkeypatch.setattr(Landscape, "_from", failing)
    fitted = fit(Model(kernels.SquaredExponential(1.0, 0.1), likelihoods.Probit()), X, Y)
    assert fitted.status.failed > 0
    assert np.isfinite(fitted.objective_value)
    assert fitted.model.kernel.lengthscale < 0.5
    assert fitted.objective_value > fitted.trace[0].value


def test_a_start_where_inference_fails_says_so(monkeypatch):
    monkeypatch.setattr(Point, "usable", property(lambda self: False))
    fitted = fit(probit(), X, Y)
    assert fitted.status.reason == "inference-failed"
    assert "did not converge at the starting point" in str(fitted.status)
    assert not fitted.converged


def test_the_leave_one_out_objective_is_the_sum_of_loo():
    fitted = fit(probit(), X, Y, method="ep", objective="loo")
    precise = infer(fitted.model, X, Y, method="ep", tol=1e-12).loo.sum()
    assert fitted.objective_value == pytest.approx(precise, abs=1e-9)  # at the fixed point, to second order
    assert fitted.solution.loo.sum() == pytest.approx(precise, abs=2e-7)  # at sites within 1e-8 of it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "elbo"}, "is supported for VB only"),
        ({"objective": "likelihood"}, "objective must be one of"),
        ({"gradient": "numeric"}, "gradient must be"),
        ({"restarts": -1}, "restarts must be an integer and at least 0"),
        ({"gtol": 0.0}, "gtol must be a positive number; got 0.0"),
        ({"gtol": float("nan")}, "gtol must be a positive number; got nan"),
    ],
)
def test_unknown_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        fit(probit(), X, Y, **change)


def test_a_start_outside_the_bounds_is_named():
    kernel = kernels.SquaredExponential(1.0, Parameter(2.0, bounds=(0.1, 1.0)))
    with pytest.raises(ValueError, match=r"kernel\.lengthscale starts outside its bounds"):
        fit(Model(kernel, likelihoods.Probit()), X, Y)


def test_numbers_that_must_be_positive_are_checked():
    with pytest.raises(ValueError, match=r"kernel\.variance must be positive"):
        Model(kernels.SquaredExponential(-1.0), likelihoods.Probit())
    with pytest.raises(ValueError, match=r"likelihood\.scale must be positive"):
        Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.0))


def test_warnings_point_at_the_line_that_called():
    blind = Model(kernels.SquaredExponential(1.0, 1e-3), likelihoods.Probit())
    with pytest.warns(KernelWarning) as found:
        fit(blind, X, Y, "laplace", max_evaluations=1)
    assert found[0].filename == __file__
    sharp = Model(kernels.SquaredExponential(1e8, 1.0), likelihoods.Gaussian(1e-4))
    with pytest.warns(PrecisionWarning) as found:
        infer(sharp, X, Y, "laplace")
    assert found[0].filename == __file__


def test_a_threshold_learns_beside_its_label_noise():
    """A likelihood's field `noise` is a number, and no name of a parameter that is the scale of y."""
    X, y = np.linspace(-2.0, 2.0, 12)[:, None], np.where(np.arange(12) < 6, -1, 1)
    fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Heaviside(0.05)), X, y, "ep")
    assert fitted.status.reason == "converged"
    assert abs(fitted.status.gradient) < 1e-4


def test_the_last_steps_stay_in_the_box():
    """Newton's method by differences of gradients, in a box narrower than these are over."""
    inside = Parameter(math.exp(0.7228), bounds=(math.exp(0.72242), math.exp(0.72322)))
    model = Model(kernels.SquaredExponential(inside, Parameter(1.0, fixed=True)), likelihoods.Probit())
    found = fit(model, X, Y, "laplace", gtol=1e-12)
    theta = np.array([step.theta[0] for step in found.trace])
    assert theta.min() >= 0.72242 - 1e-12
    assert theta.max() <= 0.72322 + 1e-12


def test_the_last_steps_reach_a_smaller_slope():
    model = Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.Probit())
    usual, further = (fit(model, X, Y, "laplace", gtol=gtol, tol=1e-12) for gtol in (1e-4, 1e-9))
    assert further.status.gradient <= 1e-9
    np.testing.assert_allclose(further.theta, usual.theta, atol=1e-3)


def test_a_search_that_remembers_few_steps_ends_in_the_same_optimum(monkeypatch):
    """As those of regressions and of many numbers do: L-BFGS-B."""
    few = fit(probit(), X, Y)
    monkeypatch.setattr("quantprop.learning.search.MAX_BFGS_ENTRIES", 1)
    many = fit(probit(), X, Y)
    assert (few.status.reason, many.status.reason) == ("converged", "converged")
    assert many.objective_value == pytest.approx(few.objective_value, abs=1e-4)  # on a ridge with a slope of 1e-4
    assert max(few.status.gradient, many.status.gradient) <= 1e-4
    stopped = fit(probit(), X, Y, max_evaluations=3)
    assert stopped.status.reason == "max-evaluations"
    assert 3 <= len(stopped.trace) < len(many.trace)


@pytest.mark.parametrize("offset", [0.0, 300.0, 1e4])
def test_a_learned_mean_finds_an_offset_far_from_its_start(offset):
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-3.0, 3.0, 40))[:, None]
    y = offset + np.sin(2.0 * x[:, 0]) + 0.1 * rng.normal(size=40)
    model = Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3), mean=Parameter(0.0))
    fitted = fit(model, x, y, "ep")
    assert fitted.status.reason == "converged"
    assert fitted.hyperparameters["mean"] == pytest.approx(offset, abs=2.0)


@pytest.mark.parametrize(("method", "gradient"), [("laplace", "exact"), ("ep", "partial")])
def test_converged_means_that_the_slope_is_below_what_was_asked(method, gradient):
    fitted = fit(probit(), X, Y, method, gradient=gradient, gtol=1e-9)
    assert fitted.converged == (fitted.status.gradient <= 1e-9)
