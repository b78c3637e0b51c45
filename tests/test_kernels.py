"""Covariances of all pairs of rows, and their derivatives, against the kernel's own word on two points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import kernels

RNG = np.random.default_rng(3)
X = RNG.normal(size=(7, 3))
KERNELS = {
    "isotropic": lambda a, b: kernels.SquaredExponential(a, b),
    "ard": lambda a, b: kernels.Matern52(a, b * jnp.array([1.0, 0.5, 2.0])),
    "one of one": lambda a, b: kernels.Matern32(a, jnp.reshape(b, (1,))),
    "periodic": lambda a, b: kernels.Periodic(a, 0.7, b),
    "mixture": lambda a, b: kernels.RationalQuadratic(a, b, 1.5),
    "sum": lambda a, b: kernels.Matern12(a, b) + kernels.Linear(b) * kernels.Constant(a),
    "shared": lambda a, b: kernels.SquaredExponential(a, b) * kernels.Matern12(b, a) + kernels.Linear(a),
    "power": lambda a, b: kernels.SquaredExponential(a, b) ** 3,
}


def pointwise(kernel):
    return jnp.stack([jnp.stack([kernel(x, z) for z in X]) for x in X])


@pytest.mark.parametrize("name", KERNELS)
def test_the_matrix_of_all_pairs_is_the_kernel_of_every_two_points(name):
    weight = RNG.normal(size=(7, 7))
    with jax.enable_x64(True):
        kernel = KERNELS[name](1.3, 0.8)
        expected = pointwise(kernel)
        for found in (kernel.gram(X), kernel.gram_of(kernel.pairs(X)), kernel.cross(X, X)):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
        by_hand = jax.grad(lambda t: jnp.sum(weight * pointwise(KERNELS[name](*t))))(jnp.array([1.3, 0.8]))
        pairs = KERNELS[name](1.0, 1.0).pairs(X)  # of other numbers: they must not matter
        found = jax.grad(lambda t: jnp.sum(weight * KERNELS[name](*t).gram_of(pairs)))(jnp.array([1.3, 0.8]))
    np.testing.assert_allclose(found, by_hand, rtol=1e-10)


def test_white_noise_is_of_the_datum_not_of_the_place():
    twice = np.concatenate([X, X])
    with jax.enable_x64(True):
        found = (kernels.White(0.5) + kernels.Constant(2.0)).gram(twice)
    np.testing.assert_array_equal(found, 2.0 + 0.5 * np.eye(14))
