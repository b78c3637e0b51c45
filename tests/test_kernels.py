"""Covariances of all pairs of rows, and their derivatives, against the kernel's own word on two points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import kernels
from quantprop.runtime.programs import program

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
    return jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(X))(X)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name in ("sum", "isotropic"))) for name in KERNELS]
)
def test_the_matrix_of_all_pairs_is_the_kernel_of_every_two_points(name):
    weight = RNG.normal(size=(7, 7))
    with jax.enable_x64(True):
        kernel = KERNELS[name](1.3, 0.8)
        expected = pointwise(kernel)
        for found in (kernel.gram(X), kernel.gram_of(kernel.pairs(X)), kernel.cross(X, X)):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
        numbers = jnp.array([1.3, 0.8])
        by_hand = jax.jit(jax.grad(lambda t: jnp.sum(weight * pointwise(KERNELS[name](*t)))))(numbers)
        pairs = KERNELS[name](1.0, 1.0).pairs(X)  # of other numbers: they must not matter
        found = jax.jit(jax.grad(lambda t: jnp.sum(weight * KERNELS[name](*t).gram_of(pairs))))(numbers)
    np.testing.assert_allclose(found, by_hand, rtol=1e-10)


def test_white_noise_is_of_the_datum_not_of_the_place():
    twice = np.concatenate([X, X])
    with jax.enable_x64(True):
        found = (kernels.White(0.5) + kernels.Constant(2.0)).gram(twice)
    np.testing.assert_array_equal(found, 2.0 + 0.5 * np.eye(14))


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Matern32(1.3, 0.8),
        kernels.White(0.5) + kernels.Constant(2.0),
        (kernels.White(0.5) + kernels.Matern12(1.3)) * (kernels.Linear(0.7) + kernels.White(1e-9)),
        (kernels.White(0.5) + kernels.Matern12(1.3)) ** 2,
    ],
    ids=["none", "sum", "product", "power"],
)
def test_noise_is_what_a_matrix_has_beyond_the_kernel_of_two_points(kernel):
    with jax.enable_x64(True):
        found = kernel.cross(X, X) + jnp.diag(kernel.noise(X))
        np.testing.assert_allclose(found, kernel.gram(X), rtol=1e-14, atol=1e-15)


# --- derivatives, compiled -------------------------------------------------------------------------------------------

ROWS = np.concatenate([X[:5], X[1:3], X[1:2]])  # three rows are equal, and another two
OTHER = np.concatenate([X[5:], ROWS[:2]])  # two rows of these are among those
STEP = 3e-7  # of differences, whose error is of first order in it where a root has a kink


class Wave(kernels.Kernel):
    """A kernel of a user's own: one method for two points, and as many numbers as it likes."""

    variance: float
    width: float

    def __call__(self, x, z):
        return self.variance * jnp.exp(-0.5 * jnp.sum((x - z) ** 2) / self.width**2) * jnp.cos(x[0] - z[0])


def ard(t):
    return jnp.stack([0.6 * t, 1.7 * t, 0.9 / t])


COMPILED = {
    "squared exponential": lambda a, b, c: kernels.SquaredExponential(a, b),
    "squared exponential, ARD": lambda a, b, c: kernels.SquaredExponential(a, ard(b)),
    "matern12": lambda a, b, c: kernels.Matern12(a, b),
    "matern12, ARD": lambda a, b, c: kernels.Matern12(a, ard(b)),
    "matern32, ARD": lambda a, b, c: kernels.Matern32(a, ard(b)),
    "matern52, ARD": lambda a, b, c: kernels.Matern52(a, ard(b)),
    "rational quadratic, ARD": lambda a, b, c: kernels.RationalQuadratic(a, ard(b), c),
    "periodic": lambda a, b, c: kernels.Periodic(a, b, c),
    "linear": lambda a, b, c: kernels.Linear(a) ** 3,
    "constant and white": lambda a, b, c: kernels.Constant(a) * kernels.White(b) + kernels.Constant(c),
    "own": lambda a, b, c: Wave(a, b) * kernels.Constant(c),
    "sum of roots, ARD": lambda a, b, c: kernels.Matern12(a, ard(b)) + kernels.Matern12(c, ard(c)) * kernels.Linear(b),
    "root of a sum": lambda a, b, c: (kernels.Matern12(a, ard(b)) + kernels.White(c)) ** 0.5,
    "root of zeros": lambda a, b, c: (kernels.White(a) + kernels.SquaredExponential(c, 0.01 * ard(b))) ** 0.5,
}


LIKE_OTHERS = ("squared exponential", "matern12", "matern32, ARD", "matern52, ARD", "sum of roots, ARD")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name in LIKE_OTHERS)) for name in COMPILED]
)
def test_compiled_derivatives_in_numbers_and_inputs(name):
    """Against central differences, with equal rows: numbers one by one, inputs along directions that part them."""
    rng = np.random.default_rng(5)
    weight, between = rng.normal(size=(len(ROWS), len(ROWS))), rng.normal(size=(len(ROWS), len(OTHER)))

    @program
    def both(numbers, x, z):
        def total(numbers, x, z):
            kernel = COMPILED[name](*numbers)
            return jnp.sum(weight * kernel.gram(x)) + jnp.sum(between * kernel.cross(x, z))

        return jax.value_and_grad(total, argnums=(0, 1, 2))(numbers, x, z)

    with jax.enable_x64(True):
        at = (np.array([1.3, 0.8, 1.9]), ROWS, OTHER)
        slopes = both(*at)[1]
        ways = [(e, 0.0 * ROWS, 0.0 * OTHER) for e in np.eye(3)]
        ways += [(np.zeros(3), rng.normal(size=ROWS.shape), rng.normal(size=OTHER.shape)) for _ in range(2)]
        for way in ways:
            up, down = (float(both(*(p + h * w for p, w in zip(at, way, strict=True)))[0]) for h in (STEP, -STEP))
            found = sum(float(np.sum(s * w)) for s, w in zip(slopes, way, strict=True))
            assert found == pytest.approx((up - down) / (2 * STEP), rel=1e-6, abs=1e-6), way


def test_a_root_of_distances_survives_rows_that_are_nearly_equal():
    """Rows 1e-12 apart have slopes of 1e12 under a root: they must not drown the others in what is rounding."""
    near = np.concatenate([X, X + 1e-12 * RNG.normal(size=X.shape)]) + 3.0
    weight = RNG.normal(size=(14, 14))

    @program
    def slope(numbers, x):
        return jax.grad(lambda t: jnp.sum(weight * kernels.Matern12(1.0, ard(t[0])).gram(x)))(numbers)

    def expected(t):
        scaled = (near[:, None] - near) / np.array([0.6 * t, 1.7 * t, 0.9 / t])
        return np.sum(weight * np.exp(-np.sqrt((scaled**2).sum(-1))))

    with jax.enable_x64(True):
        found = float(slope(np.array([0.8]), near)[0])
    assert found == pytest.approx((expected(0.8 + 1e-5) - expected(0.8 - 1e-5)) / 2e-5, rel=1e-7)


def test_derivatives_in_lengthscales_and_inputs_form_no_array_of_pairs_and_features():
    n, d = 150, 40

    @program
    def slopes(lengthscale, x):
        return jax.grad(lambda t, x: jnp.sum(kernels.Matern12(1.0, t).gram(x) ** 2), argnums=(0, 1))(lengthscale, x)

    with jax.enable_x64(True):
        compiled = slopes.ahead(np.ones(d), np.ones((n, d))).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.3 * 8 * n * n * d


def test_kernels_of_scikit_learn_have_no_derivative_in_the_inputs_and_say_so():
    sk = pytest.importorskip("sklearn.gaussian_process.kernels")
    from quantprop.estimators.foreign import Foreign  # which imports scikit-learn

    kernel = Foreign.of(sk.PairwiseKernel(gamma=0.4, metric="laplacian"))
    held = kernel.handle
    with jax.enable_x64(True):
        by_value = jax.grad(lambda v: jnp.sum(Foreign(v, held).gram(X)))(np.array([0.4]))
        up, down = (np.sum(held.kernel.clone_with_theta(np.log([v]))(X)) for v in (0.4 + 1e-6, 0.4 - 1e-6))
        np.testing.assert_allclose(by_value, (up - down) / 2e-6, rtol=1e-6)
        with pytest.raises(TypeError, match="no derivative of it in the inputs"):
            jax.grad(lambda x: jnp.sum(Foreign(np.array([0.4]), held).gram(x)))(X)
