"""Low rank plus neighbours: exact where all rows are neighbours, gradients of its evidence, and which rows it sees."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from quantprop import (
    Dense,
    GaussianProcessRegressor,
    Inducing,
    Model,
    Neighbours,
    Parameter,
    PowerEP,
    fit,
    infer,
    kernels,
    likelihoods,
    load,
)
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.methods import by_name
from quantprop.priors.neighbours.conditionals import inverted
from quantprop.priors.neighbours.process import _bases
from quantprop.priors.neighbours.sets import NONE, _order, around, earlier, scaled

TIGHT = {"tol": 1e-11, "max_sweeps": 600}
KERNEL = kernels.Matern32(2.0, 1.1)


def table(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1], rng


def observed(name: str, f: np.ndarray, rng: np.random.Generator):
    return {
        "probit": (likelihoods.Probit(), np.sign(f + 0.3 * rng.normal(size=len(f)))),
        "poisson": (likelihoods.Poisson(), rng.poisson(np.exp(f)).astype(float)),
        "student-t": (likelihoods.StudentT(3.0, 0.3), f + 0.3 * rng.standard_t(2, size=len(f))),
    }[name]


METHODS = ("ep", "qp", "vb", "laplace", "power-ep")
DEFAULT = (("probit", "ep", 0),)
ALL = [
    (name, method, points) for name in ("probit", "poisson", "student-t") for method in METHODS for points in (0, 20)
]


@pytest.mark.parametrize(
    ("name", "method", "points", "n"),
    [(*case, 24) for case in DEFAULT] + [pytest.param(*case, 150, marks=pytest.mark.campaign) for case in ALL],
)
def test_with_all_rows_as_neighbours_it_is_exact(name, method, points, n):
    x, f, rng = table(n)
    likelihood, y = observed(name, f, rng)
    weights = rng.integers(1, 3, n).astype(float) if name == "probit" else None
    new, method = rng.normal(size=(7, 2)), PowerEP(0.5) if method == "power-ep" else by_name(method)

    def found(process=None, count=None):
        given = {} if process is None else {"process": process}
        return infer(Model(KERNEL, likelihood, mean=0.3, **given), x, y, method, weights=weights, **TIGHT)

    exact = found()
    near = found(Inducing(points, neighbours=n) if points else Neighbours(n))
    assert exact.converged, exact.status
    assert near.converged, near.status
    assert near.log_evidence == pytest.approx(exact.log_evidence, abs=1e-8)
    np.testing.assert_allclose(near.marginals.mean, exact.marginals.mean, atol=1e-8)
    np.testing.assert_allclose(near.marginals.variance, exact.marginals.variance, rtol=1e-8)
    np.testing.assert_allclose(near.loo, exact.loo, atol=1e-8)
    ahead, expected = near.predict(new), exact.predict(new)
    np.testing.assert_allclose(ahead.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(ahead.variance, expected.variance, rtol=1e-8)


@pytest.mark.parametrize(
    ("method", "points", "n", "m"),
    [
        ("ep", 10, 40, 4),
        *[pytest.param(a, b, 300, 8, marks=pytest.mark.campaign) for a in ("ep", "qp") for b in (0, 10)],
    ],
)
def test_gradients_of_the_reported_evidence(method, points, n, m):
    x, f, rng = table(n)
    likelihood, y = observed("probit", f, rng)
    process = Inducing(points, neighbours=m) if points else Neighbours(m)
    model = Model(KERNEL, likelihood, mean=Parameter(0.1), process=process)
    task = prepare(model, x, y, by_name(method))
    landscape = Landscape(task.model, task, by_name(method), as_objective("evidence"), tol=1e-11)
    theta = packed(landscape.parts)
    at = landscape.at(theta)
    assert at.usable, at.reason
    ways = np.eye(len(theta)) if n == 300 else [np.linspace(0.7, -0.4, len(theta))]  # or one that changes all of them
    for way in ways:
        ends = landscape.at(theta + 1e-4 * way).value, landscape.at(theta - 1e-4 * way).value
        assert at.gradient @ way == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5, abs=1e-6)


@pytest.mark.campaign
def test_more_neighbours_come_closer_to_the_exact_evidence():
    gaps = []
    for seed in range(4):
        x, f, rng = table(120, seed)
        likelihood, y = observed("poisson", f, rng)
        exact = infer(Model(KERNEL, likelihood), x, y, "ep").log_evidence
        gaps.append([infer(Model(KERNEL, likelihood, process=Neighbours(m)), x, y, "ep").log_evidence - exact
                     for m in (2, 8, 30)])  # fmt: skip
    few, some, many = np.abs(gaps).mean(axis=0)
    assert few > 2.0 * some > 4.0 * many


def test_neighbours_are_the_nearest_rows():
    x, _, _ = table(400)
    x[:, 1] *= 100.0  # under a lengthscale as large
    kernel = kernels.Matern32(2.0, np.array([1.0, 100.0]))
    with jax.enable_x64(True):
        basis, (_, places) = _bases(None, (x[:0],), kernel), scaled(kernel, x)
        sides = around(basis, x, places, 8)
        before = earlier(basis, x, places, 8, seed=3)
    true = cdist(x / [1.0, 100.0], x / [1.0, 100.0])
    np.fill_diagonal(true, np.inf)
    np.testing.assert_array_equal(np.sort(sides, axis=1), np.sort(np.argsort(true, axis=1)[:, :8], axis=1))
    order, apart = _order(basis, places, 3), cdist(places, places) + np.diag(np.full(400, np.inf))
    assert (np.diff(apart.min(axis=1)[order]) < 1e-9).all()  # isolated rows first
    rank = np.argsort(order)
    for row in range(400):
        some = before[row][before[row] != NONE]
        assert (rank[some] < rank[row]).all()
        assert len(set(some)) == len(some) == min(8, rank[row])
        allowed = np.where(rank < rank[row], true[row], np.inf)
        exact = set(np.argsort(allowed)[: len(some)])
        assert len(exact - set(some)) <= 1


def test_neighbours_are_of_the_same_group_where_groups_are_independent():
    x, _, rng = table(200)
    x[:, 1] = rng.integers(0, 4, 200)
    kernel = kernels.Matern32(1.0, 1.0).on([0]) * kernels.Categories(1.0).on([1])
    with jax.enable_x64(True):
        sides = around(_bases(None, (x[:0],), kernel), x, scaled(kernel, x)[1], 5)
    assert (x[sides, 1] == x[:, 1:]).mean() > 0.99


@pytest.mark.campaign
def test_terms_are_those_of_exact_inference():
    x, f, rng = table(30)
    likelihood, y = observed("probit", f, rng)
    x = np.column_stack([x, rng.integers(0, 3, 30)])
    surface, rest = kernels.SquaredExponential(1.5, 0.8).on([0]), kernels.Categories(0.2).on([2])
    kernel = surface + rest + kernels.Linear(0.7).on([1])
    exact, near = (infer(Model(kernel, likelihood, process=process), x, y, "ep", **TIGHT)
                   for process in (Dense(), Inducing(6, neighbours=30)))  # fmt: skip
    new = x[:4] + np.array([0.1, 0.1, 0.0])
    for name, expected in exact.terms(new).items():
        found = near.terms(new)[name]
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-8)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-7)
    for name, effect in exact.fixed_effects().items():
        np.testing.assert_allclose(near.fixed_effects()[name], effect, rtol=1e-7)


@pytest.mark.campaign
def test_terms_that_many_rows_share_are_exact_with_few_neighbours():
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.uniform(size=(120, 2)), rng.normal(size=120) + 5.0, rng.integers(0, 6, 120)])
    y = rng.poisson(np.exp(np.sin(6.0 * x[:, 0]) + 0.3 * (x[:, 2] - 5.0)))
    surface = kernels.SquaredExponential(0.5, 0.1).on([0, 1])
    kernel = surface + kernels.Linear(9.0).on([2]) + kernels.Categories(0.2).on([3]) + kernels.Constant(9.0)
    exact, near = (infer(Model(kernel, likelihoods.Poisson(), process=process), x, y, "ep", **TIGHT)
                   for process in (Dense(), Neighbours(30)))  # fmt: skip
    assert [len(z) for z in near.model.process.exact] == [0, 1, 6, 1]
    for name, effect in exact.fixed_effects().items():
        np.testing.assert_allclose(near.fixed_effects()[name].estimate, effect.estimate, atol=0.05 * effect.error)
        np.testing.assert_allclose(near.fixed_effects()[name].error, effect.error, rtol=0.03)
    found, expected = (each.terms(x[:6] + 0.0)["group(3)"] for each in (near, exact))
    np.testing.assert_allclose(found.mean, expected.mean, atol=0.02)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=0.02)


@pytest.mark.parametrize(
    "process", [Inducing(6, neighbours=64), pytest.param(Neighbours(64), marks=pytest.mark.campaign)]
)
def test_equal_rows_and_fewer_rows_than_neighbours(process):
    x, f, rng = table(20)
    x[5:12] = x[5]
    likelihood, y = observed("probit", f, rng)
    exact = infer(Model(KERNEL, likelihood), x, y, "ep", **TIGHT)
    near = infer(Model(KERNEL, likelihood, process=process), x, y, "ep", **TIGHT)
    assert near.converged
    assert near.log_evidence == pytest.approx(exact.log_evidence, abs=1e-8)


def test_learned_saved_and_loaded(tmp_path):
    rows, f, rng = table(260)
    likelihood, labels = observed("probit", f, rng)
    (x, new), (y, others) = (np.split(column, [60]) for column in (rows, labels))
    kernel = kernels.Matern32(2.0, np.array([0.5, 5.0]))  # under which other rows are the nearest
    fitted = fit(Model(kernel, likelihood, process=Neighbours(20)), x, y, "ep")
    exact = fit(Model(kernel, likelihood), x, y, "ep")
    assert fitted.status.reason == "converged"
    assert 1 < fitted.status.rounds <= 4
    assert fitted.objective_value == pytest.approx(exact.objective_value, abs=1.0)
    assert repr(fitted.model.process) == "Neighbours(20)"
    fitted.save(tmp_path / "fitted")
    again = load(tmp_path / "fitted")
    np.testing.assert_array_equal(again.solution.predict(new).mean, fitted.solution.predict(new).mean)
    near, far = (one.solution.predict_y(new).log_prob(others).mean() for one in (fitted, exact))
    assert near == pytest.approx(far, abs=0.02)


@pytest.mark.parametrize("m", [1, 7, 8, 9, 32, 33])
def test_small_matrices_are_inverted(m):
    rng = np.random.default_rng(m)
    x = rng.uniform(size=(m, 2))
    matrix = np.eye(m) + rng.uniform(-0.1, 2.0, m)[:, None] * np.exp(-cdist(x, x))
    with jax.enable_x64(True):
        found = np.asarray(inverted(matrix))
    np.testing.assert_allclose(found, np.linalg.inv(matrix), atol=1e-12)


@pytest.mark.parametrize("m", [3, pytest.param(16, marks=pytest.mark.campaign)])
def test_a_learned_mean_is_as_uncertain_as_the_integral_over_f_says(m):
    """Also where a smooth function is seen by few neighbours only: marginals are then of no common Gaussian."""
    x, _, rng = table(200)
    y = np.sign(np.sin(x[:, 0]) + rng.normal(size=200))
    model = Model(kernels.SquaredExponential(1.0, 2.0), likelihoods.Probit(), Parameter(0.2), Neighbours(m))
    solution = infer(model, x, y, "ep")

    def integral(mean: float) -> float:
        with jax.enable_x64(True):
            process, sites = solution.model.plain_process, jax.tree.map(jax.numpy.asarray, solution.sites)
            prepared = process.prepare(model.plain_kernel, jax.numpy.asarray(x))
            prior = process.prior(model.plain_kernel, jax.numpy.full(200, mean), prepared)
            given = prior.condition(sites, False)
            at = given.marginals
            own = at.mean * (sites.nu - 0.5 * sites.tau * at.mean) - 0.5 * (at.mean - mean) * at.alpha
            return float(own.sum() - 0.5 * given.log_determinant)

    curvature = (integral(0.7) - 2.0 * integral(0.2) + integral(-0.3)) / 0.25
    error = solution.fixed_effects()["mean"].error
    assert error == pytest.approx((-curvature) ** -0.5, rel=1e-6)


def test_a_joint_posterior_is_that_of_what_neighbours_leave_of_each_value():
    """f_i − bᵢᵀz of each value's own neighbours, whose covariance follows from that of all values and pseudo-data."""
    x, f, rng = table(100)
    likelihood, y = observed("poisson", f, rng)
    new = np.concatenate([rng.normal(size=(10, 2)), x[:3] + 1e-3])
    near = infer(Model(KERNEL, likelihood, process=Neighbours(12)), x, y, "ep", **TIGHT)
    found = near.predict(new, full_cov=True)
    with jax.enable_x64(True):
        k = np.asarray(KERNEL.gram(np.concatenate([new, x])))
        sets = near.model.process.facing(KERNEL, x, new).near.astype(int)
    noisy = k + np.diag(np.concatenate([np.zeros(13), 1.0 / near.sites.tau]))
    left = np.eye(13, 113)
    for row, some in enumerate(13 + sets):
        left[row, some] = -np.linalg.solve(noisy[np.ix_(some, some)], k[some, row])
    np.testing.assert_allclose(found.covariance, left @ noisy @ left.T, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(found.variance, near.predict(new).variance, rtol=1e-12)
    assert near.sample(new, 50, seed=1).shape == (50, 13)


@pytest.mark.parametrize("n", [24, pytest.param(90, marks=pytest.mark.campaign)])
def test_effects_of_levels_are_those_of_exact_inference(n):
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"x": rng.uniform(size=n), "ward": rng.choice(["a", "b", "c", "d"], n)})
    y = rng.poisson(np.exp(np.sin(6.0 * frame["x"]) + 0.5 * (frame["ward"] == "b")))
    fits = [
        GaussianProcessRegressor("se(x) + group(ward)", likelihood="poisson", method="ep", optimizer=None,
                                 process=process).fit(frame, y)
        for process in (Dense(), Neighbours(n))
    ]  # fmt: skip
    exact, near = (one.levels("ward").frame() for one in fits)
    assert list(near["level"]) == list(exact["level"]) == ["a", "b", "c", "d"]
    for name in ("estimate", "error", "rank"):
        np.testing.assert_allclose(near[name], exact[name], atol=1e-6)
    some, all_of = (one.contrasts("ward").frame() for one in fits)
    np.testing.assert_allclose(some["difference"], all_of["difference"], atol=1e-3)
