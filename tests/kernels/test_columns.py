"""Kernels of some columns, and of categories, against the same kernels of matrices cut by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quantprop import Parameter, kernels
from quantprop.kernels.structure import with_levels
from quantprop.storage.records import decode, encode

RNG = np.random.default_rng(5)
X = np.column_stack([RNG.normal(size=(9, 3)), RNG.integers(0, 3, 9)])
Z = np.column_stack([RNG.normal(size=(4, 3)), RNG.integers(0, 5, 4)])
SE, MATERN, LINEAR = kernels.SquaredExponential, kernels.Matern32, kernels.Linear


def se(x, z, variance, lengthscale):
    return variance * np.exp(-0.5 * (((x[:, None] - z) / lengthscale) ** 2).sum(-1))


CASES = {
    "one column": (SE(1.3, 0.7).on(1), lambda x, z: se(x[:, [1]], z[:, [1]], 1.3, 0.7)),
    "two columns": (SE(1.3, 0.7).on([2, 0]), lambda x, z: se(x[:, [2, 0]], z[:, [2, 0]], 1.3, 0.7)),
    "ard": (SE(1.3, [0.7, 2.0]).on([2, 0]), lambda x, z: se(x[:, [2, 0]], z[:, [2, 0]], 1.3, [0.7, 2.0])),
    "sum": (
        SE(1.3, 0.7).on(1) + LINEAR(0.5).on([0, 2]) + kernels.Categories(2.0).on(3),
        lambda x, z: se(x[:, [1]], z[:, [1]], 1.3, 0.7) + 0.5 * x[:, [0, 2]] @ z[:, [0, 2]].T
        + 2.0 * (x[:, [3]] == z[:, 3]),
    ),
    "product and power": (
        (SE(1.3, 0.7).on(1) * kernels.Categories().on(3)) ** 2,
        lambda x, z: (se(x[:, [1]], z[:, [1]], 1.3, 0.7) * (x[:, [3]] == z[:, 3])) ** 2,
    ),
    "a sum on a column": (
        (SE(1.3, 0.7) + LINEAR(0.5)).on(2),
        lambda x, z: se(x[:, [2]], z[:, [2]], 1.3, 0.7) + 0.5 * x[:, [2]] @ z[:, [2]].T
    ),
    "columns of columns": (SE(1.3, 0.7).on(1).on([0, 2]), lambda x, z: se(x[:, [2]], z[:, [2]], 1.3, 0.7)),
    "a factor times a slope": (
        kernels.Factor(2.0, 1.0).on(3) * LINEAR(0.5).on(2),
        lambda x, z: (x[:, [2]] @ z[:, [2]].T) * ((x[:, [3]] == z[:, 3]) & (z[:, 3] != 1.0)),
    ),
    "combinations": (
        kernels.Categories(2.0).on([3, 0]), lambda x, z: 2.0 * (x[:, None, [3, 0]] == z[:, [3, 0]]).all(-1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_on_columns_is_that_of_the_matrix_cut_by_hand(name):
    kernel, by_hand = CASES[name]
    with jax.enable_x64(True):
        np.testing.assert_allclose(kernel.cross(X, Z), by_hand(X, Z), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(kernel.gram(X), by_hand(X, X), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(by_hand(X, X)), rtol=1e-12)
        np.testing.assert_allclose(kernel(X[0], Z[1]), by_hand(X, Z)[0, 1], rtol=1e-12, atol=1e-12)


def test_gradients_through_what_learning_computes_once():
    weight = RNG.normal(size=(9, 9))

    def total(t):
        kernel = SE(t[0], t[1]).on(0) + MATERN(t[2], t[3:5]).on([1, 2]) * kernels.Categories(t[5]).on(3)
        return kernel, lambda pairs: jnp.sum(weight * kernel.gram_of(pairs))

    at = np.array([1.1, 0.8, 0.6, 0.9, 1.7, 0.4])
    with jax.enable_x64(True):
        pairs = total(jnp.array(at))[0].pairs(X)
        slope = jax.grad(lambda t: total(t)[1](pairs))(jnp.array(at))
        ends = [[float(total(jnp.array(at + s * 1e-6 * np.eye(6)[i]))[1](pairs)) for s in (1, -1)] for i in range(6)]
    np.testing.assert_allclose(slope, [(up - down) / 2e-6 for up, down in ends], rtol=1e-5)


def test_terms_on_the_same_columns_share_what_is_computed_once():
    with jax.enable_x64(True):
        pairs = (SE().on(0) + kernels.Matern12().on(0) + SE().on(1)).pairs(X)
        assert sorted(pairs) == ["0: squares", "1: squares"]
        np.testing.assert_allclose(pairs["1: squares"], (X[:, [1]] - X[:, 1]) ** 2, rtol=1e-14)


def test_white_noise_on_columns_is_of_the_datum():
    with jax.enable_x64(True):
        np.testing.assert_array_equal(kernels.White(0.5).on(1).gram(np.repeat(X, 2, axis=0)), 0.5 * np.eye(18))
        np.testing.assert_array_equal(kernels.White(0.5).on(1).noise(X), np.full(9, 0.5))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SE().on([]), "one or more different columns"),
        (lambda: SE().on([1, 1]), "one or more different columns"),
        (lambda: SE().on(-1), "positions from 0; got -1"),
        (lambda: SE().on(1.5), "positions from 0; got 1.5"),
        (lambda: LINEAR().on([0, 1], ard=True), "Linear has no lengthscales"),
        (lambda: SE(1.0, [1.0, 2.0]).on([0, 1, 2], ard=True), "one per column \\(3\\); got 2"),
        (lambda: SE().on(7).gram(X), "column 7 does not exist: X has 4 columns"),
        (lambda: SE().on("age").gram(X), "'age' is a name, and X is an array without names"),
        (lambda: kernels.Coregion().on(3).gram(X), "levels is not set"),
        (lambda: kernels.Coregion(1, 3).on([0, 3]).gram(X), "one column of codes; got 2"),
        (lambda: kernels.Coregion(1, 3, own=[1.0]), "own must have shape \\(3,\\)"),
        (lambda: kernels.located(SE().on("ages"), ("age", "dose")), "no column 'ages'; it has 'age', 'dose'"),
    ],
)
def test_mistakes_are_said(make, said):
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_ard_repeats_the_lengthscale_with_its_bounds():
    kernel = (SE(2.0, Parameter(0.5, bounds=(0.1, 9.0))) + LINEAR()).on(["a", "b"], ard=True)
    given = kernel.kernel.left.lengthscale
    assert given.value.tolist() == [0.5, 0.5]
    assert given.bounds == (0.1, 9.0)
    assert repr(kernel.kernel.right) == "Linear(variance=1.0)"


def test_coregion_is_the_kronecker_product():
    weights, own = RNG.normal(size=(3, 2)), np.array([0.1, 0.2, 0.3])
    points = RNG.normal(size=5)
    grid = np.column_stack([np.repeat(np.arange(3.0), 5), np.tile(points, 3)])
    kernel = kernels.Coregion(2, 3, weights, own).on(0) * SE(1.0, 0.6).on(1)
    expected = np.kron(weights @ weights.T + np.diag(own), np.exp(-0.5 * ((points[:, None] - points) / 0.6) ** 2))
    with jax.enable_x64(True):
        np.testing.assert_allclose(kernel.gram(grid), expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(kernel.cross(grid, grid[:2]), expected[:, :2], rtol=0, atol=1e-10)


def test_levels_that_a_coregion_does_not_know_are_independent_with_the_average_variance():
    kernel = kernels.Coregion(1, 2, [[1.0], [-2.0]], [0.5, 0.1])  # variances 1.5 and 4.1
    codes = np.array([[0.0], [1.0], [2.0], [2.0], [3.0]])
    with jax.enable_x64(True):
        k = np.asarray(kernel.gram(codes))
        np.testing.assert_allclose(kernel.diagonal(codes), np.diagonal(k), rtol=1e-14)
    np.testing.assert_allclose(k[:2, :2], [[1.5, -2.0], [-2.0, 4.1]], rtol=1e-14)
    np.testing.assert_allclose(k[2:, 2:], 2.8 * np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]]), rtol=1e-14)
    assert (k[:2, 2:] == 0).all()


def test_what_a_kernel_is_made_of():
    kernel = (SE() + kernels.White()).on(["age"]) + kernels.Categories().on(["school"]) * LINEAR().on("age")
    assert [kernels.written(term, None) for term in kernels.summands(kernel)] == [
        "se(age)", "white()", "group(school) * linear(age)"
    ]  # fmt: skip
    assert kernels.columns_of(kernel) == ("age", "school")
    assert kernels.groups_of(kernel) == ("school",)
    found = kernels.located(kernel, ("dose", "school", "age"))
    assert kernels.columns_of(found) == (2, 1)
    assert kernels.columns_of(found, called=True) == ("age", "school")
    counted = with_levels(kernels.located(kernels.Coregion(2).on("school"), ("dose", "school")), {1: 4})
    assert counted.kernel.levels == 4


def test_kernels_of_columns_in_files():
    kernel = SE(Parameter(2.0, fixed=True), 0.5).on(0) + kernels.Coregion(1, 3).on(1) * kernels.Categories(0.2).on(
        [2, 3]
    )
    kernel = kernels.located(kernel, ("a", "b", "c", "d"))
    again = decode(encode(kernel, "kernel"), "kernel")
    assert repr(again) == repr(kernel)
    assert kernels.columns_of(again) == kernels.columns_of(kernel)
