"""Products and inverses of triangular matrices against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_triangular

from quantprop.numerics import triangular
from quantprop.numerics.triangular import (
    assembled,
    block_rows,
    gram_of_upper,
    inverse_rows,
    lower_product,
    pivoted_cholesky,
    squares_above,
    squares_beside,
    triangular_inverse,
    upper_product,
    weighted_gram,
)


@pytest.fixture(params=[True, False], ids=["many blocks", "halves"], autouse=True)
def _in_many_blocks(request, monkeypatch):
    """As on a CPU, and as on an accelerator."""
    monkeypatch.setattr(triangular, "in_many_blocks", lambda: request.param)


@pytest.fixture(
    params=[1, 4, 301, *(pytest.param(size, marks=pytest.mark.campaign) for size in (3, 17, 130))]
)  # also sizes that do not fill all blocks, and three blocks
def lower(request):
    rng = np.random.default_rng(request.param)
    size = request.param
    return np.tril(rng.normal(size=(size, size))) / max(1.0, size / 17) + 3.0 * np.eye(size)


def test_inverse_and_gram(lower):
    with jax.enable_x64(True):
        np.testing.assert_allclose(triangular_inverse(lower) @ lower, np.eye(len(lower)), atol=1e-12)
        np.testing.assert_allclose(gram_of_upper(lower.T), lower.T @ lower, rtol=1e-13, atol=1e-13)


def test_block_rows(lower):
    upper = lower.T
    strict = upper - np.diag(np.diagonal(upper))
    with jax.enable_x64(True):
        rows = block_rows(upper)
        np.testing.assert_array_equal(assembled(rows), upper)
        inverse = np.asarray(assembled(inverse_rows(rows)))
        np.testing.assert_allclose(upper @ inverse, np.eye(len(upper)), atol=1e-12)
        np.testing.assert_array_equal(np.tril(inverse, -1), 0.0)
        np.testing.assert_allclose(squares_beside(rows), (strict**2).sum(1), rtol=1e-13)
        np.testing.assert_allclose(squares_above(rows), (strict**2).sum(0), rtol=1e-13)


@pytest.mark.parametrize("variance", [1.0, 1e6, 1e12])
def test_the_inverse_is_as_accurate_as_substitution(variance):
    """Rows in order of a smooth kernel's only feature: blocks on the diagonal are nearly singular too."""
    x = np.sort(np.random.default_rng(2).uniform(0.0, 10.0, 300))
    k = np.exp(-0.125 * (x[:, None] - x) ** 2)
    lower = np.linalg.cholesky(variance * k + np.eye(300))
    exact = np.zeros((300, 300), np.longdouble)
    for i, row in enumerate(lower.astype(np.longdouble)):
        exact[i] = (np.eye(300)[i] - row[:i] @ exact[:i]) / row[i]
    with jax.enable_x64(True):
        found = np.asarray(triangular_inverse(lower))
    for axis in (0, 1):
        scale = np.abs(exact).max(axis)
        error, usual = ((np.abs(x - exact).max(axis) / scale).max() for x in (found, _substituted(lower)))
        assert error <= 8.0 * usual
    np.testing.assert_allclose((found**2).sum(0), np.sum(exact**2, axis=0).astype(float), rtol=3e-11)


def _substituted(lower: np.ndarray) -> np.ndarray:
    return solve_triangular(lower, np.eye(len(lower)), lower=True)


def test_pivots_end_where_nothing_is_left():
    """Of rank 3 and 5 rows: two are explained by the others. Each pivot is the row of largest variance that is left."""
    low = np.random.default_rng(1).normal(size=(5, 3)) * np.array([[1.0], [3.0], [0.5], [2.0], [0.1]])
    with jax.enable_x64(True):
        columns, left, pivots = map(np.asarray, pivoted_cholesky(jnp.asarray(low @ low.T), 5, 1e-12))
    np.testing.assert_allclose(columns @ columns.T, low @ low.T, atol=1e-12)
    assert pivots.sum() == 3
    assert pivots[np.argmax((low**2).sum(1))]
    assert not columns[:, 3:].any()
    assert np.abs(left).max() < 1e-12


@pytest.mark.parametrize("m", [5, 300])
def test_products_with_wide_matrices(m):
    rng = np.random.default_rng(3)
    lower, wide, weights = np.tril(rng.normal(size=(m, m))), rng.normal(size=(m, 40)), rng.normal(size=40)
    by = rng.normal(size=(m, 40))
    with jax.enable_x64(True):
        product, back = jax.vjp(lower_product, lower, wide)
        by_lower, by_wide = back(jnp.asarray(by))
        np.testing.assert_allclose(product, lower @ wide, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(np.tril(by_lower), np.tril(by @ wide.T), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(by_wide, lower.T @ by, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(upper_product(lower.T, wide), lower.T @ wide, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(weighted_gram(wide, weights), wide * weights @ wide.T, rtol=1e-12, atol=1e-12)
