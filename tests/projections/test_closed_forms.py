"""The W2 projection against the paper's closed-form CDFs of tilted densities: σ* = ∫ φ(Φ⁻¹(F(f))) df.

The formulas of appendix C hold as printed, with care in three places, checked here too:
- probit: division by h = (x − μ)/σ and by k; at h = 0 or k = 0 the paper's special cases apply;
- probit: F is a difference of numbers near ½ divided by Z, so its digits are lost as Z → 0 (here Z > 1e-4);
- square-link Poisson: an alternating sum over 2y + 1 terms, which needs many digits even for small counts.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr, ndtri, owens_t
from scipy.stats import norm

from quantprop import likelihoods, project, projections

mpmath.mp.dps = 40
PROBIT = [  # y, cavity mean, cavity standard deviation
    (1, 0.3, 1.0),
    (-1, 0.3, 1.0),
    (1, -1.5, 0.7),
    (-1, -1.5, 3.0),
    (1, 0.0, 2.0),
    (-1, 0.0, 30.0),
    (1, 2.0, 5.0),
    (-1, 2.5, 0.5),
    (1, -6.0, 2.5),
    (-1, 20.0, 15.0),
]
POISSON = [  # y, cavity mean, cavity standard deviation
    (0, 0.4, 1.0),
    (1, 0.0, 0.8),
    (1, 0.7, 0.5),
    (2, -1.2, 1.5),
    (3, 1.0, 3.0),
    (5, 2.0, 0.6),
]


def probit_cdf(x: float, y: int, m: float, sd: float) -> float:
    """Appendix C.1, with its special cases."""
    k, h, rho = m / np.hypot(sd, 1.0), (x - m) / sd, sd / np.hypot(sd, 1.0)
    z, root = ndtr(y * k), np.sqrt(1.0 - rho**2)
    eta = 0.0 if h * k > 0 or (h * k == 0 and h + k >= 0) else -0.5
    if h == 0 and k == 0:
        return 0.5 - y / np.pi * np.arctan(sd)
    if h == 0:
        return (0.25 - y * np.sign(k) / 4 + y / 2 * ndtr(k) - y * owens_t(k, sd) + y * eta) / z
    if k == 0:
        return 2 * (ndtr(h) / 2 - y * owens_t(h, sd) + y / 4 - y * np.sign(h) / 4 + y * eta)
    by_h, by_k = owens_t(h, (k + rho * h) / (h * root)), owens_t(k, (h + rho * k) / (k * root))
    return (ndtr(h) / 2 - y * by_h + y / 2 * ndtr(k) - y * by_k + y * eta) / z


def poisson_tails(x: float, y: int, m: float, sd: float) -> tuple[float, float]:
    """F and 1 − F of appendix C.2."""
    x, m, v = mpmath.mpf(x), mpmath.mpf(m), mpmath.mpf(sd) ** 2
    alpha, h, beta = 2 * v / (1 + 2 * v), m**2 / (1 + 2 * v), m / (1 + 2 * v)
    a = 1 / (alpha ** (y + mpmath.mpf("0.5")) * mpmath.gamma(y + 0.5) * mpmath.hyp1f1(-y, 0.5, -h / (2 * v)))
    total = mpmath.mpf(0)
    for k in range(2 * y + 1):
        half = mpmath.mpf(k + 1) / 2
        lower = mpmath.gammainc(half, 0, (x - beta) ** 2 / alpha)  # Γ(s) − Γ(s, z)
        term = (-1) ** k * mpmath.gamma(half) + mpmath.sign(x - beta) ** (k + 1) * lower
        total += mpmath.binomial(2 * y, k) * beta ** (2 * y - k) * alpha**half * term
    cdf = a / 2 * total
    return float(cdf), float(1 - cdf)


def optimal_sd(tails: Callable[[float], tuple[float, float]], breaks: list[float], accuracy: float) -> float:
    """∫ φ(Φ⁻¹(F(f))) df between the breaks, with Φ⁻¹ from the smaller tail."""

    def integrand(x: float) -> float:
        return norm.pdf(ndtri(max(min(tails(x)), 0.0)))

    parts = pairwise(breaks)
    return sum(quad(integrand, a, b, epsabs=accuracy, epsrel=accuracy, limit=200)[0] for a, b in parts)


def probit_density(f: float, y: int, m: float, sd: float) -> float:
    return ndtr(y * f) * norm.pdf(f, m, sd) / ndtr(y * m / np.hypot(sd, 1.0))


@pytest.mark.parametrize(("y", "m", "sd"), PROBIT)
def test_owens_form_is_the_probit_cdf(y, m, sd):
    for x in (m - 1.3 * sd, m, m + 0.4 * sd, m + 2.0 * sd, 0.0, 0.5):
        parts = sorted({m - 12 * sd, *(p for p in (0.0, m, x - sd) if m - 12 * sd < p < x), x})
        expected = sum(quad(probit_density, a, b, (y, m, sd), epsabs=1e-13, limit=200)[0] for a, b in pairwise(parts))
        assert probit_cdf(x, y, m, sd) == pytest.approx(expected, abs=2e-11)


def test_special_cases_of_the_probit_cdf_are_limits_of_the_general_one():
    for y in (1, -1):
        for sd in (0.5, 3.0):
            for m, x in ((0.7, 0.7), (-0.7, -0.7), (0.0, 0.9), (0.0, -0.9), (0.0, 0.0)):
                near = 0.5 * (probit_cdf(x + 1e-7, y, m + 3e-8, sd) + probit_cdf(x - 1e-7, y, m - 3e-8, sd))
                assert probit_cdf(x, y, m, sd) == pytest.approx(near, abs=1e-9)


def test_probit_projection_has_the_closed_forms_deviation():
    y, m, sd = (np.array(column) for column in zip(*PROBIT, strict=True))
    got = project(likelihoods.Probit(), y, (m, sd**2), projections.Wasserstein(2))
    z = y * m / np.hypot(sd, 1.0)
    mean = m + y * sd**2 / np.hypot(sd, 1.0) * norm.pdf(z) / norm.cdf(z)  # the paper's eq. for μ*
    np.testing.assert_allclose(got.mean, mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.log_normalizer, norm.logcdf(z), rtol=1e-12)
    for i, case in enumerate(PROBIT):

        def tails(x: float, case=case) -> tuple[float, float]:
            cdf = probit_cdf(x, *case)
            return cdf, 1.0 - cdf

        width = np.sqrt(got.variance[i])
        inner = {*(mean[i] + width * np.array([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0])), -1.0, 0.0, 1.0, 3.0}
        lower, upper = m[i] - 10.0 * sd[i], m[i] + 10.0 * sd[i]
        breaks = [lower, *sorted(b for b in inner if lower < b < upper), upper]
        assert np.sqrt(got.variance[i]) == pytest.approx(optimal_sd(tails, breaks, 1e-12), rel=1e-9), case


def check_square_poisson(cases):
    y, m, sd = (np.array(column, float) for column in zip(*cases, strict=True))
    got = project(likelihoods.Poisson("square"), y, (m, sd**2), projections.Wasserstein(2))
    for i, (count, mean, deviation) in enumerate(cases):
        v = mpmath.mpf(deviation) ** 2
        mu, alpha, h = mpmath.mpf(mean), 2 * v / (1 + 2 * v), mpmath.mpf(mean) ** 2 / (1 + 2 * v)
        f1 = mpmath.hyp1f1(-count, 0.5, -h / (2 * v))
        log_z = mpmath.log(
            alpha ** (count + 0.5) * mpmath.gamma(count + 0.5) * f1
            / (mpmath.sqrt(2 * mpmath.pi * v) * mpmath.factorial(count) * mpmath.exp(h))
        )  # fmt: skip
        slope = (count * mpmath.hyp1f1(1 - count, 1.5, -h / (2 * v)) / (v * f1) - 1) * 2 * mu / (1 + 2 * v)
        assert got.log_normalizer[i] == pytest.approx(float(log_z), rel=1e-12)
        assert got.mean[i] == pytest.approx(float(v * slope + mu), rel=1e-11, abs=1e-13)

        def tails(x: float, case=cases[i]) -> tuple[float, float]:
            return poisson_tails(x, *case)

        # Around the dip of the density at 0, where z(f) bends, and out to where no mass is left.
        reach = 9.0 * np.sqrt(float(alpha) / 2) + np.sqrt(count)
        centre = float(mu / (1 + 2 * v))
        inner = (-1.0, -0.3, -0.1, 0.0, 0.1, 0.3, 1.0)
        breaks = sorted({centre - reach, *(b for b in inner if abs(b - centre) < reach), centre + reach})
        assert np.sqrt(got.variance[i]) == pytest.approx(optimal_sd(tails, breaks, 1e-10), rel=1e-8), cases[i]


def test_square_poisson_projection_has_the_closed_forms_deviation():
    check_square_poisson(POISSON[:2])


@pytest.mark.campaign
def test_square_poisson_projections_of_other_cavities():
    check_square_poisson(POISSON[2:])
