"""E[log Φ(f)] and its derivatives under a Gaussian, against integrals by mpmath and brute force."""

from __future__ import annotations

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from quantprop.numerics.expected_probit import MIN_SCORE, NARROW, WIDE, expected_log_ndtr

MARGINS = (-300.0, -20.0, MIN_SCORE - 0.1, MIN_SCORE + 0.1, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0)


def integral(m: float, s: float, of) -> float:
    """E[of(m + s u)], u standard normal, in pieces around f = 0."""
    with mpmath.workdps(20):
        near = [-m / s + x / s for x in (-1e4, -100, -20, -6, -2, 0, 2, 6, 20)]
        ends = sorted({mpmath.mpf(max(-16.0, min(16.0, x))) for x in [-16, -8, -4, -2, 0, 2, 4, 8, 16, *near]})
        return float(mpmath.quad(lambda u: mpmath.npdf(u) * of(mpmath.mpf(m) + mpmath.mpf(s) * u), ends))


@cache
def below(x):
    """Φ(x): the three integrals have the same nodes."""
    return mpmath.ncdf(x)


def hazard(x):
    return mpmath.npdf(x) / below(x)


ORACLES = (lambda x: mpmath.log(below(x)), hazard, lambda x: -hazard(x) * (x + hazard(x)))


SOME = {
    (-1.0, 0.05),
    (0.5, NARROW - 1e-3),
    (5.0, NARROW + 1e-3),
    (MIN_SCORE + 0.1, 4.0),
    (-1.0, 60.0),
}  # the others: campaigns
CELLS = itertools.product((MIN_SCORE + 0.1, -1.0, 0.5, 5.0), (0.05, NARROW - 1e-3, NARROW + 1e-3, 4.0, 60.0))


@pytest.mark.parametrize(
    ("margin", "s"), [pytest.param(*cell, marks=() if cell in SOME else pytest.mark.campaign) for cell in CELLS]
)
def test_expectations_are_those_of_mpmath(margin, s):
    m = margin * s
    with jax.enable_x64(True):
        got = np.array(expected_log_ndtr(jnp.asarray(m), jnp.asarray(s)))
    np.testing.assert_allclose(got, [integral(m, s, of) for of in ORACLES], rtol=1e-9)


@pytest.mark.parametrize("s", [0.9 * WIDE, 1.1 * WIDE, 1e9])
@pytest.mark.parametrize("margin", MARGINS)
def test_far_out_only_the_square_is_left(margin, s):
    """E[−½ f²; f < 0] to the relative order log(s)/s²."""
    with mpmath.workdps(40):
        z = mpmath.mpf(margin)
        below, density = mpmath.ncdf(-z), mpmath.npdf(z)
        exact = [-s * s * ((1 + z * z) * below - z * density) / 2, s * (density - z * below), -below]
    with jax.enable_x64(True):
        got = np.array(expected_log_ndtr(jnp.asarray(margin * s), jnp.asarray(s)))
    np.testing.assert_allclose(got, np.array([float(x) for x in exact]), rtol=3e-9)


@pytest.mark.parametrize("s", [0.3, 2.0, 50.0])
def test_slopes_are_derivatives_of_the_value(s):
    """∂E/∂m = E[ℓ'] and, by the heat equation, ∂E/∂(s²) = ½ E[ℓ'']."""

    def value(m, v):
        return expected_log_ndtr(m, jnp.sqrt(v)).value

    with jax.enable_x64(True):
        m, v = s * np.array(MARGINS), np.full(len(MARGINS), s * s)
        by_mean, by_variance = jax.jit(jax.vmap(jax.grad(value, argnums=(0, 1))))(m, v)
        of = jax.jit(jax.vmap(expected_log_ndtr))(m, np.sqrt(v))
    np.testing.assert_allclose(by_mean, of.slope, rtol=1e-7)
    np.testing.assert_allclose(by_variance, 0.5 * np.asarray(of.curvature), rtol=1e-6)


def test_nothing_jumps_between_the_rules():
    with jax.enable_x64(True):
        for m, s in ((0.3, NARROW), (-1.0, WIDE), (MIN_SCORE * 7.0, 7.0)):
            sides = [np.array(expected_log_ndtr(jnp.asarray(m), jnp.asarray(s * (1 + d)))) for d in (-1e-12, 1e-12)]
            np.testing.assert_allclose(*sides, rtol=2e-9)
