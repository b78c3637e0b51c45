"""Effects on f of squared exponential and linear kernels, and of stacks, against sums over products of columns."""

from itertools import combinations

import jax
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import rankdata

from quantprop import Model, fit, infer, likelihoods, stack
from quantprop.core.parameters import as_fixed
from quantprop.kernels import Additive, Columns, Constant, Linear, RankNormal, SquaredExponential, Standardised, White

RNG = np.random.default_rng(4)
N = 40
X = np.column_stack([np.round(RNG.normal(size=N)), RNG.integers(0, 2, N), np.round(3.0 * RNG.uniform(-1, 1, N)) / 3.0])
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * RNG.normal(size=N)
WEIGHTS = RNG.integers(0, 3, N).astype(float)
NEW = X[:4] + np.array([0.2, 0.0, -0.1])
CENTRE, SCALE, LENGTHS = np.array([0.1, 0.2, 0.0]), np.array([1.0, 2.0, 1.0]), np.array([0.8, 1.0, 2.0])
ZERO = np.array([0.3, 0.0, 0.0])
SMOOTH = Constant(1.7) * (Standardised(SquaredExponential(1.3, LENGTHS), CENTRE, SCALE) + Linear(0.7, ZERO))
NAMES = ["level", "0", "1", "2", "0:1", "0:2", "1:2", "order > 2"]


def covariance(x, z):
    """That of SMOOTH + Constant(0.4), written out."""
    squares = np.sum(((x[:, None] - z) / SCALE / LENGTHS) ** 2, axis=-1)
    return 1.7 * (1.3 * np.exp(-0.5 * squares) + 0.7 * (x - ZERO) @ (z - ZERO).T) + 0.4


def distributions(x, weights):
    """Distinct values of each column and their frequencies."""
    found = []
    for column in x.T:
        values = np.unique(column[weights > 0])
        share = np.array([weights[column == value].sum() for value in values])
        found.append((values, share / share.sum()))
    return found


def averages(some, z, each):
    """Points and weights of E[f | columns `some` at z] over the product of all distributions."""
    values = [np.array([z[i]]) if i in some else own for i, (own, _) in enumerate(each)]
    shares = [np.ones(1) if i in some else share for i, (_, share) in enumerate(each)]
    grid = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, 3)
    return grid, np.prod(np.stack(np.meshgrid(*shares, indexing="ij"), axis=-1), axis=-1).ravel()


def functional(name, z, each):
    """Points and weights of an effect at z: the inclusion and exclusion of averages."""
    if name == NAMES[-1]:
        lower = [functional(other, z, each) for other in NAMES[:-1]]
        return np.vstack([z, *(points for points, _ in lower)]), np.concatenate([[1.0], *(-w for _, w in lower)])
    some = () if name == "level" else tuple(map(int, name.split(":")))
    parts = [(averages(few, z, each), (-1.0) ** (len(some) - q)) for q in range(len(some) + 1)
             for few in combinations(some, q)]  # fmt: skip
    return np.vstack([grid for (grid, _), _ in parts]), np.concatenate([sign * w for (_, w), sign in parts])


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_effects_are_those_of_sums_over_all_columns(weights):
    model = Model(SMOOTH + Constant(0.4), likelihoods.Gaussian(0.2))
    solution = infer(model, X, Y, "ep", weights=weights)
    found, each = solution.components(NEW), distributions(X, np.ones(N) if weights is None else weights)
    assert list(found) == NAMES
    count = solution.sites.tau > 0
    rows, tau, nu = X[count], solution.sites.tau[count], solution.sites.nu[count]
    inverse = np.linalg.inv(covariance(rows, rows) + np.diag(1.0 / tau))
    for name in NAMES:
        for i, z in enumerate(NEW):
            points, w = functional(name, z, each)
            across, own = covariance(rows, points) @ w, found[name]
            wanted = across @ inverse @ (nu / tau), w @ covariance(points, points) @ w - across @ inverse @ across
            np.testing.assert_allclose([own.mean[i], own.variance[i]], wanted, rtol=0, atol=1e-8)
    total = sum(part.mean for part in found.values())
    np.testing.assert_allclose(total, solution.predict(NEW).mean, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match=r"joint posteriors of components need an additive kernel"):
        found.sample(3)


@pytest.mark.parametrize("name", ["smooth", pytest.param("additive", marks=pytest.mark.campaign)])
def test_sobol_indices_are_those_of_draws_over_all_columns(name):
    """Of joint draws of f at all combinations of values of the columns: weighted sums of squares of their effects."""
    with jax.enable_x64(True):
        kernel = {"smooth": SMOOTH, "additive": Additive(3).measured(X)}[name]
        kernel = Model(kernel, likelihoods.Gaussian(0.2)).plain_kernel
    solution = infer(Model(kernel + White(0.1), likelihoods.Gaussian(0.2)), X, Y, "ep")
    each = distributions(X, np.ones(N))
    shape = [len(values) for values, _ in each]
    grid, _ = averages((), None, each)
    with jax.enable_x64(True):
        prior = np.asarray(kernel.cross(grid, grid)), np.asarray(kernel.cross(X, grid))
        inverse = np.linalg.inv(np.asarray(kernel.cross(X, X)) + np.diag(0.1 + 1.0 / solution.sites.tau))
    mean = prior[1].T @ inverse @ (solution.sites.nu / solution.sites.tau)
    values, vectors = np.linalg.eigh(prior[0] - prior[1].T @ inverse @ prior[1])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = (mean + np.random.default_rng(1).normal(size=(4000, len(mean))) @ root.T).reshape(-1, *shape)
    explained = {}
    for q in range(1, 4):
        for some in combinations(range(3), q):
            part = drawn
            for v, (_, share) in enumerate(each):
                average = np.expand_dims(np.tensordot(part, share, (v + 1, 0)), v + 1)
                part = part - average if v in some else np.broadcast_to(average, part.shape)
            explained[some] = np.einsum("dijk,i,j,k->d", part**2, *(share for _, share in each))
    whole, found = sum(explained.values()), solution.sobol(4000, seed=2)
    assert set(found.shares) == set(NAMES[1:])
    for some, own in explained.items():
        name = ":".join(map(str, some)) if len(some) < 3 else NAMES[-1]
        np.testing.assert_allclose(found.shares[name].share, (own / whole).mean(), atol=0.005)
        if len(some) < 3:  # of the rest the expected variance is taken
            ends = [found.shares[name].lower, found.shares[name].upper]
            np.testing.assert_allclose(ends, np.quantile(own / whole, (0.025, 0.975)), atol=0.015)
    for i in range(3):
        own = sum(own for some, own in explained.items() if i in some)
        np.testing.assert_allclose(found.totals[str(i)].share, (own / whole).mean(), atol=0.005)


def stacked():
    """An additive model, one of rank-normal columns, and a linear one with noise."""
    scores = RankNormal(SquaredExponential(1.0, LENGTHS) + Linear()).measured(X)
    additive = Columns(Additive(2, variance=[1.0, 1.0, 0.5], lengthscale=[0.8, 1.5], relevance=[0.8]), (0, 1, 2))
    each = {"additive": additive, "ranks": scores, "linear": Linear() + Constant() + White(0.1)}
    models = {name: as_fixed(Model(kernel, likelihoods.Gaussian(0.3))) for name, kernel in each.items()}
    return stack({name: fit(model, X, Y, "ep") for name, model in models.items()})


def test_effects_of_a_stack_are_those_of_its_models_by_weight():
    found = stacked()
    effects = found.effects(NEW)
    assert list(effects) == [*NAMES[:7], "order > 2", "white()"]
    np.testing.assert_allclose(sum(part.mean for part in effects.values()), found.predict(NEW).mean, rtol=0, atol=1e-10)
    solutions, weights = [one.fitted.solution for one in found.members], [one.weight for one in found.members]
    each = [solution.components(NEW) for solution in solutions]
    for name, own in effects.items():
        parts = [one.get(name) for one in each]
        means = np.array([np.zeros(len(NEW)) if part is None else part.mean for part in parts])
        variances = np.array([np.zeros(len(NEW)) if part is None else part.variance for part in parts])
        np.testing.assert_allclose(own.mean, np.dot(weights, means), rtol=0, atol=1e-12)
        variance = np.dot(weights, variances + means**2) - own.mean**2
        np.testing.assert_allclose(own.variance, variance, rtol=0, atol=1e-12)
    shares, alone = found.sobol(3000).shares, [solution.sobol(1000).shares for solution in solutions]
    for name in NAMES[1:]:
        wanted = sum(w * one[name].share for w, one in zip(weights, alone, strict=True) if name in one)
        np.testing.assert_allclose(shares[name].share, wanted, atol=0.02)


@pytest.mark.parametrize(
    "kernel", [Linear(0.5), SquaredExponential() + Linear(0.5), SquaredExponential(), Constant(2.0)], ids=str
)
def test_what_a_column_without_variation_adds_is_in_the_level(kernel):
    x = np.column_stack([np.linspace(-2.0, 2.0, 12), np.full(12, 3.0)])
    solution = infer(Model(kernel, likelihoods.Gaussian(0.1)), x, np.sin(x[:, 0]) + 1.0, "ep")
    found, mean = solution.components(x), solution.predict(x).mean
    np.testing.assert_allclose(sum(own.mean for own in found.values()), mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["level"].mean, mean.mean(), rtol=0, atol=1e-10)
    assert list(solution.sobol(20).shares) == ([] if isinstance(kernel, Constant) else ["0"])


def test_effects_on_rank_normal_columns_are_those_on_the_scores():
    """The average over rows of the one other column."""
    x = X[:, [0, 2]]
    kernel = RankNormal(SquaredExponential(1.0, [0.8, 1.5])).measured(x)
    solution = infer(Model(kernel, likelihoods.Gaussian(0.3)), x, Y, "ep")
    scores = np.column_stack([ndtri((rankdata(column) - 0.5) / N) for column in x.T])
    plain = infer(Model(SquaredExponential(1.0, [0.8, 1.5]), likelihoods.Gaussian(0.3)), scores, Y, "ep")
    every = [np.column_stack([np.full(N, row[0]), scores[:, 1]]) for row in scores[:5]]
    average = np.array([plain.predict(points).mean.mean() for points in every])
    found = solution.components(x[:5])
    np.testing.assert_allclose(found["0"].mean + found["level"].mean, average, rtol=0, atol=1e-8)


@pytest.mark.campaign
def test_a_stack_of_800_rows_and_30_columns_has_every_curve_and_surface():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 30))
    y = np.sign(x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=800))
    smooth = SquaredExponential(1.0, np.full(30, 8.0)) + Linear(0.1)
    each = {"additive": Additive(2).measured(x), "smooth": smooth, "ranks": RankNormal(smooth).measured(x)}
    models = {name: as_fixed(Model(kernel, likelihoods.Probit())) for name, kernel in each.items()}
    shares = stack({name: fit(model, x, y, "ep") for name, model in models.items()}).sobol()
    assert (len(shares.shares), next(iter(shares.totals))) == (466, "0")
