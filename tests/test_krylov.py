"""The linear solver against LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop.numerics.krylov import DIRECTIONS, minimal_residual


def solved(matrix, right, tol):
    with jax.enable_x64(True):
        x, left = jax.jit(lambda a, b: minimal_residual(lambda v: a @ v, b, tol))(jnp.asarray(matrix), right)
    return np.asarray(x), float(left)


@pytest.mark.parametrize("spread", [0.3, 0.9])  # the second needs more directions than are kept
def test_solution_is_lapacks(spread):
    rng = np.random.default_rng(0)
    n = 3 * DIRECTIONS
    matrix = np.eye(n) + spread * rng.normal(size=(n, n)) / np.sqrt(n)
    right = rng.normal(size=(n, 2))
    x, left = solved(matrix, right, 1e-9)
    assert left <= 1e-9
    np.testing.assert_allclose(x, np.linalg.solve(matrix, right), rtol=1e-6, atol=1e-8)
    assert np.linalg.norm(matrix @ x - right) <= 2e-9  # what is left is told truly


def test_nothing_asked():
    x, left = solved(np.eye(4), np.zeros(4), 0.0)
    assert left == 0.0
    assert not x.any()


def test_an_equation_without_a_solution_is_told():
    matrix = np.diag([1.0, 2.0, 0.0])
    _, left = solved(matrix, np.ones(3), 1e-9)
    assert not left <= 1e-9
