"""Components of additive kernels against dense algebra, and their Sobol indices against draws of the columns."""

import time

import jax
import numpy as np
import pytest

from quantprop import Inducing, Model, Parameter, fit, infer, kernels, likelihoods
from quantprop.inference.components import Decomposition
from quantprop.kernels import Additive

RNG = np.random.default_rng(11)
N, LENGTHS = 60, [0.8, 1.5]
X = np.column_stack([RNG.normal(size=N), RNG.integers(0, 2, N), RNG.uniform(-1, 1, N), RNG.normal(size=N)])
F = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
NEW = X[:9] + np.array([0.2, 0.0, -0.1, 0.3])
VARIANCE = [0.4, 1.1, 0.7]
with jax.enable_x64(True):
    OWN = Additive(2, variance=VARIANCE, lengthscale=LENGTHS, relevance=[0.8]).measured(X[:, :3])
KERNEL = kernels.Constant(Parameter(2.0, fixed=True)) * OWN.on([0, 1, 2]) + kernels.SquaredExponential(0.5, 2.0).on(3)
NAMES = ["level", "0", "1", "2", "0:1", "0:2", "1:2", "se(3)"]
CASES = {
    "gaussian": (likelihoods.Gaussian(0.3), F + 0.3 * RNG.normal(size=N)),
    "probit": (likelihoods.Probit(), np.sign(F + 0.3 * RNG.normal(size=N))),
}


def prior_of_each(x, z):
    """The prior covariances of all components, in the order of NAMES, written out."""
    with jax.enable_x64(True):
        a, b, c = np.asarray(OWN.each(x[:, :3], z[:, :3]))
    level, one, two = 2.0 * np.array(VARIANCE) / [1, 3, 3]
    other = 0.5 * np.exp(-0.5 * ((x[:, [3]] - z[:, 3]) / 2.0) ** 2)
    return [level * np.ones_like(a), one * a, one * b, one * c, two * a * b, two * a * c, two * b * c, other]


def dense(solution, x):
    """Means and the joint covariance of all components by (K + S⁻¹)⁻¹."""
    k = sum(prior_of_each(X, X))
    inverse = np.linalg.inv(k + np.diag(1.0 / solution.sites.tau))
    across = np.hstack(prior_of_each(X, x))
    own = prior_of_each(x, x)
    whole = np.zeros((len(own) * len(x),) * 2)
    for i, each in enumerate(own):
        whole[i * len(x) : (i + 1) * len(x), i * len(x) : (i + 1) * len(x)] = each
    return across.T @ inverse @ (solution.sites.nu / solution.sites.tau), whole - across.T @ inverse @ across


each_case = pytest.mark.parametrize("name", ["probit", pytest.param("gaussian", marks=pytest.mark.campaign)])


@each_case
def test_components_are_those_of_dense_algebra(name):
    likelihood, y = CASES[name]
    solution = infer(Model(KERNEL, likelihood), X, y, "ep")
    found = solution.components(NEW)
    assert list(found) == NAMES
    mean, covariance = dense(solution, NEW)
    np.testing.assert_allclose(np.concatenate([part.mean for part in found.values()]), mean, rtol=0, atol=1e-8)
    variances = np.concatenate([part.variance for part in found.values()])
    np.testing.assert_allclose(variances, np.diagonal(covariance), rtol=0, atol=1e-8)
    joint = found.joint()
    np.testing.assert_allclose(joint.mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(joint.covariance, covariance, rtol=0, atol=1e-8)
    total = sum(part.mean for part in found.values())
    np.testing.assert_allclose(total, solution.predict(NEW).mean, rtol=0, atol=1e-10)
    chosen = solution.components(NEW, order=1)
    assert list(chosen) == [*NAMES[:4], "order > 1", NAMES[7]]
    np.testing.assert_allclose(chosen["1"].mean, found["1"].mean, rtol=0, atol=1e-12)
    together = found["0:1"].mean + found["0:2"].mean + found["1:2"].mean
    np.testing.assert_allclose(chosen["order > 1"].mean, together, rtol=0, atol=1e-10)
    assert found.sample(3)["0:1"].shape == (3, len(NEW))


def test_components_with_a_learned_mean_add_up_with_all_that_is_known_of_it():
    model = Model(KERNEL, likelihoods.Gaussian(0.3), mean=Parameter(5.0))
    solution = infer(model, X, CASES["gaussian"][1] + 5.0, "ep")
    found, whole = solution.components(NEW), solution.predict(NEW, full_cov=True)
    np.testing.assert_allclose(sum(part.mean for part in found.values()), whole.mean, rtol=0, atol=1e-10)
    joint, k = found.joint().covariance, len(NEW)
    summed = np.tile(np.eye(k), len(NAMES) + 1)
    np.testing.assert_allclose(summed @ joint @ summed.T, whole.covariance, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found["0:1"].variance, np.diagonal(joint)[4 * k : 5 * k], rtol=1e-8)


@pytest.mark.campaign
def test_components_from_inducing_points_at_the_rows_are_the_exact_ones():
    likelihood, y = CASES["gaussian"]
    exact = infer(Model(KERNEL, likelihood), X, y, "ep").components(NEW)
    found = infer(Model(KERNEL, likelihood, process=Inducing(X, jitter=1e-12)), X, y, "ep").components(NEW)
    for name in NAMES:
        np.testing.assert_allclose(found[name].mean, exact[name].mean, rtol=0, atol=1e-5)
        np.testing.assert_allclose(found[name].variance, exact[name].variance, rtol=0, atol=1e-5)


def test_components_of_other_kernels_are_refused():
    solution = infer(Model(kernels.Matern32(), likelihoods.Gaussian()), X, F, "ep")
    for refused in (lambda: solution.components(X), solution.sobol):
        with pytest.raises(ValueError, match=r"sum of additive, linear.*Additive\(order=2\)"):
            refused()
    solution = infer(Model(OWN.on([0, 1, 2]) * kernels.Linear().on(3), likelihoods.Gaussian()), X, F, "ep")
    with pytest.raises(ValueError, match="sum of additive, linear"):
        solution.sobol()


def test_names_of_components():
    kernel, names = (
        Additive(1, factors=((0,), (1, 2))).measured(np.eye(3)[[0, 1, 2, 0]]),
        ("age", "colour=red", "colour=blue"),
    )
    term = Decomposition.of_term(kernels.located(kernel.on(list(names)), names), 3)
    assert [term.name(some) for some in ((), (0,), (1,))] == ["level", "age", "colour"]


@each_case
def test_sobol_indices_are_variances_under_the_distribution_of_the_columns(name):
    """For each joint draw of all components on the grid of all nodes, the indices are weighted sums of squares."""
    likelihood, y = CASES[name]
    x = np.column_stack([np.round(2.0 * X[:, 0]) / 2.0, X[:, 1], np.round(3.0 * X[:, 2]) / 3.0])
    solution = fit(Model(Additive(2, lengthscale=LENGTHS), likelihood), x, y, "ep", max_evaluations=5).solution
    points, weights = solution.model.kernel.points()
    places = np.array([[i, j, k] for i in range(32) for j in range(2) for k in range(32)])
    places = places[(weights[np.arange(3), places] > 0).all(axis=1)]
    assert len(np.unique(points[places, np.arange(3)], axis=0)) == len(places)
    share = np.prod(weights[np.arange(3), places], axis=1)
    grid = points[places, np.arange(3)]
    drawn = solution.components(grid).sample(4000, seed=1)
    explained = {key: (each**2) @ share for key, each in drawn.items() if key != "level"}
    total = sum(explained.values())
    found = solution.sobol(4000, seed=2)
    assert found.shares.keys() == explained.keys()
    assert list(found.shares.values()) == sorted(found.shares.values(), reverse=True)
    for key, own in found.shares.items():
        wanted = explained[key] / total
        np.testing.assert_allclose(own.share, wanted.mean(), atol=0.01)
        np.testing.assert_allclose([own.lower, own.upper], np.quantile(wanted, (0.025, 0.975)), atol=0.02)
    np.testing.assert_allclose(sum(own.share for own in found.shares.values()), 1.0, rtol=1e-12)
    of_first = (explained["0"] + explained["0:1"] + explained["0:2"]) / total
    np.testing.assert_allclose(found.totals["0"].share, of_first.mean(), atol=0.01)


def test_sobol_indices_of_the_mean_against_a_million_draws_of_the_columns():
    """Little noise: the posterior is a point, and its indices those of a known function."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.repeat(np.linspace(-1, 1, 15), 15), np.tile(np.linspace(-1, 1, 15), 15)])

    def function(a, b):
        return np.sin(2.0 * a) + 0.5 * b**2 + 0.8 * a * b

    model = Model(Additive(2, lengthscale=[1.0, 1.0]).measured(x), likelihoods.Gaussian(1e-3))
    found = infer(model, x, function(*x.T), "ep").sobol(50)
    a, b, c, d = rng.choice(np.linspace(-1, 1, 15), (4, 10**6))
    f = function(a, b)
    main = {"0": np.cov(f, function(a, c))[0, 1], "1": np.cov(f, function(d, b))[0, 1]}
    wanted = {key: value / f.var() for key, value in main.items()}
    wanted["0:1"] = 1.0 - sum(wanted.values())
    for key, value in wanted.items():
        np.testing.assert_allclose(found.shares[key].share, value, atol=0.003)


@pytest.mark.campaign
def test_sobol_indices_of_30_columns_and_800_rows_take_at_most_10_seconds():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 30))
    y = np.sign(x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=800))
    kernel = Additive(2).measured(x)
    solution = infer(Model(kernel, likelihoods.Probit()), x, y, "ep")
    began = time.process_time()
    found = solution.sobol()
    assert time.process_time() - began < 10.0  # of one core; wall-clock time depends on what else runs
    assert (len(found.shares), next(iter(found.totals))) == (465, "0")
