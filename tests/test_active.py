"""Choice of observations: what it chooses, and that telling is inference on all rows."""

import numpy as np
import pytest
from scipy.stats import norm

from quantprop import (
    EP,
    QP,
    GaussianProcessClassifier,
    Inducing,
    Markov,
    Model,
    PowerEP,
    active,
    fit,
    infer,
    kernels,
    likelihoods,
    stack,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (30, 2))
Y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=30) > 0, 1.0, -1.0)
MODEL = Model(kernels.SquaredExponential(3.0, 0.9), likelihoods.Probit())
CANDIDATES = RNG.uniform(-3, 3, (50, 2))


def test_one_choice_is_the_largest_information():
    solution = infer(MODEL, X, Y, "ep")
    np.testing.assert_array_equal(active.ask(solution, CANDIDATES), [np.argmax(solution.information(CANDIDATES))])
    at_level = active.ask(solution, CANDIDATES, criterion="level", level=0.4)
    np.testing.assert_array_equal(at_level, [np.argmax(solution.information(CANDIDATES, level=0.4))])


def test_a_batch_under_gaussian_noise_is_the_greedy_set_of_largest_determinant():
    """Information of several Gaussian observations is ½ log |I + K/σ²| of their posterior covariance, here by hand."""
    model = Model(kernels.Matern52(2.0, 0.8), likelihoods.Gaussian(0.4))
    solution = infer(model, X, np.sin(2 * X[:, 0]), "ep")
    covariance, chosen = solution.predict(CANDIDATES, full_cov=True).covariance, []
    for _ in range(6):

        def total(rows):
            return np.linalg.slogdet(np.eye(len(rows)) + covariance[np.ix_(rows, rows)] / 0.16)[1]

        chosen.append(max(set(range(50)) - set(chosen), key=lambda i: total([*chosen, i])))
    np.testing.assert_array_equal(active.ask(solution, CANDIDATES, 6), chosen)


def test_predictions_are_what_y_tells_about_other_y():
    """Under Gaussian noise ½ log(1 + v_j/σ²) of what is known of y_j, before and after y_i, by hand; an outlier has the
    largest information on f, and the least on predictions.
    """
    model = Model(kernels.Matern52(2.0, 0.8), likelihoods.Gaussian(0.4))
    solution = infer(model, X, np.sin(2 * X[:, 0]), "ep")
    some = np.concatenate([CANDIDATES, [[40.0, 40.0]]])
    covariance = solution.predict(some, full_cov=True).covariance
    before = np.diagonal(covariance)
    after = before - covariance**2 / (before + 0.16)[:, None]
    told = 0.5 * np.sum(np.log1p(before / 0.16) - np.log1p(after / 0.16), axis=1)
    assert active.ask(solution, some) == [50]
    chosen = active.ask(solution, some, 3, "predictions")
    assert chosen[0] == np.argmax(told[:50])
    assert 50 not in chosen


@pytest.mark.campaign
def test_a_batch_is_spread():
    """Fifty copies of one candidate and two others: the second choice is another place."""
    solution = infer(MODEL, X, Y, "ep")
    best = active.ask(solution, CANDIDATES)[0]
    crowd = np.concatenate([np.repeat(CANDIDATES[[best]], 50, axis=0), CANDIDATES[:10]])
    chosen = crowd[active.ask(solution, crowd, 2)]
    assert np.abs(chosen[0] - chosen[1]).max() > 0.1
    many = np.concatenate([CANDIDATES, np.repeat(CANDIDATES[:1], 2000, axis=0)])
    assert len(set(active.ask(solution, many, 8).tolist())) == 8


def test_improvement_and_upper_bounds_of_gaussian_noise():
    solution = infer(Model(kernels.Matern52(2.0, 0.8), likelihoods.Gaussian(0.4)), X, np.sin(2 * X[:, 0]), "ep")
    f, best = solution.predict(CANDIDATES), solution.predict(X).mean.max()
    sd = np.sqrt(f.variance)
    z = (f.mean - best) / sd
    np.testing.assert_array_equal(
        active.ask(solution, CANDIDATES, criterion="improvement"), [np.argmax(sd * (z * norm.cdf(z) + norm.pdf(z)))]
    )
    np.testing.assert_array_equal(active.ask(solution, CANDIDATES, criterion="upper"), [np.argmax(f.mean + 1.645 * sd)])


def test_improvement_is_over_values_not_slopes():
    """f(x) = sin 3x from values and gradients: slopes of up to 3 are no outputs to improve on."""
    rows, x = kernels.Derivatives.rows, np.linspace(-2, 2, 5)[:, None]
    model = Model(kernels.Derivatives(kernels.SquaredExponential(1.0, 0.5)), likelihoods.Gaussian(0.01))
    y = np.concatenate([np.sin(3.0 * x[:, 0]), 3.0 * np.cos(3.0 * x[:, 0])])
    solution = infer(model, np.concatenate([rows(x), rows(x, 0)]), y, "ep")
    new = np.linspace(-2.3, 2.3, 24)[:, None]
    f, best = solution.predict(rows(new)), solution.predict(rows(x)).mean.max()
    sd = np.sqrt(f.variance)
    z = (f.mean - best) / sd
    expected = np.argmax(sd * (z * norm.cdf(z) + norm.pdf(z)))
    assert active.ask(solution, rows(new), criterion="improvement") == [expected]


@pytest.mark.parametrize("criterion", active.CRITERIA)
def test_every_criterion_chooses_batches(criterion):
    """The first of a batch is the single choice; a copy of it is not chosen next, whose f is known then."""
    solution = infer(Model(kernels.Matern52(2.0, 0.8), likelihoods.Gaussian(0.1)), X, np.sin(2 * X[:, 0]), "ep")
    level = 0.5 if criterion == "level" else None
    first = active.ask(solution, CANDIDATES, 1, criterion, level)[0]
    chosen = active.ask(solution, np.append(CANDIDATES, CANDIDATES[[first]], axis=0), 3, criterion, level)
    assert chosen[0] in (first, 50)
    assert len(set(chosen)) == 3
    assert criterion in ("improvement", "upper") or not {first, 50} <= set(chosen)  # others leave a known f


def test_criteria_of_several_models_are_averaged_by_weight():
    y, level = np.sin(2 * X[:, 0]), 0.3
    fits = [fit(Model(kernel, likelihoods.Gaussian(0.4)), X, y, "ep")
            for kernel in (kernels.Linear(), kernels.Matern52(2.0, 0.8))]  # fmt: skip
    both = stack(fits)
    w, each = both.weights, [one.solution for one in fits]
    for given in ({}, {"level": level}):
        wanted = sum(a * one.information(CANDIDATES, **given) for a, one in zip(w, each, strict=True))
        np.testing.assert_allclose(both.information(CANDIDATES, **given), wanted, rtol=1e-12)
        criterion = "level" if given else "information"
        np.testing.assert_array_equal(active.ask(both, CANDIDATES, 1, criterion, **given), [np.argmax(wanted)])
    best = (w @ [one.predict(X).mean for one in each]).max()
    f = [one.predict(CANDIDATES) for one in each]
    sd = np.sqrt([one.variance for one in f])
    z = (np.array([one.mean for one in f]) - best) / sd
    gain = w @ (sd * (z * norm.cdf(z) + norm.pdf(z)))
    assert active.ask(both, CANDIDATES, 1, "improvement")[0] == np.argmax(gain)
    assert len(set(active.ask(both, CANDIDATES, 3, "upper"))) == 3
    with pytest.raises(TypeError, match=r"average of several: .* stack.heaviest.fitted"):
        active.tell(both, X[:1], y[:1])
    assert len(active.tell(both.heaviest.fitted, X[:1], y[:1]).solution.X) == 31


@pytest.mark.parametrize(("process", "method"), [(None, PowerEP(0.5)), (Inducing(15), EP()), *(
    pytest.param(*case, marks=pytest.mark.campaign)
    for case in ((None, EP()), (None, QP()), (Inducing(15), QP()), (Inducing(15), PowerEP(0.5)))
)], ids=repr)  # fmt: skip
def test_telling_is_inference_on_all_rows(method, process):
    model = MODEL if process is None else Model(MODEL.kernel, MODEL.likelihood, process=process)
    before = infer(model, X[:25], Y[:25], method, tol=1e-10)
    told = active.tell(before, X[25:], Y[25:])
    whole = infer(before.model, X, Y, method)
    assert told.converged
    np.testing.assert_allclose(told.sites.tau, whole.sites.tau, rtol=1e-4)
    assert told.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)
    np.testing.assert_allclose(told.predict(CANDIDATES).mean, whole.predict(CANDIDATES).mean, atol=1e-5)
    assert active.tell(before, X[25:26], Y[25:26]).sweeps <= whole.sweeps


def test_telling_keeps_weights_exposure_and_what_was_learned():
    counts, exposure = RNG.poisson(3.0, 30).astype(float), RNG.uniform(0.5, 2.0, 30)
    weights = np.r_[2.0, np.ones(29)]
    fitted = fit(Model(kernels.SquaredExponential().on(0), likelihoods.Poisson()), X[:29], counts[:29], "ep",
                 weights=weights[:29], exposure=exposure[:29])  # fmt: skip
    told = active.tell(fitted, X[29:], counts[29:], exposure=exposure[29:])
    whole = infer(fitted.model, X, counts, "ep", weights=weights, exposure=exposure, tol=1e-8)
    assert told.solution.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)
    assert told.hyperparameters == fitted.hyperparameters
    np.testing.assert_array_equal(told.solution.data.exposure, exposure)


def test_series_are_told_in_any_order():
    t = np.arange(20.0)[:, None]
    y = np.sin(t[:, 0])
    before = infer(Model(kernels.Matern32(1.0, 3.0), likelihoods.Gaussian(0.2), process=Markov()), t[1:], y[1:], "ep")
    told = active.tell(before, t[:1], y[:1])
    assert told.log_evidence == pytest.approx(infer(before.model, t, y, "ep").log_evidence, abs=1e-9)


def test_wrong_calls_name_the_remedy():
    solution = infer(MODEL, X, Y, "ep")
    three = GaussianProcessClassifier(optimizer=None).fit(X, np.arange(30) % 3)
    two = GaussianProcessClassifier(optimizer=None, method="ep").fit(X, Y)
    assert active.ask(two, CANDIDATES).shape == (1,)
    for call, words in (
        (lambda: active.ask(solution, CANDIDATES, 51), "n must be at most"),
        (lambda: active.ask(solution, CANDIDATES, criterion="level"), "level must be set"),
        (lambda: active.ask(solution, CANDIDATES, level=0.0), "level must be set"),
        (lambda: active.ask(solution, CANDIDATES, criterion="entropy"), "criterion must be one of"),
        (lambda: active.ask(solution, CANDIDATES[:, :1]), "candidates has 1 columns"),
        (lambda: active.tell(solution, X[:1], [0.5]), "outside the support"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    for call in (lambda: active.ask(three, CANDIDATES), lambda: active.tell(None, X, Y), lambda: active.ask(None, X)):
        with pytest.raises(TypeError, match="model must be a Solution"):
            call()
