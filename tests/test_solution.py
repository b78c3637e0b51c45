"""Solutions against brute force on three data, and what a Solution promises about its results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpmath import exp, matrix, mpf, workdps
from scipy.special import gammaln, log_ndtr, logsumexp
from scipy.stats import norm

from quantprop import EP, QP, VB, Dense, Laplace, Model, infer, kernels, likelihoods, predict_many, project, projections
from quantprop.core.data import bucket
from quantprop.inference.prediction import JOINT_MATRICES, at_new, gram_of
from quantprop.runtime import memory
from quantprop.runtime.memory import check_memory

X = np.array([[-0.7, 0.2], [0.1, -0.4], [0.9, 0.8]])
XNEW = np.array([[-2.0, 0.0], [0.0, 0.0], [0.5, 0.5], [1.5, -1.0]])
KERNEL = kernels.SquaredExponential(variance=1.5, lengthscale=1.2)
TIGHT = {"tol": 1e-11, "max_sweeps": 400}


def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 1.5 * np.exp(-0.5 * np.sum((a[:, None] - b) ** 2, axis=2) / 1.2**2)


K = gram(X, X)
CASES = {  # y, prior mean, and log p(y | f) in NumPy
    "probit": (likelihoods.Probit(), np.array([1.0, 1.0, -1.0]), 0.3, lambda y, f: log_ndtr(y * f)),
    "poisson": (likelihoods.Poisson("exp"), np.array([0.0, 2.0, 5.0]), 0.3,
                lambda y, f: y * f - np.exp(f) - gammaln(y + 1.0)),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES)


def brute_force(case: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Log evidence, means and variances of the true posterior on a grid of 121³ points in the prior's own axes."""
    _, y, mean, log_prob = CASES[case]
    u = np.linspace(-7.0, 7.0, 121)
    grid = np.stack(np.meshgrid(u, u, u, indexing="ij"), axis=-1).reshape(-1, 3)
    f = mean + grid @ np.linalg.cholesky(K).T
    log_weight = norm.logpdf(grid).sum(axis=1) + 3.0 * np.log(u[1] - u[0]) + log_prob(y, f).sum(axis=1)
    evidence = logsumexp(log_weight)
    weight = np.exp(log_weight - evidence)
    centre = weight @ f
    return evidence, centre, weight @ (f - centre) ** 2


def solved(case: str, method):
    likelihood, y, mean, _ = CASES[case]
    solution = infer(Model(KERNEL, likelihood, mean), X, y, method, **TIGHT)
    assert solution.converged, str(solution.status)
    return solution


@pytest.fixture(scope="module")
def solution():
    return solved("probit", EP())


# --- against the truth -----------------------------------------------------------------------------------------------


@every_case
def test_ep_is_near_the_true_posterior(case):
    evidence, mean, variance = brute_force(case)
    ep = solved(case, EP())
    assert ep.log_evidence == pytest.approx(evidence, abs=1e-2)
    np.testing.assert_allclose(ep.marginals.mean, mean, atol=0.02)
    np.testing.assert_allclose(ep.marginals.variance, variance, rtol=0.05)


def test_laplace_is_the_textbook_formula_at_the_mode():
    """Newton's method in NumPy; Rasmussen and Williams, eq. 3.32: log p(y | f̂) − ½ dᵀK⁻¹d − ½ log |I + K W|."""
    _, y, mean, log_prob = CASES["probit"]
    f = np.full(3, mean)
    for _ in range(60):
        hazard = np.exp(norm.logpdf(f) - log_ndtr(y * f))
        slope, w = y * hazard, hazard * (hazard + y * f)
        f = mean + np.linalg.solve(np.linalg.inv(K) + np.diag(w), w * (f - mean) + slope)
    d = f - mean
    evidence = log_prob(y, f).sum() - 0.5 * (d @ np.linalg.solve(K, d) + np.linalg.slogdet(np.eye(3) + K * w)[1])
    laplace = solved("probit", Laplace())
    assert laplace.log_evidence == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(laplace.marginals.mean, f, atol=1e-9)
    np.testing.assert_allclose(
        laplace.marginals.variance, np.diag(np.linalg.inv(np.linalg.inv(K) + np.diag(w))), rtol=1e-9
    )


@every_case
def test_vb_bounds_the_evidence_and_is_stationary(case):
    _, y, prior_mean, log_prob = CASES[case]
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def bound(mean: np.ndarray, root: np.ndarray) -> float:
        """The ELBO of N(mean, root rootᵀ), by Gauss-Hermite and dense algebra."""
        covariance = root @ root.T
        f = mean + np.sqrt(np.diag(covariance)) * nodes[:, None]
        inverse, d = np.linalg.inv(K), mean - prior_mean
        kl = np.trace(inverse @ covariance) + d @ inverse @ d - 3.0
        kl = 0.5 * (kl + np.linalg.slogdet(K)[1] - np.linalg.slogdet(covariance)[1])
        return weights @ log_prob(y, f).sum(axis=1) - kl

    vb = solved(case, VB())
    root = np.linalg.cholesky(np.linalg.inv(np.linalg.inv(K) + np.diag(vb.sites.tau)))
    best = bound(vb.marginals.mean, root)
    assert vb.log_evidence == pytest.approx(best, abs=1e-9)
    evidence = brute_force(case)[0]
    assert evidence - 0.1 < vb.log_evidence < evidence
    rng = np.random.default_rng(0)
    for _ in range(20):  # among all Gaussians, not only those that sites reach
        move, turn = rng.normal(size=3), rng.normal(size=(3, 3))
        up, down = (bound(vb.marginals.mean + h * move, root + h * turn) for h in (1e-4, -1e-4))
        assert max(up, down) < best
        assert abs(up - down) / 2e-4 < 1e-6


# --- predictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [EP(), QP(), VB(), Laplace()], ids=["ep", "qp", "vb", "laplace"])
def test_joint_predictions_follow_from_the_sites(method):
    found = solved("probit", method)
    latent = found.predict(XNEW, full_cov=True)
    cross, inverse = gram(X, XNEW), np.linalg.inv(K + np.diag(1.0 / found.sites.tau))
    np.testing.assert_allclose(latent.covariance, gram(XNEW, XNEW) - cross.T @ inverse @ cross, atol=1e-12)
    centred = found.sites.nu / found.sites.tau - 0.3
    np.testing.assert_allclose(latent.mean, 0.3 + cross.T @ inverse @ centred, atol=1e-12)
    np.testing.assert_array_equal(latent.covariance, latent.covariance.T)
    assert np.linalg.eigvalsh(latent.covariance).min() > 0
    np.testing.assert_array_equal(np.diag(latent.covariance), latent.variance)
    np.testing.assert_allclose(found.predict(XNEW).variance, latent.variance, rtol=1e-12)
    at_training = found.predict(X)
    np.testing.assert_allclose(at_training.mean, found.marginals.mean, atol=1e-12)
    np.testing.assert_allclose(at_training.variance, found.marginals.variance, rtol=1e-11)


def test_joint_draws_have_the_joint_moments(solution):
    n = 40_000
    draws, latent = solution.sample(XNEW, n, seed=3), solution.predict(XNEW, full_cov=True)
    assert draws.shape == (n, 4)
    assert np.all(np.abs(draws.mean(axis=0) - latent.mean) < 5.0 * np.sqrt(latent.variance / n))
    c = latent.covariance
    error = np.sqrt((np.outer(latent.variance, latent.variance) + c**2) / n)  # of a sample covariance
    assert np.all(np.abs(np.cov(draws.T) - c) < 5.0 * error)
    np.testing.assert_array_equal(draws, solution.sample(XNEW, n, seed=3))
    assert not np.array_equal(draws, solution.sample(XNEW, n, seed=4))


def test_predictions_of_labels_are_the_probit_of_the_latent(solution):
    latent, y = solution.predict(XNEW), solution.predict_y(XNEW)
    p = norm.cdf(latent.mean / np.sqrt(1.0 + latent.variance))
    np.testing.assert_allclose(np.exp(y.log_prob(1.0)), p, rtol=1e-12)
    np.testing.assert_allclose(np.exp(y.log_prob(-1.0)), 1.0 - p, rtol=1e-12)
    np.testing.assert_allclose(y.mean, 2.0 * p - 1.0, atol=1e-12)
    np.testing.assert_allclose(y.variance, 4.0 * p * (1.0 - p), rtol=1e-12)
    np.testing.assert_allclose(y.cdf(0.0), 1.0 - p, rtol=1e-12)
    np.testing.assert_array_equal(y.quantile(0.5), np.where(p > 0.5, 1.0, -1.0))
    draws = y.sample(20_000, seed=1)
    assert np.all(np.abs((draws > 0).mean(axis=0) - p) < 5.0 * np.sqrt(p * (1.0 - p) / 20_000))


# --- how it went -----------------------------------------------------------------------------------------------------


def test_a_run_that_is_cut_short_says_so_and_what_to_do():
    likelihood, y, mean, _ = CASES["probit"]
    short = infer(Model(KERNEL, likelihood, mean), X, y, EP(), max_sweeps=1, tol=1e-11)
    assert not short.converged
    assert (short.sweeps, short.status.reason) == (1, "max-sweeps")
    text = str(short.status)
    for part in ("max-sweeps", "after 1 sweep", "residual", "raise max_sweeps", "warm-start"):
        assert part in text
    done = infer(Model(KERNEL, likelihood, mean), X, y, EP(), sites=short.sites, **TIGHT)
    assert done.converged
    assert done.status.remedy == ""
    assert str(done.status).startswith("converged after")


def test_a_problem_too_large_for_memory_is_refused_before_it_starts():
    with pytest.raises(
        MemoryError, match=r"1000000 rows takes about 52154\.1 GiB .* \d+\.\d GiB are available: use fewer rows"
    ):
        check_memory(Dense().cost(10**6))
    check_memory(Dense().cost(100))


def test_a_joint_prediction_too_large_for_memory_is_refused_before_it_starts(monkeypatch):
    solution = infer(Model(KERNEL, likelihoods.Probit()), X, np.array([1.0, 1.0, -1.0]), EP())
    new = np.random.default_rng(0).normal(size=(1500, 2))
    monkeypatch.setattr(memory, "_own_memory", lambda *taken: 8 * JOINT_MATRICES * bucket(1500) ** 2 - 1)
    said = r"the joint posterior at 1500 rows takes about 72 MiB \(4 matrices of as many rows\), and at most 72 MiB are"
    for joint in (lambda: solution.predict(new, full_cov=True), lambda: solution.sample(new, 1)):
        with pytest.raises(MemoryError, match=said + " available: use fewer rows"):
            joint()
    apart = solution.predict(new)  # their variances alone take little
    monkeypatch.setattr(memory, "_own_memory", lambda *taken: 8 * JOINT_MATRICES * bucket(1500) ** 2)
    together = solution.predict(new, full_cov=True)
    np.testing.assert_allclose(together.mean, apart.mean, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(together.covariance), apart.variance, rtol=1e-12)


def test_a_joint_prediction_takes_no_more_than_is_said():
    solution = infer(Model(KERNEL, likelihoods.Probit()), X, np.array([1.0, 1.0, -1.0]), EP())
    new, by = np.random.default_rng(0).normal(size=(512, 2)), solution._predictor
    with jax.enable_x64(True):
        mean, cross, _ = at_new(solution.model, X, new)
        own = np.asarray(gram_of(solution.model.plain_kernel, new))
        program = jax.jit(lambda *around: by.at(*around)).lower(mean, cross, own).compile()
    taken = program.memory_analysis()
    held = taken.argument_size_in_bytes + taken.output_size_in_bytes + taken.temp_size_in_bytes
    assert 2.0 < held / (8 * 512**2) <= JOINT_MATRICES


def test_results_are_float64_numpy_and_the_callers_jax_settings_stay():
    before = jax.config.jax_enable_x64
    assert not before  # JAX's default, under which all of this runs
    assert jnp.ones(2).dtype == jnp.float32
    likelihood, y, mean, _ = CASES["probit"]
    exact = infer(Model(KERNEL, likelihood, mean), X, y, EP(), **TIGHT)
    single = jnp.asarray(X)  # a caller's float32 array is as good as any other input
    found = infer(Model(KERNEL, likelihood, mean), single, jnp.asarray(y), EP(), **TIGHT)
    np.testing.assert_allclose(found.marginals.mean, exact.marginals.mean, atol=1e-6)
    latent, joint, predictive = exact.predict(XNEW), exact.predict(XNEW, full_cov=True), exact.predict_y(XNEW)
    one = project(likelihood, 1, (np.zeros(3), 1.0), projections.KL())
    arrays = {
        "sites": (exact.sites.nu, exact.sites.tau),
        "marginals": (exact.marginals.mean, exact.marginals.variance),
        "loo": (exact.loo,),
        "predict": (latent.mean, latent.variance, joint.mean, joint.variance, joint.covariance),
        "predict_y": (predictive.mean, predictive.variance, predictive.cdf(1.0), predictive.log_prob(1.0),
                      predictive.quantile(0.3), predictive.sample(3)),
        "sample": (exact.sample(XNEW, 2),),
        "project": (one.log_normalizer, one.mean, one.variance),
    }  # fmt: skip
    for name, parts in arrays.items():
        for part in parts:
            assert type(part) is np.ndarray, name
            assert part.dtype == np.float64, name
    assert type(exact.log_evidence) is float
    assert type(exact.converged) is bool
    assert type(exact.sweeps) is int
    assert jax.config.jax_enable_x64 == before
    assert jnp.ones(2).dtype == jnp.float32


@pytest.mark.parametrize("variance", [0.99e6, 1.01e6, 1e8])
def test_predictions_under_huge_kernels_by_either_path(variance):
    """Against 60 digits: posterior variances are of size 1 where prior ones are of size 1e8."""
    rng, length = np.random.default_rng(0), 20.0
    x, new = rng.normal(size=(30, 2)), 1.5 * rng.normal(size=(12, 2))
    y = np.sign(x[:, 0] + 0.5 * rng.normal(size=30))
    model = Model(kernels.SquaredExponential(variance, length), likelihoods.Probit())
    solution = infer(model, x, y, EP())
    mean, spread = exact_prediction(variance, length, x, new, solution.sites)
    for found in (solution.predict(new), predict_many([solution], [new])[0]):
        np.testing.assert_allclose(found.variance, spread, rtol=1e-5)
        np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-5 * np.sqrt(spread.min()))


def exact_prediction(variance, length, x, new, sites) -> tuple[np.ndarray, np.ndarray]:
    """m = k*ᵀ (K + S⁻¹)⁻¹ ν/τ and k** − k*ᵀ (K + S⁻¹)⁻¹ k*."""

    def covariance(a, b):
        squares = [[sum((mpf(float(p)) - mpf(float(q))) ** 2 for p, q in zip(u, v, strict=True)) for v in b] for u in a]
        return matrix([[mpf(variance) * exp(-s / (2 * mpf(length) ** 2)) for s in row] for row in squares])

    with workdps(60):
        tau = [mpf(float(t)) for t in sites.tau]
        noisy, cross = covariance(x, x), covariance(x, new)
        for i, t in enumerate(tau):
            noisy[i, i] += 1 / t
        pseudo = matrix([mpf(float(v)) / t for v, t in zip(sites.nu, tau, strict=True)])
        weights = noisy**-1
        spread = [mpf(variance) - (cross[:, j].T * weights * cross[:, j])[0] for j in range(len(new))]
        return np.array(cross.T * weights * pseudo, dtype=float).ravel(), np.array(spread, dtype=float)
