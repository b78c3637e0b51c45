"""Special functions against mpmath at 50 digits, deep in both tails."""

import jax
import mpmath
import numpy as np
import pytest

from quantprop.numerics import special

mpmath.mp.dps = 50
POINTS = np.concatenate([-np.geomspace(1e-3, 1e3, 60), np.linspace(0.0, 8.0, 25), [-37.577, -37.545, 20.0]])


def evaluate(function, *arguments):
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(function)(*map(np.asarray, arguments)))


def phi(x):
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


def cdf(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def relative_error(values, exact):
    return max(float(abs(mpmath.mpf(float(v)) / e - 1)) for v, e in zip(values, exact, strict=True))


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (lambda x: special.truncated_normal(x).hazard, lambda x: phi(x) / cdf(x)),
        (special.log_ndtr, lambda x: mpmath.log(cdf(x))),
        (lambda x: special.truncated_normal(x).variance, lambda x: 1 - phi(x) / cdf(x) * (x + phi(x) / cdf(x))),
    ],
)
def test_normal_tails(function, exact):
    points = POINTS[POINTS <= 8.0]
    with mpmath.workdps(450):  # 1 − n(x + n) at x = −1000 cancels some digits, erfc needs more
        expected = [exact(mpmath.mpf(float(x))) for x in points]
    assert relative_error(evaluate(function, points), expected) <= 2e-14


def test_derivatives_of_log_ndtr():
    x = np.array([-300.0, -20.0, -1.0, 0.5, 4.0])
    n = np.array([float(phi(mpmath.mpf(v)) / cdf(mpmath.mpf(v))) for v in x])
    np.testing.assert_allclose(evaluate(jax.grad(special.log_ndtr), x), n, rtol=1e-13)
    np.testing.assert_allclose(evaluate(jax.grad(jax.grad(special.log_ndtr)), x)[1:], (-n * (x + n))[1:], rtol=1e-9)


def test_derivative_of_the_truncated_variance():
    x = np.array([-1e4, -300.0, -20.0, -1.0, -1e-9, 0.0, 0.5, 4.0])
    with mpmath.workdps(80):
        n = [phi(mpmath.mpf(v)) / cdf(mpmath.mpf(v)) for v in x]
        exact = [m * ((mpmath.mpf(v) + m) ** 2 - (1 - m * (mpmath.mpf(v) + m))) for v, m in zip(x, n, strict=True)]
    slope = evaluate(jax.grad(lambda v: special.truncated_normal(v).variance), x)
    assert relative_error(slope, exact) <= 1e-13


def test_log_ndtr_difference():
    pairs = [(-np.inf, 0.3), (-9.0, -8.5), (7.0, 7.5), (-1.0, 2.0), (1.5, np.inf), (-40.0, -39.0)]
    exact = [
        mpmath.log((cdf(mpmath.mpf(-a)) - cdf(mpmath.mpf(-b))) if a > 0 else cdf(mpmath.mpf(b)) - cdf(mpmath.mpf(a)))
        for a, b in pairs
    ]
    assert relative_error(evaluate(special.log_ndtr_difference, *np.array(pairs).T), exact) <= 1e-12


def test_log_laguerre_ratio_is_log_1f1():
    y = np.array([0.0, 1.0, 5.0, 40.0, 300.0, 12.0])
    x = np.array([3.0, 0.0, 2.5, 100.0, 1e4, 1e-8])
    exact = [mpmath.log(mpmath.hyp1f1(-int(a), mpmath.mpf("0.5"), -mpmath.mpf(b))) for a, b in zip(y, x, strict=True)]
    np.testing.assert_allclose(
        evaluate(special.log_laguerre_ratio, y, x), [float(e) for e in exact], rtol=1e-12, atol=1e-15
    )


def test_expected_log_square():
    mean, variance = np.array([0.0, 0.3, 2.0, 30.0, -1.0]), np.array([1.0, 4.0, 0.01, 1e-4, 1e3])
    value, by_mean, by_variance = (np.asarray(v) for v in jax_tuple(special.expected_log_square, mean, variance))

    def exact(m, v):  # a Poisson mixture of log χ²: digamma under the sum
        a = m * m / (2 * v)
        if a > 200:
            return mpmath.quad(lambda u: mpmath.log((m + mpmath.sqrt(v) * u) ** 2) * phi(u), [-12, 0, 12])
        last = int(a + 30 * mpmath.sqrt(a) + 60)
        weights = (mpmath.exp(-a) * a**k / mpmath.factorial(k) for k in range(last))
        return mpmath.log(2 * v) + mpmath.fsum(w * mpmath.digamma(k + 0.5) for k, w in enumerate(weights))

    with mpmath.workdps(30):
        pairs = [(mpmath.mpf(float(m)), mpmath.mpf(float(v))) for m, v in zip(mean, variance, strict=True)]
        np.testing.assert_allclose(value, [float(exact(m, v)) for m, v in pairs], rtol=1e-12)
        h = mpmath.mpf("1e-9")
        slope = [float((exact(m, v * (1 + h)) - exact(m, v * (1 - h))) / (2 * h * v)) for m, v in pairs]
        np.testing.assert_allclose(by_variance, slope, rtol=1e-7)
        slope = [float((exact(m + h, v) - exact(m - h, v)) / (2 * h)) for m, v in pairs]
        np.testing.assert_allclose(by_mean, slope, rtol=1e-7, atol=1e-9)


def jax_tuple(function, *arguments):
    with jax.enable_x64(True):
        return jax.vmap(function)(*map(np.asarray, arguments))
