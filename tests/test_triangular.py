"""Products and inverses of triangular matrices against NumPy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from quantprop.numerics.triangular import (
    folded_gram,
    folded_product,
    gram_of_lower,
    lower_product,
    triangular_inverse,
    weighted_gram,
)


@pytest.fixture(params=[1, 3, 4, 17])  # also sizes that do not fill all blocks
def lower(request):
    rng = np.random.default_rng(request.param)
    return np.tril(rng.normal(size=(request.param, request.param))) + 3.0 * np.eye(request.param)


def test_inverse_and_gram(lower):
    with jax.enable_x64(True):
        np.testing.assert_allclose(triangular_inverse(lower) @ lower, np.eye(len(lower)), atol=1e-12)
        np.testing.assert_allclose(gram_of_lower(lower), lower.T @ lower, rtol=1e-13, atol=1e-13)


def test_what_is_folded_has_the_same_inner_products_with_symmetric_matrices(lower):
    n = len(lower)
    rng = np.random.default_rng(0)
    square, diagonal, symmetric = rng.normal(size=(n, n)), rng.normal(size=n), rng.normal(size=(n, n))
    symmetric = symmetric + symmetric.T
    product = square.T @ (diagonal[:, None] * square)
    with jax.enable_x64(True):
        for folded, whole in (
            (folded_gram(lower), lower.T @ lower),
            (folded_product(square.T, diagonal[:, None] * square), product),
        ):
            np.testing.assert_allclose(np.sum(folded * symmetric), np.sum(whole * symmetric), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("m", [5, 130])
def test_products_with_wide_matrices(m):
    rng = np.random.default_rng(3)
    lower, wide, weights = np.tril(rng.normal(size=(m, m))), rng.normal(size=(m, 40)), rng.normal(size=40)
    with jax.enable_x64(True):
        np.testing.assert_allclose(lower_product(lower, wide), lower @ wide, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(weighted_gram(wide, weights), wide * weights @ wide.T, rtol=1e-12, atol=1e-12)
