"""Bad input ends in an error that names the argument and the first offending place; nothing is changed."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import (
    EP,
    VB,
    GaussianProcessRegressor,
    Inducing,
    Laplace,
    Markov,
    Model,
    Parameter,
    PowerEP,
    infer,
    kernels,
    likelihoods,
    project,
)
from quantprop.core.gaussian import Natural

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (6, 2))
Y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
KERNEL = kernels.SquaredExponential()
PROBIT = Model(KERNEL, likelihoods.Probit())
POISSON = Model(KERNEL, likelihoods.Poisson())
NAN, INF = np.nan, np.inf


def changed(array: np.ndarray, where, value: float) -> np.ndarray:
    array = array.copy()
    array[where] = value
    return array


def refused(message: str, *args, error=ValueError, call=infer, **options) -> None:
    """The call raises, its text holds every part of `message` (parts separated by ' … '), and no argument changed."""
    arrays = [a for a in (*args, *options.values()) if isinstance(a, np.ndarray)]
    before = [a.copy() for a in arrays]
    with pytest.raises(error) as caught:
        call(*args, **options)
    for part in message.split(" … "):
        assert part in str(caught.value), str(caught.value)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.fixture(scope="module")
def solution():
    return infer(PROBIT, X, Y, EP())


@pytest.fixture(scope="module")
def counts():
    return infer(POISSON, X, np.arange(6.0), EP())


# --- X ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_inputs_must_be_finite(value):
    refused(f"X[2, 1] = {value} … NaN and infinity", PROBIT, changed(X, (2, 1), value), Y)
    bad = changed(changed(X, (5, 0), value), (3, 1), value)
    refused(f"X[3, 1] = {value}", PROBIT, bad, Y)  # the first of two


def test_inputs_must_be_a_matrix_of_numbers():
    refused("X … (6, 2, 1)", PROBIT, X[:, :, None], Y)
    refused("X … at least one row … (0, 2)", PROBIT, X[:0], Y[:0])
    refused("X … at least one row and one column … (6, 0)", PROBIT, X[:, :0], Y)
    refused("X must hold real numbers", PROBIT, [["a", "b"]] * 6, Y)
    refused("X must hold real numbers", PROBIT, [[1.0, 2.0], [3.0]], Y[:2])


# --- y ---------------------------------------------------------------------------------------------------------------


def test_observations_must_fit_the_inputs():
    refused("y must have shape (6,) … (5,)", PROBIT, X, Y[:5])
    refused("y must have shape (6,) … (6, 1)", PROBIT, X, Y[:, None])
    refused("y must have shape (6,) … (1,)", PROBIT, X, Y[:1])  # not one value for all rows
    refused("y must have shape (6,) … ()", PROBIT, X, 1.0)
    refused("y must hold real numbers", PROBIT, X, ["a"] * 6)


OUTSIDE = {
    "gaussian": (likelihoods.Gaussian(), [0.3, -1.0], [INF, -INF]),
    "probit": (likelihoods.Probit(), [1.0, -1.0], [0.5, 2.0, 0.0, INF]),
    "logit": (likelihoods.Logit(), [1.0, -1.0], [0.5, 2.0, 0.0, INF]),
    "heaviside": (likelihoods.Heaviside(), [1.0, -1.0], [0.5, 2.0, 0.0, INF]),
    "poisson": (likelihoods.Poisson(), [0.0, 3.0], [-1.0, 1.5, INF]),
    "student-t": (likelihoods.StudentT(), [0.3, -1.0], [INF, -INF]),
    "negative-binomial": (likelihoods.NegativeBinomial(), [0.0, 3.0], [-1.0, 1.5, INF]),
    "binomial": (likelihoods.Binomial(), [0.0, 1.0], [-1.0, 0.5, 2.0, INF]),
    "double-exponential": (likelihoods.DoubleExponential(), [0.3, -1.0], [INF, -INF]),
    "gamma": (likelihoods.Gamma(), [0.3, 2.0], [0.0, -1.0, INF]),
    "beta": (likelihoods.Beta(), [0.3, 0.9], [0.0, 1.0, -0.5, INF]),
    "ordinal": (likelihoods.Ordinal([-1.0, 1.0]), [0.0, 2.0], [-1.0, 0.5, 3.0, INF]),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_observations_must_lie_in_the_support(name):
    likelihood, inside, outside = OUTSIDE[name]
    for value in outside:
        y = changed(np.resize(inside, 6), 4, value)
        refused(
            f"y[4] = {value} … outside the support … {name} … {likelihood.support}", Model(KERNEL, likelihood), X, y
        )
    for call in (infer, project):
        y = changed(np.resize(inside, 6), 3, NAN)
        args = (Model(KERNEL, likelihood), X, y) if call is infer else (likelihood, y, (0.0, 1.0))
        refused("y[3] = nan", *args, call=call)


def test_the_label_that_is_named_is_the_one_that_does_not_fit():
    refused("y[3] = 2", PROBIT, X, np.array([0.0, 1.0, 1.0, 2.0, 0.0, 1.0]))  # 0 and 1 are labels, 2 is not


def test_censored_rows_must_be_intervals():
    model = Model(KERNEL, likelihoods.Censored())
    rows = np.column_stack([np.arange(6.0), np.arange(6.0) + 1.0])
    refused("y[2", model, X, changed(rows, (2, 1), 0.0))
    refused("y[2", model, X, changed(changed(rows, (2, 1), INF), (2, 0), -INF))
    refused("y[2, 1] = nan", model, X, changed(rows, (2, 1), NAN))
    refused("y must have shape (6, 2)", model, X, np.arange(6.0))


# --- weights, exposure, trials, sites --------------------------------------------------------------------------------


def test_weights_must_be_at_least_zero():
    ones = np.ones(6)
    refused("weights[4] = -0.5 … at least 0", PROBIT, X, Y, weights=changed(ones, 4, -0.5))
    refused("weights[1] = nan", PROBIT, X, Y, weights=changed(ones, 1, NAN))
    refused("weights[1] = inf", PROBIT, X, Y, weights=changed(ones, 1, INF))
    refused("weights … (6,) … (5,)", PROBIT, X, Y, weights=ones[:5])
    refused("weights must not all be zero", PROBIT, X, Y, weights=0.0 * ones)


def test_weights_above_one_are_refused_with_white_noise():
    """The copies of a row would share the noise that each of two equal rows has of its own."""

    class Nugget(kernels.SquaredExponential):
        def gram_of(self, pairs):
            return super().gram_of(pairs) + 1e-9 * jnp.eye(len(pairs["squares"]))

    weights = np.array([1.0, 0.0, 0.5, 1.0, 3.0, 1.0])
    rest = kernels.SquaredExponential()
    for kernel in (kernels.White(0.1) + rest, rest * kernels.White() + rest, (rest + kernels.White()) ** 2, Nugget()):
        noisy = Model(kernel, likelihoods.Probit())
        refused("weights[4] = 3.0 … white noise … np.repeat(X, weights", noisy, X, Y, weights=weights)
        assert infer(noisy, X, Y, EP(), weights=np.minimum(weights, 1.0)).converged
    assert infer(PROBIT, X, Y, EP(), weights=weights).converged


def test_exposure_and_trials_only_where_the_likelihood_uses_them(solution, counts):
    refused("exposure … probit likelihood does not use it", PROBIT, X, Y, exposure=np.ones(6))
    refused("trials … poisson likelihood does not use it", POISSON, X, np.arange(6.0), trials=np.ones(6))
    refused("exposure … probit", likelihoods.Probit(), 1, (0.0, 1.0), exposure=2.0, call=project)
    refused("exposure … probit", X, exposure=np.ones(6), call=solution.predict_y)
    refused("exposure[2] = 0.0 … positive", X, exposure=changed(np.ones(6), 2, 0.0), call=counts.predict_y)
    refused("exposure … (6,) … (4,)", X, exposure=np.ones(4), call=counts.predict_y)
    for value in (0.0, -1.0):
        exposure = changed(np.ones(6), 2, value)
        refused(f"exposure[2] = {value} … positive", POISSON, X, np.arange(6.0), exposure=exposure)
    refused("exposure[0] = nan", POISSON, X, np.arange(6.0), exposure=changed(np.ones(6), 0, NAN))


def test_warm_starts_must_fit():
    refused("sites … 6 values each … 5 and 5", PROBIT, X, Y, EP(), sites=Natural(np.ones(5), np.ones(5)))
    refused("sites … 6 values each … 6 and 7", PROBIT, X, Y, EP(), sites=Natural(np.ones(6), np.ones(7)))
    refused("sites.nu[3] = nan", PROBIT, X, Y, EP(), sites=Natural(changed(np.ones(6), 3, NAN), np.ones(6)))
    refused("sites.tau … negative … probit", PROBIT, X, Y, EP(), sites=Natural(np.ones(6), -np.ones(6)))


# --- methods, schedules, models --------------------------------------------------------------------------------------


def test_methods_and_schedules_must_exist():
    refused("method must be … qp, ep, power-ep, vb, laplace … 'mcmc'", PROBIT, X, Y, "mcmc")
    refused("method must be … 3", PROBIT, X, Y, 3)
    refused("schedule must be one of parallel, sequential … 'random'", PROBIT, X, Y, schedule="random")
    for method in (VB(), Laplace()):
        kind = type(method).__name__
        refused(f"sequential … {kind}", PROBIT, X, Y, method, schedule="sequential")
        refused(f"{kind} does not support the heaviside … use", Model(KERNEL, likelihoods.Heaviside()), X, Y, method)
    refused("Laplace does not support the heaviside", Model(KERNEL, likelihoods.Heaviside(0.1)), X, Y, Laplace())
    kinked = Model(KERNEL, likelihoods.DoubleExponential())
    refused("Laplace does not support the double-exponential", kinked, X, X[:, 0], Laplace())
    refused("tol must be a positive number", PROBIT, X, Y, tol=0.0)
    refused("max_sweeps must be an integer and at least 1", PROBIT, X, Y, max_sweeps=0)
    for power in (0.0, -0.5, 1.5):
        refused(f"power must lie in (0, 1] … {power}", power, call=PowerEP)


def test_models_must_be_made_of_a_kernel_a_likelihood_and_a_mean():
    refused("kernel must be a Kernel", likelihoods.Probit(), likelihoods.Probit(), call=Model, error=TypeError)
    refused("likelihood must be a Likelihood", KERNEL, "probit", call=Model, error=TypeError)
    refused("link must be one of exp, square, softplus … 'log'", "log", call=likelihoods.Poisson)
    refused("mean(X) … (6,) … (6, 2)", Model(KERNEL, likelihoods.Probit(), lambda x: x), X, Y)
    refused("mean(X)[0] = nan", Model(KERNEL, likelihoods.Probit(), lambda x: np.full(len(x), NAN)), X, Y)
    refused("mean = inf", Model(KERNEL, likelihoods.Probit(), INF), X, Y)
    zero = kernels.SquaredExponential(lengthscale=0.0)
    refused("kernel.lengthscale must be positive … 0.0", zero, likelihoods.Probit(), call=Model)
    ragged = Model(kernels.SquaredExponential(1.0, np.ones(3)), likelihoods.Probit())
    refused("lengthscale must be one number or one per column of X (2)", ragged, X, Y)


# --- project, predict ------------------------------------------------------------------------------------------------


def test_cavities_must_be_proper():
    probit, mean = likelihoods.Probit(), np.zeros(3)
    for value in (0.0, -2.0):
        cavity = (mean, np.array([1.0, value, 1.0]))
        refused(f"cavity variance[1] = {value} … positive", probit, 1, cavity, call=project)
    refused("cavity variance = -1.0 … positive", probit, 1, (0.0, -1.0), call=project)
    refused("cavity variance[2] = inf", probit, 1, (mean, np.array([1.0, 1.0, INF])), call=project)
    refused("cavity mean[0] = nan", probit, 1, (changed(mean, 0, NAN), 1.0), call=project)
    refused("y … cavity", probit, np.ones(2), (mean, 1.0), call=project)
    refused("projection must be a Projection", probit, 1, (0.0, 1.0), "kl", call=project, error=TypeError)


def test_new_inputs_must_have_the_columns_of_the_old(solution):
    refused("Xnew has 3 columns … 2", np.zeros((4, 3)), call=solution.predict)
    refused("Xnew has 1 columns … 2", np.zeros(4), call=solution.predict)
    refused("Xnew[1, 0] = nan", changed(X, (1, 0), NAN), call=solution.predict)
    refused("Xnew has 3 columns", np.zeros((4, 3)), call=solution.predict_y)
    refused("Xnew has 3 columns", np.zeros((4, 3)), 10, call=solution.sample)


@pytest.mark.parametrize("value", [-0.1, 1.5, NAN])
def test_probabilities_must_lie_between_zero_and_one(solution, value):
    predictive = solution.predict_y(X)
    refused(f"q … [0, 1] … {value}", value, call=predictive.quantile)
    refused(f"q … [0, 1] … {value}", np.array([0.5, value]), call=predictive.quantile)


def test_log_prob_checks_new_observations(solution):
    predictive = solution.predict_y(X)
    refused("y[4] = 0.5 … probit", changed(Y, 4, 0.5), call=predictive.log_prob)
    refused("y[4] = nan", changed(Y, 4, NAN), call=predictive.log_prob)
    refused("y must have shape (6,)", Y[:5], call=predictive.log_prob)


# --- nothing is changed, and nothing is shared -----------------------------------------------------------------------


def test_good_input_is_left_alone_and_not_kept():
    x, y, weights = X.copy(), Y.copy(), np.ones(6)
    for array in (x, y, weights):
        array.flags.writeable = False
    first = infer(PROBIT, x, y, EP(), weights=weights)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    mine = X.copy()
    second = infer(PROBIT, mine, Y, EP())
    mine[:] = 0.0  # the caller's array is the caller's: what was inferred stays
    np.testing.assert_allclose(second.predict(X).mean, first.predict(X).mean, rtol=0, atol=1e-12)


def test_messages_have_no_internal_names():
    with pytest.raises(ValueError, match="y") as caught:
        infer(PROBIT, X, changed(Y, 0, 0.5))
    assert re.fullmatch(r"y\[0\] = 0.5 is outside the support of the probit likelihood: .+", str(caught.value))


# --- settings of records and flags -----------------------------------------------------------------------------------

ROWS = np.linspace(-1.0, 1.0, 12)[:, None]
WAVE = np.sin(3.0 * ROWS[:, 0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Parameter(1.0, fixed="no"), "Parameter: fixed must be True or False"),
        (lambda: Parameter(1j), "Parameter: value must be a real number"),
        (lambda: Inducing(5, learn="no"), "Inducing: learn must be True or False"),
        (lambda: Inducing(5, seed=-1), "Inducing: seed must be an integer and at least 0"),
        (lambda: Inducing(1j * np.ones((2, 1))), "Inducing: points must be real numbers"),
        (lambda: Markov(lanes=1.5), "Markov: lanes must be an integer and at least 1"),
        (lambda: Markov(lanes=0), "Markov: lanes must be an integer and at least 1"),
        (lambda: Markov(harmonics=-1), "Markov: harmonics must be an integer and at least 0"),
    ],
)
def test_settings_are_checked_where_they_are_made(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_flags_are_booleans_and_scores_take_whole_columns():
    model = GaussianProcessRegressor().fit(ROWS, WAVE)
    for call, words in (
        (lambda: model.predict(ROWS, return_std="no"), "return_std must be True or False"),
        (lambda: model.solution_.predict(ROWS, full_cov="no"), "full_cov must be True or False"),
        (lambda: model.score(ROWS, np.ma.masked_array(WAVE, mask=WAVE > 0)), "is masked"),
        (lambda: GaussianProcessRegressor().fit(ROWS, ["1" * 400] * 12), "y must hold real numbers: got text"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            call()
