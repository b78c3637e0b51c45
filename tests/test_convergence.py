"""Convergence over wide grids of hyperparameters, by `make test-all`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import EP, Model, datasets, infer, kernels, likelihoods
from quantprop.core.gaussian import Natural
from quantprop.inference.engine import InferenceProblem, swept
from quantprop.inference.task import prepare, starting_sites
from quantprop.priors import DensePrior

CLASSIFICATION = tuple(name for name in datasets.names() if name != "mining")
VARIANCES = 10.0 ** np.arange(-2, 9)
LENGTHSCALES = 10.0 ** np.arange(-1, 2.25, 0.5)
CELLS = [
    (name, variance, lengthscale, method)
    for name in CLASSIFICATION
    for variance in VARIANCES
    for lengthscale in LENGTHSCALES
    for method in ("ep", "qp")
]
SHUFFLED = np.random.default_rng(20).permutation(len(CELLS))
TWENTIETH = [CELLS[i] for i in SHUFFLED[::20]]
SIZES = (214, 351, 732)  # rows are filled up to these with rows of weight 0, so that data sets share programs


def solve(name, variance, lengthscale, method, tol=1e-8, **options):
    data = datasets.load(name, "paper")
    scale, n = data.X.std(0), len(data.y)
    x = (data.X - data.X.mean(0)) / np.where(scale > 0, scale, 1.0)
    more = min(size for size in SIZES if size >= n) - n
    x, y, weights = np.pad(x, ((0, more), (0, 0))), np.pad(data.y, (0, more), constant_values=1.0), np.ones(n + more)
    weights[n:] = 0.0
    model = Model(kernels.SquaredExponential(variance, lengthscale), likelihoods.Probit())
    return infer(model, x, y, method=method, tol=tol, weights=weights, **options)


def check_cells(cells):
    sweeps = []
    for cell in cells:
        solution = solve(*cell, max_sweeps=100)
        assert solution.converged, f"{cell}: {solution.status}"
        assert np.isfinite([*solution.marginals.mean, solution.log_evidence]).all(), cell
        assert (solution.marginals.variance > 0).all(), cell
        sweeps.append(solution.sweeps)
    assert np.median(sweeps) <= 25


def check_schedules(cells):
    """A residual of 1e-8 leaves up to 1e-6 in the marginals; so the schedules go to 1e-9 where rounding lets them."""
    for cell in cells:
        tol = 1e-9 if cell[1] <= 1e6 else 1e-8
        parallel, sequential = solve(*cell, tol=tol), solve(*cell, tol=tol, schedule="sequential")
        assert sequential.converged, f"{cell}: {sequential.status}"
        sd = np.sqrt(parallel.marginals.variance)
        assert np.max(np.abs(parallel.marginals.mean - sequential.marginals.mean) / sd) <= 1e-6, cell
        variance = sequential.marginals.variance
        np.testing.assert_allclose(variance, parallel.marginals.variance, rtol=1e-6, err_msg=str(cell))


@pytest.mark.campaign
def test_sites_renewed_twice_arrive_sooner():
    """EP on crabs at its learned numbers, plain steps from sites nearby: errors shrink by 0.97 a sweep, or by 0.17."""
    data = datasets.load("crabs", "paper")
    x = (data.X - data.X.mean(0)) / data.X.std(0)
    model = Model(kernels.SquaredExponential(1.56e5, 21.5), likelihoods.Probit())
    task = prepare(model, x, data.y, EP(), None, None, None)
    found = infer(model, x, data.y, "ep").sites
    with jax.enable_x64(True):
        solved = starting_sites(model.plain_likelihood, task, found)
        start = Natural(solved.nu * (1.0 + 1e-3 * np.sin(np.arange(len(solved.nu)))), solved.tau)
        prior = DensePrior(np.zeros(len(task.padded)), model.plain_kernel.gram(task.padded))
        problem = InferenceProblem(model.plain_likelihood, EP(), prior, task.data, task.weight)

        def shrunk(step):
            first = at = swept(problem, start)[0]
            for _ in range(6):
                at = swept(problem, jax.tree.map(jnp.add, at.sites, step(at)))[0]
            return float(at.residual / first.residual)

        once, twice = shrunk(lambda at: at.change), shrunk(lambda at: at.onward)
    assert twice < 1e-3
    assert once > 30.0 * twice


@pytest.mark.campaign
def test_schedules_agree_on_some_cells():
    check_schedules([cell for cell in TWENTIETH if cell[0] in ("wine1", "sonar", "crabs")][:3])


@pytest.mark.campaign
def test_probit_converges_on_every_cell():
    check_cells(CELLS)


@pytest.mark.campaign
def test_schedules_agree_on_a_twentieth_of_the_cells():
    check_schedules(TWENTIETH)


def mining(variance, lengthscale, method):
    data = datasets.load("mining")
    model = Model(kernels.SquaredExponential(variance, lengthscale), likelihoods.Poisson("square"), mean=1.0)
    return infer(model, data.X, data.y, method=method, tol=1e-8)


def check_mining(method, variances, lengthscales, share):
    solutions = [mining(v, lengthscale, method) for v in variances for lengthscale in lengthscales]
    for solution in solutions:
        assert np.isfinite(solution.marginals.mean).all()
        assert (solution.marginals.variance > 0).all()
        assert solution.converged or solution.status.remedy
    assert np.mean([solution.converged for solution in solutions]) >= share


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp", "vb", "laplace"])
def test_square_link_mining_on_every_cell(method):
    check_mining(
        method,
        (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        (1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
        0.95 if method in ("ep", "qp") else 0.0,
    )
