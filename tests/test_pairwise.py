"""Kernels from elsewhere: functions of two points with numbers of their own, and those of tinygp against tinygp."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from tinygp import kernels as theirs

from quantprop import EP, Model, Parameter, fit, kernels, likelihoods
from quantprop.core.parameters import declared, labels, packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective

RNG = np.random.default_rng(4)
X = RNG.uniform(-2.0, 2.0, size=(24, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.normal(size=24)
TINYGP = {  # with the numbers that are to be learned
    "squared exponential": (lambda: 1.7 * theirs.ExpSquared(0.8), 2),
    "Matérn 3/2": (lambda: theirs.Matern32(1.3), 1),
    "Matérn 5/2, other distance": (lambda: 0.6 * theirs.Matern52(1.3, distance=theirs.distance.L2Distance()), 2),
    "rational quadratic": (lambda: theirs.RationalQuadratic(scale=0.9, alpha=1.4), 2),
    "periodic": (lambda: theirs.ExpSineSquared(scale=1.9, gamma=0.7) * theirs.Exp(3.0), 3),
    "polynomial": (lambda: theirs.Polynomial(order=2, scale=1.2, sigma=0.7) + theirs.Constant(0.3), 3),
    "transformed": (lambda: tinygp.transforms.Linear(np.array([0.5, 2.0]), theirs.ExpSquared(1.1)), 3),
    "of one feature": (lambda: tinygp.transforms.Subspace((1,), theirs.Matern32(0.7)), 1),
}


def landscape(kernel):
    model = Model(kernel, likelihoods.Gaussian(0.3))
    task = prepare(model, X, Y, EP(), None, None, None)
    return Landscape(model, task, EP(), as_objective("evidence"), True, tol=1e-12, max_sweeps=50)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * ("atérn" in name)) for name in TINYGP]
)
def test_a_kernel_of_tinygp_has_tinygps_matrices(name):
    make, free = TINYGP[name]
    with jax.enable_x64(True):
        own = make()
        kernel = kernels.from_tinygp(own)
        assert len(packed(declared(kernel))) == free
        plain = jax.tree.map(lambda p: p.value, kernel, is_leaf=lambda node: isinstance(node, Parameter))
        np.testing.assert_allclose(plain.gram(X), own(X, X), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(plain.cross(X[:3], X), own(X[:3], X), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(plain.diagonal(X), own(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["periodic", *(pytest.param(name, marks=pytest.mark.campaign) for name in list(TINYGP)[:4])]
)
def test_a_kernel_of_tinygp_learns(name):
    """Its evidence is tinygp's own, and the gradient that of differences."""
    with jax.enable_x64(True):
        own = TINYGP[name][0]()
        surface = landscape(kernels.from_tinygp(own))
        theta = packed(surface.parts)
        at = surface.from_cold(theta)
        process = tinygp.GaussianProcess(own, jnp.asarray(X), diag=0.09)
        assert at.value == pytest.approx(float(process.log_probability(Y)), rel=1e-10)
        steps = 1e-5 * np.eye(len(theta))
        numeric = [(surface.from_cold(theta + e).value - surface.from_cold(theta - e).value) / 2e-5 for e in steps]
    assert np.linalg.norm(at.gradient - numeric) <= 1e-5 * np.linalg.norm(numeric)


def rbf(p, x, z):
    return p["variance"] * jnp.exp(-0.5 * jnp.sum(((x - z) / p["scales"]["length"]) ** 2))


def test_a_function_with_numbers_learns_as_the_kernel_it_is():
    own = kernels.Pairwise(rbf, {"variance": 1.0, "scales": {"length": 1.0}})
    assert labels(declared(own)) == ["parameters['scales.length']", "parameters['variance']"]
    ours, built_in = (
        fit(Model(kernel, likelihoods.Gaussian(0.3)), X, Y, method="ep")
        for kernel in (own, kernels.SquaredExponential())
    )
    assert ours.objective_value == pytest.approx(built_in.objective_value, rel=1e-8)
    learned = {name.split(".")[-1].strip("']"): value for name, value in ours.hyperparameters.items()}
    expected = built_in.hyperparameters
    assert learned["length"] == pytest.approx(expected["kernel.lengthscale"], rel=1e-3)
    np.testing.assert_allclose(ours.solution.predict(X).mean, built_in.solution.predict(X).mean, atol=1e-4)


def test_what_is_learned_is_what_the_pytree_says():
    tree = {"fixed": Parameter(2.0, fixed=True), "order": 2, "shift": np.array([0.0, -1.0]), "bounded": Parameter(1.0)}

    def function(p, x, z):
        return p["fixed"] * (x @ z + jnp.sum(p["shift"]) ** 2) ** p["order"] + p["bounded"]

    kernel = declared(kernels.Pairwise(function, tree) + kernels.Constant(0.5))
    assert labels(kernel) == [
        "left.parameters['bounded']", "left.parameters['shift'][0]", "left.parameters['shift'][1]", "right.variance",
    ]  # fmt: skip
    assert "function" in repr(kernel)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kernels.Pairwise(3.0), "function must be a function of"),
        (lambda: kernels.Pairwise(rbf, {"a": np.array([1, 2])}), "a is an array of int64, which is neither learned"),
        (lambda: kernels.Pairwise(rbf, {"a": np.nan}), "must be finite numbers"),
        (lambda: kernels.from_tinygp("Matern32"), "must be a tinygp.kernels.Kernel"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
