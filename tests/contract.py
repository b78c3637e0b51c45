"""What every likelihood, kernel, projection and method must do, against integrals and formulas written out here.

A new part passes by being handed to the function of its kind; `test_skeletons.py` shows how. Processes have a suite of
their own, `priors/test_contract.py`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, stats

from quantprop import Model, fit, infer, kernels, likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import declared, free, is_parameter, packed, unpacked
from quantprop.likelihoods import Datum

CAVITIES = ((0.3, 1.2), (-1.0, 0.05), (0.0, 9.0))
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.1, 3.0, 12))[:, None]
REALS = np.sin(2.0 * X[:, 0]) + 0.3 * RNG.normal(size=12)
NOISE = 0.4


def datum(y) -> Datum:
    return Datum(*(np.asarray(value, dtype=float) for value in (y, 1.0, 1.0)))


log_prob = jax.jit(lambda likelihood, datum, f: likelihood.log_prob(datum, f))
moments = jax.jit(lambda likelihood, datum, cavity: likelihood.moments(datum, cavity))
project = jax.jit(lambda projection, *given: projection.project(*given))


def tilted(likelihood, y, cavity) -> tuple[float, float, float]:
    """log Z, mean and variance of p(y | f) N(f | cavity), by adaptive quadrature."""
    mean, sd = cavity[0], np.sqrt(cavity[1])

    def integrand(u):
        density = np.exp(float(log_prob(likelihood, datum(y), mean + sd * u)) - 0.5 * u * u) / np.sqrt(2.0 * np.pi)
        return density * np.array([1.0, u, u * u])

    places = sorted({0.0, float(np.clip((np.ravel(y)[0] - mean) / sd, -9.0, 9.0))})
    z, first, second = integrate.quad_vec(integrand, -12.0, 12.0, points=places, epsabs=0, epsrel=1e-11)[0]
    return float(np.log(z)), mean + sd * first / z, sd**2 * (second / z - (first / z) ** 2)


def check_likelihood(likelihood, ys) -> None:
    """Tilted moments, the promises about log p(y | f), the distribution of y, and inference by EP and QP."""
    f = np.linspace(-2.0, 2.0, 9)
    with jax.enable_x64(True):
        for y in ys:
            for cavity in CAVITIES:
                log_z, mean, variance = tilted(likelihood, y, cavity)
                found = moments(likelihood, datum(y), Normal(*map(jnp.asarray, cavity)))
                np.testing.assert_allclose(found.log_normalizer, log_z, atol=1e-8)
                np.testing.assert_allclose(cavity[0] + found.shift, mean, atol=1e-7)
                np.testing.assert_allclose(cavity[1] * found.ratio, variance, rtol=1e-6)
            if likelihood.log_concave:
                curve = jax.vmap(jax.grad(jax.grad(lambda g, y=y: likelihood.log_prob(datum(y), g))))(jnp.asarray(f))
                assert np.all(np.asarray(curve) <= 1e-10)
        check_distribution(likelihood, f)
    finite = np.asarray(ys, dtype=float)
    assert likelihood.in_support(finite, np.ones(len(finite))).all()
    assert not likelihood.in_support(np.full_like(finite, np.nan), np.ones(len(finite))).any()
    for method in ("ep", "qp"):
        rows = np.resize(finite, (12, *finite.shape[1:]))
        assert infer(Model(kernels.SquaredExponential(), likelihood), X, rows, method).converged


def check_distribution(likelihood, f) -> None:
    """P(Y ≤ y) integrates p(y | f); E[y | f], Var[y | f] and draws are those of it. For continuous y on a line."""
    log_prob = jax.jit(jax.vmap(lambda y, g: likelihood.log_prob(Datum(y, 1.0, 1.0), g), (0, None)))
    for g in f[::4]:
        mean, sd = float(likelihood.mean(datum(0.0), g)), float(np.sqrt(likelihood.variance(datum(0.0), g)))
        y = np.linspace(mean - 40 * sd, mean + 40 * sd, 80_001)
        p = np.exp(np.asarray(log_prob(jnp.asarray(y), g)))
        np.testing.assert_allclose(np.trapezoid(p, y), 1.0, atol=1e-6)
        np.testing.assert_allclose(np.trapezoid(p * y, y), mean, atol=1e-5 * sd)
        np.testing.assert_allclose(np.trapezoid(p * (y - mean) ** 2, y), sd**2, rtol=1e-4)
        at = y[40_000 + np.array([-1000, 0, 1500])]
        below = integrate.cumulative_trapezoid(p, y, initial=0.0)[40_000 + np.array([-1000, 0, 1500])]
        np.testing.assert_allclose(likelihood.cdf(Datum(at, np.ones(3), np.ones(3)), np.full(3, g)), below, atol=1e-6)
        draws = likelihood.draw(np.random.default_rng(1), datum(0.0), np.full(20_000, g))
        assert abs(draws.mean() - mean) < 4.0 * sd / np.sqrt(20_000)


def check_kernel(kernel, x) -> None:
    """Matrices hold the covariances of pairs and are positive semi-definite; derivatives are finite differences; it
    learns.
    """
    with jax.enable_x64(True):
        pairs = np.array([[float(kernel(jnp.asarray(a), jnp.asarray(b))) for b in x] for a in x])
        np.testing.assert_allclose(kernel.gram(x), pairs, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(kernel.cross(x, x[:3]), pairs[:, :3], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(kernel.diagonal(x), np.diagonal(pairs), rtol=1e-10)
        np.testing.assert_allclose(pairs, pairs.T, rtol=1e-12)
        assert np.linalg.eigvalsh(pairs).min() > -1e-10 * pairs.max()
        parts = declared(kernel)
        assert all(map(is_parameter, free(parts))), "numbers with bounds are learned"
        theta, weights = packed(parts), RNG.normal(size=pairs.shape)
        total = jax.jit(lambda theta: jnp.sum(weights * unpacked(parts, theta).gram(x)))
        for i, slope in enumerate(jax.grad(total)(theta)):
            step = 1e-5 * np.eye(len(theta))[i]
            np.testing.assert_allclose(slope, (total(theta + step) - total(theta - step)) / 2e-5, rtol=1e-6, atol=1e-8)
    fitted = fit(Model(kernel, likelihoods.Gaussian(NOISE)), x, np.resize(REALS, len(x)), "ep")
    assert np.isfinite(fitted.objective_value)


def check_projection(projection, tolerance: float = 1e-6) -> None:
    """Of a Gaussian tilted density it is that density; it moves with f, and log Z is the integral."""
    gaussian, normal = likelihoods.Gaussian(NOISE), Normal
    with jax.enable_x64(True):
        for mean, variance in CAVITIES:
            found = project(projection, gaussian, datum(0.7), normal(jnp.asarray(mean), jnp.asarray(variance)))
            precision = 1.0 / variance + 1.0 / NOISE**2
            exact = (mean / variance + 0.7 / NOISE**2) / precision
            np.testing.assert_allclose(mean + found.shift, exact, atol=tolerance / np.sqrt(precision))
            np.testing.assert_allclose(variance * found.ratio, 1.0 / precision, rtol=tolerance)
            moved = project(projection, gaussian, datum(2.7), normal(jnp.asarray(mean + 2.0), jnp.asarray(variance)))
            np.testing.assert_allclose([moved.shift, moved.ratio], [found.shift, found.ratio], atol=1e-9)
            probit = likelihoods.Probit()
            found = project(projection, probit, datum(1.0), normal(jnp.asarray(mean), jnp.asarray(variance)))
            np.testing.assert_allclose(found.log_normalizer, stats.norm.logcdf(mean / np.sqrt(1 + variance)), atol=1e-9)
            assert 0.0 < found.ratio < 1.0


def check_method(method) -> None:
    """Exact for Gaussian noise; rows in any order, and a row twice or of weight 2, give the same posterior."""
    kernel, tight = kernels.SquaredExponential(1.5, 0.8), {"tol": 1e-11, "max_sweeps": 400}
    k = 1.5 * np.exp(-0.5 * ((X - X.T) / 0.8) ** 2)
    exact = stats.multivariate_normal.logpdf(REALS, np.zeros(12), k + NOISE**2 * np.eye(12))
    found = infer(Model(kernel, likelihoods.Gaussian(NOISE)), X, REALS, method, **tight)
    assert found.converged, found.status
    np.testing.assert_allclose(found.log_evidence, exact, rtol=1e-8)
    np.testing.assert_allclose(found.marginals.mean, k @ np.linalg.solve(k + NOISE**2 * np.eye(12), REALS), atol=1e-7)
    model, labels, turned = Model(kernel, likelihoods.Probit()), np.sign(REALS), RNG.permutation(12)
    first = infer(model, X, labels, method, **tight)
    assert first.converged, first.status
    again = infer(model, X[turned], labels[turned], method, **tight)
    np.testing.assert_allclose(again.marginals.mean, first.marginals.mean[turned], atol=1e-7)
    np.testing.assert_allclose(again.log_evidence, first.log_evidence, rtol=1e-8)
    twice = infer(model, np.concatenate([X, X[:1]]), np.concatenate([labels, labels[:1]]), method, **tight)
    weighted = infer(model, X, labels, method, weights=np.where(np.arange(12) == 0, 2.0, 1.0), **tight)
    np.testing.assert_allclose(weighted.log_evidence, twice.log_evidence, rtol=1e-7)
