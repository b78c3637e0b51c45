"""Identities between methods, schedules and ways to state the same problem, to 1e-8.

Every data set has at most 16 rows and two features, so that all of them share compiled programs.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from quantprop import EP, QP, VB, Laplace, Model, PowerEP, infer, kernels, likelihoods
from quantprop.methods import by_name

METHODS = {"ep": EP(), "qp": QP(), "power ep": PowerEP(0.5), "vb": VB(), "laplace": Laplace()}
TIGHT = {"tol": 1e-11, "max_sweeps": 400}
RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (12, 2))
XNEW = RNG.uniform(-3.0, 3.0, (5, 2))
LABELS = np.where(RNG.uniform(size=12) < 0.5 + 0.4 * np.sin(2.0 * X[:, 0]), 1.0, -1.0)
COUNTS = RNG.poisson(np.exp(0.5 + np.sin(X[:, 0]))).astype(float)
KERNEL = kernels.SquaredExponential(variance=2.0, lengthscale=1.1)
PROBIT = Model(KERNEL, likelihoods.Probit())
POISSON = Model(KERNEL, likelihoods.Poisson("exp"))
four_methods = pytest.mark.parametrize(
    "method", ["ep", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("qp", "vb", "laplace"))]
)


def gram(a: np.ndarray, b: np.ndarray, variance: float = 2.0, lengthscale: float = 1.1) -> np.ndarray:
    return variance * np.exp(-0.5 * np.sum((a[:, None] - b) ** 2, axis=2) / lengthscale**2)


def solved(model: Model, x, y, method="ep", **options):
    solution = infer(model, x, y, METHODS[method], **(TIGHT | options))
    assert solution.converged, str(solution.status)
    return solution


def close(a, b, atol: float = 1e-8) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-8, atol=atol)


def same_predictions(a, b) -> None:
    """Equal evidence and equal joint predictions at new inputs."""
    close(a.log_evidence, b.log_evidence)
    one, other = a.predict(XNEW, full_cov=True), b.predict(XNEW, full_cov=True)
    close(one.mean, other.mean)
    close(one.covariance, other.covariance)


def same_posterior(a, b) -> None:
    """Equal marginals row by row as well."""
    close(a.marginals.mean, b.marginals.mean)
    close(a.marginals.variance, b.marginals.variance)
    close(a.loo, b.loo)
    same_predictions(a, b)


# --- a Gaussian likelihood makes every method exact ------------------------------------------------------------------

NOISE = 0.6
REALS = np.sin(X[:, 0]) + NOISE * RNG.normal(size=12)


def prior_mean(x: np.ndarray) -> np.ndarray:
    return 0.5 - 0.3 * x[:, 1]


def regression(x: np.ndarray, y: np.ndarray, xnew: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log evidence, and mean and covariance of f at new inputs, by the textbook formulas."""
    k = gram(x, x) + NOISE**2 * np.eye(len(x))
    residual, cross = y - prior_mean(x), gram(x, xnew)
    evidence = -0.5 * (residual @ np.linalg.solve(k, residual) + np.linalg.slogdet(2.0 * np.pi * k)[1])
    mean = prior_mean(xnew) + cross.T @ np.linalg.solve(k, residual)
    return evidence, mean, gram(xnew, xnew) - cross.T @ np.linalg.solve(k, cross)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_exact_for_gaussian_noise(method):
    solution = solved(Model(KERNEL, likelihoods.Gaussian(NOISE), prior_mean), X, REALS, method)
    evidence, mean, covariance = regression(X, REALS, np.concatenate([X, XNEW]))
    close(solution.log_evidence, evidence)
    close(solution.marginals.mean, mean[:12])
    close(solution.marginals.variance, np.diag(covariance)[:12])
    close(solution.sites.tau, NOISE**-2)
    close(solution.sites.nu, REALS / NOISE**2)
    latent = solution.predict(XNEW, full_cov=True)
    close(latent.mean, mean[12:])
    close(latent.covariance, covariance[12:, 12:])
    close(solution.predict(XNEW).variance, np.diag(covariance)[12:])
    others = [np.delete(np.arange(12), i) for i in range(12)]
    refits = [regression(X[rest], REALS[rest], X[i : i + 1])[1:] for i, rest in enumerate(others)]
    left_out = [norm.logpdf(REALS[i], m[0], np.sqrt(v[0, 0] + NOISE**2)) for i, (m, v) in enumerate(refits)]
    close(solution.loo, left_out)


def test_leave_one_out_equals_refitting_with_weight_zero():
    model = Model(KERNEL, likelihoods.Gaussian(NOISE), prior_mean)
    loo = solved(model, X, REALS).loo
    for i in range(12):
        rest = solved(model, X, REALS, weights=np.arange(12) != i)
        close(rest.predict_y(X[i : i + 1]).log_prob(REALS[i]), loo[i])


# --- one fixed point, many ways to it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "method"),
    [
        ("probit", "ep"),
        *(pytest.param(*case, marks=pytest.mark.campaign) for case in (("probit", "qp"), ("poisson", "ep"))),
    ],
)
def test_sequential_and_parallel_sweeps_meet(case, method):
    model, y = {"probit": (PROBIT, LABELS), "poisson": (POISSON, COUNTS)}[case]
    parallel, sequential = (solved(model, X, y, method, schedule=s) for s in ("parallel", "sequential"))
    assert (parallel.status.schedule, sequential.status.schedule) == ("parallel", "sequential")
    same_posterior(parallel, sequential)
    close(parallel.sites.tau, sequential.sites.tau)
    close(parallel.sites.nu, sequential.sites.nu)


@four_methods
def test_row_order_does_not_matter(method):
    order = np.random.default_rng(1).permutation(12)
    one, other = solved(PROBIT, X, LABELS, method), solved(PROBIT, X[order], LABELS[order], method)
    same_predictions(one, other)
    close(one.marginals.mean[order], other.marginals.mean)
    close(one.loo[order], other.loo)


@four_methods
def test_a_warm_start_reaches_the_same_fixed_point(method):
    cold = solved(PROBIT, X, LABELS, method)
    nearby = solved(Model(kernels.SquaredExponential(3.0, 1.4), likelihoods.Probit()), X, LABELS, method)
    warm = solved(PROBIT, X, LABELS, method, sites=nearby.sites)
    same_posterior(cold, warm)
    again = infer(PROBIT, X, LABELS, METHODS[method], tol=1e-9, sites=cold.sites)
    assert (again.converged, again.sweeps) == (True, 1)


# --- one problem, stated in two ways ---------------------------------------------------------------------------------


@four_methods
def test_a_weight_is_a_number_of_copies(method):
    weights = np.array([1, 2, 0, 3, 1, 1, 0, 2])
    x, y = X[:8], LABELS[:8]
    weighted = solved(PROBIT, x, y, method, weights=weights)
    repeated = solved(PROBIT, np.repeat(x, weights, axis=0), np.repeat(y, weights), method)
    same_predictions(weighted, repeated)
    first = np.cumsum(weights)[weights > 0] - weights[weights > 0]
    close(weighted.marginals.mean[weights > 0], repeated.marginals.mean[first])
    close(weighted.loo[weights > 0], repeated.loo[first])
    dropped = solved(PROBIT, x, y, method, weights=weights > 0)
    same_predictions(dropped, solved(PROBIT, x[weights > 0], y[weights > 0], method))


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp", "vb"])
def test_fractional_weights_lie_between_whole_ones(method):
    """The more one positive row counts, the higher the posterior there, with no jump on the way."""
    row = int(np.argmax(LABELS))
    heights = []
    for weight in (0.0, 0.5, 1.0, 1.5, 2.0):
        weights = np.ones(12)
        weights[row] = weight
        heights.append(solved(PROBIT, X, LABELS, method, weights=weights).predict(X[row : row + 1]).mean[0])
    assert np.all(np.diff(heights) > 0.01), heights
    assert heights[2] == pytest.approx(solved(PROBIT, X, LABELS, method).marginals.mean[row], abs=1e-8)
    steps = np.diff(heights)
    assert steps.max() < 3.0 * steps.min(), heights


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp", "vb", "laplace"])
def test_weights_are_continuous(method):
    """Evidence and leave-one-out densities a little beside whole weights, and as sums of fractions make them."""
    whole = np.tile([1.0, 2.0, 3.0, 1.0], 3)
    expected = solved(PROBIT, X, LABELS, method, weights=whole)
    sums = np.tile([sum([0.1] * 10), 2.0, 10 * (0.1 + 0.2), 0.7 + 0.2 + 0.1], 3)
    assert (sums < whole).any()
    assert (sums > whole).any()
    for beside in (np.nextafter(whole, 9.0), np.nextafter(whole, 0.0), sums):
        same = solved(PROBIT, X, LABELS, method, weights=beside)
        assert same.log_evidence == expected.log_evidence
        np.testing.assert_array_equal(same.loo, expected.loo)
    for step in (1e-12, -1e-12, 1e-5, -1e-5):
        near = solved(PROBIT, X, LABELS, method, weights=whole + step)
        assert near.log_evidence == pytest.approx(expected.log_evidence, abs=20.0 * abs(step) + 1e-9)
        np.testing.assert_allclose(near.loo, expected.loo, atol=2.0 * abs(step) + 1e-8)


@pytest.mark.campaign
def test_fractional_weights_above_one_need_no_fractional_power():
    """|f|^(2y) to a fractional power is not integrated; 1.5 sites of the whole of it are well defined."""
    square = Model(kernels.SquaredExponential(2.0, 1.0), likelihoods.Poisson(link="square"), mean=1.5)
    one, between, two = (solved(square, X, COUNTS, "ep", weights=np.full(12, w)) for w in (1.0, 1.5, 2.0))
    assert np.all(two.marginals.variance < between.marginals.variance)
    assert np.all(between.marginals.variance < one.marginals.variance)
    with pytest.raises(ValueError, match="no weights between 0 and 1"):
        infer(square, X, COUNTS, EP(), weights=np.full(12, 0.5))


@pytest.mark.campaign
def test_half_weights_on_a_doubled_data_set_are_the_data_set_itself_for_vb():
    # EP and QP project p(y | f)^½ twice in place of p(y | f) once: another approximation, so no identity for them.
    x, y = X[:8], LABELS[:8]
    halves = solved(PROBIT, np.tile(x, (2, 1)), np.tile(y, 2), "vb", weights=np.full(16, 0.5))
    same_predictions(halves, solved(PROBIT, x, y, "vb"))


@pytest.mark.parametrize("method", ["vb", pytest.param("ep", marks=pytest.mark.campaign)])
def test_exposure_shifts_the_prior_mean_of_a_log_rate(method):
    exposure = np.exp(np.random.default_rng(2).normal(size=12))
    offset = dict(zip(map(tuple, X), np.log(exposure), strict=True))

    def log_exposure(x: np.ndarray) -> np.ndarray:
        return np.array([offset.get(tuple(row), 0.0) for row in x])

    scaled = solved(POISSON, X, COUNTS, method, exposure=exposure)
    shifted = solved(Model(KERNEL, POISSON.likelihood, log_exposure), X, COUNTS, method)
    same_predictions(scaled, shifted)
    close(scaled.marginals.mean + np.log(exposure), shifted.marginals.mean)
    close(scaled.marginals.variance, shifted.marginals.variance)
    close(scaled.loo, shifted.loo)


def test_labels_zero_and_one_are_minus_one_and_one():
    same_posterior(solved(PROBIT, X, LABELS), solved(PROBIT, X, (LABELS > 0).astype(int)))


@four_methods
def test_a_prior_mean_may_be_a_number_or_a_function(method):
    number = solved(Model(KERNEL, PROBIT.likelihood, 0.7), X, LABELS, method)
    function = solved(Model(KERNEL, PROBIT.likelihood, lambda x: np.full(len(x), 0.7)), X, LABELS, method)
    same_posterior(number, function)
    assert abs(number.log_evidence - solved(PROBIT, X, LABELS, method).log_evidence) > 0.1


def test_power_one_is_ep():
    one, ep = infer(PROBIT, X, LABELS, PowerEP(1.0), **TIGHT), solved(PROBIT, X, LABELS)
    close(one.log_evidence, ep.log_evidence, atol=1e-10)
    np.testing.assert_allclose(one.marginals.mean, ep.marginals.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(one.marginals.variance, ep.marginals.variance, rtol=0, atol=1e-10)


def test_methods_by_name_are_the_methods():
    for name, method in (("ep", EP()), ("qp", QP()), ("vb", VB()), ("laplace", Laplace())):
        assert by_name(name) == method
    assert infer(PROBIT, X, LABELS, "ep").method == EP()
    assert infer(PROBIT, X, LABELS).method == QP()  # the default
