"""Many fits at once against one by one, and the ascent behind them against functions with known maxima."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der
from threadpoolctl import threadpool_info, threadpool_limits

from quantprop import Dense, Model, Parameter, fit, fit_many, kernels, likelihoods, means, predict_many
from quantprop.core.gaussian import Natural
from quantprop.learning import ascent as ascent_module
from quantprop.learning.ascent import FAILED, FLAT, GOING, MAX_EVALUATIONS, Ascent
from quantprop.learning.warm_starts import WarmStarts
from quantprop.runtime import batches
from quantprop.runtime.threads import one_blas_thread

BOX = np.array([[-5.0, 5.0], [-5.0, 5.0]])
RNG = np.random.default_rng(5)


def climbed(function, slope, starts, box=BOX, usable=lambda theta: np.ones(len(theta), dtype=bool), **options):
    ascent = Ascent(np.asarray(starts, dtype=float), box, **{"flat": 1e-6, "ftol": 1e-15, "most": 500, **options})
    while len(rows := ascent.unfinished()[:3]):  # three at a time, as slots would
        at = ascent.trial[rows]
        ascent.tell(rows, np.array([function(t) for t in at]), np.array([slope(t) for t in at]), usable(at))
    return ascent


def test_all_problems_climb_to_the_top():
    starts = RNG.uniform(-2, 2, size=(7, 2))
    ascent = climbed(lambda t: -rosen(t), lambda t: -rosen_der(t), starts)
    assert (ascent.reason == FLAT).all()
    np.testing.assert_allclose(ascent.theta, 1.0, atol=1e-5)
    assert ascent.evaluations.max() < 150


def test_bounds_hold_what_points_out_of_them():
    box = np.array([[-5.0, 0.5], [-5.0, 5.0]])
    ascent = climbed(lambda t: -rosen(t), lambda t: -rosen_der(t), [[-1.0, 2.0], [0.0, 0.0]], box)
    assert (ascent.reason == FLAT).all()
    np.testing.assert_allclose(ascent.theta, [[0.5, 0.25]] * 2, atol=1e-6)


def test_an_ascent_backs_away_from_failures():
    """Nothing is known beyond 0.7, and the top of the parabola is at 0.6."""
    ascent = climbed(
        lambda t: -np.sum((t - 0.6) ** 2), lambda t: -2 * (t - 0.6), [[-3.0, -3.0]],
        usable=lambda theta: (theta < 0.7).all(axis=1),
    )  # fmt: skip
    np.testing.assert_allclose(ascent.theta, 0.6, atol=1e-6)


def tail(t):
    """It approaches 0 as exp(−θ₁), the best θ₂ on the way 0.2 + 0.1 exp(−θ₁)."""
    fading = np.exp(-t[0])
    off = t[1] - 0.2 - 0.1 * fading
    return -fading - 15.0 * off**2, np.array([fading - 3.0 * off * fading, -30.0 * off])


def test_a_tail_is_followed_to_where_it_is_flat(monkeypatch):
    box, options = np.array([[-5.0, 25.0], [-5.0, 5.0]]), {"flat": 5e-5, "ftol": 1e-12}
    starts = [[0.0, 1.0], [1.0, -1.0], [-1.0, 0.0]]
    along = climbed(lambda t: tail(t)[0], lambda t: tail(t)[1], starts, box, **options)
    assert (along.reason == FLAT).all()
    assert (along.value > -5e-5).all()
    np.testing.assert_allclose(along.theta[:, 1], 0.2, atol=5e-5 / 30.0 + 1e-5)
    monkeypatch.setattr(ascent_module, "MAX_TAIL_SLOPE", 0.0)
    without = climbed(lambda t: tail(t)[0], lambda t: tail(t)[1], starts, box, **options)
    assert (without.reason == FLAT).all()
    assert (along.evaluations <= 0.75 * without.evaluations).all()


def test_what_looks_like_a_tail_and_has_a_top_is_climbed_to_the_top():
    """Up to θ = 4 the slope of −exp(−θ) − exp(θ − 8) falls at an even rate; there is the top."""

    def value(t):
        return -np.exp(-t[0]) - np.exp(t[0] - 8.0)

    def slope(t):
        return np.array([np.exp(-t[0]) - np.exp(t[0] - 8.0)])

    ascent = climbed(value, slope, [[-1.0], [0.0], [7.0]], np.array([[-5.0, 25.0]]), flat=1e-8)
    assert (ascent.reason == FLAT).all()
    np.testing.assert_allclose(ascent.theta, 4.0, atol=1e-6)


def test_a_curvature_that_rounding_made_singular_is_learned_afresh():
    ascent = Ascent(np.zeros((1, 2)), BOX, 1e-6, 1e-12, 10)
    ascent.curvature[0], ascent.steps[0] = np.diag([1.0, -1e-18]), 3
    ascent._update_curvature(np.array([0]), np.array([[0.0, 1.0]]), np.array([[0.0, 2.0]]))
    np.testing.assert_allclose(ascent.curvature[0], 2.0 * np.eye(2))


def test_an_ascent_says_how_it_ended():
    flat = climbed(lambda t: -rosen(t), lambda t: -rosen_der(t), [[-1.0, 1.0]], most=3)
    assert flat.reason == MAX_EVALUATIONS
    assert flat.evaluations == 3
    lost = climbed(rosen, rosen_der, [[0.0, 0.0]], usable=lambda theta: np.zeros(len(theta), dtype=bool))
    assert lost.reason == FAILED
    nothing = Ascent(np.zeros((2, 0)), np.zeros((0, 2)), 1e-6, 1e-12, 10)
    nothing.tell(np.arange(2), np.zeros(2), np.zeros((2, 0)), np.ones(2, dtype=bool))
    assert (nothing.reason != GOING).all()


def test_sites_that_scale_with_the_hyperparameters_are_extrapolated_exactly():
    """log τ and ν/√τ affine in θ: three points tell the rest. A site that is not positive stays."""
    slope, pull = RNG.normal(size=(4, 2)), RNG.normal(size=(4, 2))

    def sites(theta):
        tau = np.exp(0.3 + slope @ theta)
        nu = np.sqrt(tau) * (1.0 + pull @ theta)
        tau[3] = -1.0
        return Natural(nu[None], tau[None])

    one = np.zeros(1, dtype=int)
    known = WarmStarts(np.zeros((1, 2)), sites(np.zeros(2)))
    thetas = np.array([[0.0, 0.0], [0.5, 0.1], [0.2, 0.6]])
    for theta in thetas:
        known.add(one, theta[None], sites(theta))
    new, expected = known.at(one, np.array([[0.7, 0.4]])), sites(np.array([0.7, 0.4]))
    np.testing.assert_allclose(new.tau[0, :3], expected.tau[0, :3], rtol=1e-10)
    np.testing.assert_allclose(new.nu[0, :3], expected.nu[0, :3], rtol=1e-10)
    last = sites(thetas[-1])
    assert (new.nu[0, 3], new.tau[0, 3]) == (last.nu[0, 3], last.tau[0, 3])
    none = known.at(one[:0], np.zeros((0, 2)))  # after a step in which no problem is done with its trial
    assert none.nu.shape == none.tau.shape == (0, 4)


def test_near_points_tell_more_than_far_ones():
    """Sites that bend with θ: the two points beside the new one give the slope there, not the four far away."""

    def sites(t):
        return Natural(np.ones((1, 1)), np.exp(np.array([[t + 0.3 * t**2]])))

    one = np.zeros(1, dtype=int)
    known = WarmStarts(np.full((1, 1), -4.0), sites(-4.0))
    for theta in (-4.0, -3.0, 3.0, 4.0, 1.01, 1.0):
        known.add(one, np.full((1, 1), theta), sites(theta))
    found = known.at(one, np.full((1, 1), 1.02))
    assert found.tau[0, 0] == pytest.approx(sites(1.02).tau[0, 0], rel=2e-4)  # a chord over [-4, 4] is off by 0.6 %


def problems(count, n=44):
    rng = np.random.default_rng(6)
    x = [np.sort(rng.uniform(-3, 3, size=(n + i % 3, 1)), axis=0) for i in range(count)]
    y = [np.where(np.sin(2 * a[:, 0]) + 0.6 * rng.normal(size=len(a)) > 0, 1.0, -1.0) for a in x]
    return x, y


KERNEL = kernels.SquaredExponential(Parameter(1.0, bounds=(0.3, 20.0)), 1.0)  # one optimum, and no plateau
MODEL = Model(KERNEL, likelihoods.Probit(), mean=Parameter(0.1))


@pytest.fixture(scope="module")
def ten():
    """Ten problems learned at once, and what was reported on the way."""
    reports = []
    return fit_many(MODEL, *problems(10), "ep", report=lambda done, total: reports.append((done, total))), reports


def test_many_fits_are_those_one_by_one(ten):
    (x, y), model, (many, reports) = problems(10), MODEL, ten
    for one, a, b in zip(many, x, y, strict=True):
        single = fit(model, a, b, "ep")
        assert one.objective_value == pytest.approx(single.objective_value, rel=1e-6)
        assert one.converged
        assert len(one.trace) == one.status.evaluations
        ratio = [f.solution.marginals.mean / np.sqrt(1.0 + f.solution.marginals.variance) for f in (one, single)]
        np.testing.assert_allclose(*ratio, atol=1e-3)
        np.testing.assert_allclose(one.solution.loo, single.solution.loo, atol=1e-3)
    assert reports[-1] == (10, 10)
    new = [a + 0.1 for a in x]
    for latent, one, at in zip(predict_many([f.solution for f in many], new), many, new, strict=True):
        expected = one.solution.predict(at)
        np.testing.assert_allclose(latent.mean, expected.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(latent.variance, expected.variance, rtol=1e-9)


def test_more_problems_than_memory_holds_at_once(ten, monkeypatch):
    (x, y), whole = problems(10), ten[0]
    monkeypatch.setattr(batches, "DISTANCES_FRACTION", 8 * 64**2 / 2**33)  # one matrix of 64 × 64 in 8 GiB
    assert batches.held(Dense().cost(64)) == 1
    for one, other in zip(fit_many(MODEL, x[:4], y[:4], "ep"), whole[:4], strict=True):
        assert one.objective_value == pytest.approx(other.objective_value, rel=1e-9)


@pytest.mark.campaign
def test_models_may_differ_in_form_and_start():
    x, y = problems(2)
    models = [
        Model(kernels.Matern32(2.0, 0.5), likelihoods.Probit()),
        Model(kernels.SquaredExponential(), likelihoods.Probit(), mean=means.Linear([0.2])),
    ]
    for one, model, a, b in zip(fit_many(models, x, y, "ep"), models, x, y, strict=True):
        assert one.objective_value == pytest.approx(fit(model, a, b, "ep").objective_value, rel=1e-6)
        assert type(one.model.kernel) is type(model.kernel)


def test_each_problem_has_its_own_bounds():
    x, y = problems(2)
    models = [
        Model(kernels.SquaredExponential(1.0, Parameter(1.0, bounds=(0.9, top))), likelihoods.Probit())
        for top in (1.1, 3.0)
    ]
    tight, wide = fit_many(models, [x[0]] * 2, [y[0]] * 2, "ep")
    assert 0.9 <= tight.model.kernel.lengthscale.value <= 1.1
    single = fit(models[1], x[0], y[0], "ep")
    assert wide.objective_value == pytest.approx(single.objective_value, rel=1e-6)


@pytest.mark.campaign
def test_a_problem_with_nothing_to_learn_is_inferred():
    x, y = problems(1)
    model = Model(
        kernels.SquaredExponential(Parameter(1.5, fixed=True), Parameter(0.8, fixed=True)), likelihoods.Probit()
    )
    (one,) = fit_many(model, x, y, "ep")
    single = fit(model, x[0], y[0], "ep")
    assert one.objective_value == pytest.approx(single.objective_value, abs=1e-9)
    assert one.solution.converged


def blas_threads():
    import scipy.linalg  # noqa: F401

    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_overlapping_limits_of_blas_threads_end_with_the_last():
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before


def test_columns_of_different_length_are_refused():
    x, y = problems(2)
    with pytest.raises(ValueError, match="one entry per problem"):
        fit_many(Model(kernels.SquaredExponential(), likelihoods.Probit()), x, y[:1])
    with pytest.raises(ValueError, match="one entry per solution"):
        predict_many([], x)


@pytest.mark.campaign
def test_learning_that_begins_next_to_its_optimum_ends_there():
    """The first value must be exact enough for the small gains that are left from there."""
    x, y = problems(1)
    model = Model(kernels.SquaredExponential(), likelihoods.Probit())
    near = fit(model, x[0], y[0], "ep").model  # QP's optimum is close by
    alone, batched = fit(near, x[0], y[0], "qp"), fit_many(near, x, y, "qp")[0]
    for fitted in (alone, batched):
        assert fitted.status.reason == "converged"
        assert fitted.status.evaluations <= 12
    np.testing.assert_allclose(batched.theta, alone.theta, atol=1e-3)
