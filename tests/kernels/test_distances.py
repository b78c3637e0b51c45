"""Derivatives of squared distances in lengthscales, by products or by differences, against long arithmetic."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from quantprop.kernels import stationary as distances
from quantprop.kernels.stationary import squared_distances

RNG = np.random.default_rng(4)
COLUMNS = 5


def in_long_arithmetic(x, z, lengthscale, by):
    """−2/ℓ_d³ Σ_ij c_ij (x_id − z_jd)²."""
    with mpmath.workdps(50):
        sums = [
            mpmath.fsum(
                mpmath.mpf(by[i, j]) * (mpmath.mpf(x[i, d]) - mpmath.mpf(z[j, d])) ** 2
                for i in range(len(x))
                for j in range(len(z))
            )
            for d in range(len(lengthscale))
        ]
        return np.array([float(-2 * s / mpmath.mpf(scale) ** 3) for s, scale in zip(sums, lengthscale, strict=True)])


def by_lengthscale(x, z, lengthscale, by):
    with jax.enable_x64(True):
        back = jax.vjp(
            lambda scale: squared_distances(jnp.asarray(x), jnp.asarray(z), scale), jnp.asarray(lengthscale)
        )[1]
        return np.asarray(back(jnp.asarray(by))[0])


@pytest.mark.parametrize("zero", [0.0, 1e4])
@pytest.mark.parametrize("columns", [COLUMNS, distances.UNROLLED + 3])
def test_many_columns_and_any_zero(columns, zero):
    x = zero + RNG.normal(size=(9, columns))
    z, lengthscale = np.concatenate([x[:4], x[5:7] + 0.5]), RNG.uniform(0.5, 3.0, columns)
    by = RNG.normal(size=(9, 6))
    with jax.enable_x64(True):
        squares = np.asarray(squared_distances(jnp.asarray(x), jnp.asarray(z), jnp.asarray(lengthscale)))
    np.testing.assert_allclose(squares, (((x[:, None] - z) / lengthscale) ** 2).sum(-1), rtol=1e-13)
    assert not squares[np.arange(4), np.arange(4)].any()
    expected = in_long_arithmetic(x, z, lengthscale, by)
    np.testing.assert_allclose(by_lengthscale(x, z, lengthscale, by), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("apart", [1e-1, 1e-5, 1e-9])
def test_near_pairs_under_a_root_keep_their_digits(apart):
    """c grows like 1/r: products of matrices alone would lose all digits of the nearest pairs."""
    x = np.repeat(RNG.normal(size=(1, COLUMNS)), 8, axis=0) + apart * RNG.normal(size=(8, COLUMNS))
    x[4:] += 3.0
    z, lengthscale = x[::2] + apart * RNG.normal(size=(4, COLUMNS)), np.ones(COLUMNS)
    near = ((x[:, None] - z) ** 2).sum(-1) < 100.0 * apart**2
    by = np.where(near, 1.0 / np.sqrt(((x[:, None] - z) ** 2).sum(-1)), 0.0)
    expected = in_long_arithmetic(x, z, lengthscale, by)
    np.testing.assert_allclose(by_lengthscale(x, z, lengthscale, by), expected, rtol=1e-10)


def test_lengthscales_far_below_the_range_keep_their_digits():
    x = np.linspace(0.0, 1e5, 40)[:, None] * np.ones(2)
    z, lengthscale = x[::4] + 0.7, np.array([1.0, 2.0])
    by = np.exp(-0.5 * (((x[:, None] - z) / lengthscale) ** 2).sum(-1))
    expected = in_long_arithmetic(x, z, lengthscale, by)
    np.testing.assert_allclose(by_lengthscale(x, z, lengthscale, by), expected, rtol=1e-11)
