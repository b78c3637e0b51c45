"""Derivatives of rules that integrate, as covariances with a score: against those of the quadrature, node by node."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.moments import Datum
from quantprop.likelihoods.tilted import panel_moments, quadrature_moments, tilt
from quantprop.projections.wasserstein import narrowed, panel_w2, quadrature_gap

MEAN, VARIANCE = np.array([-3.0, 0.0, 0.5, 2.0, 6.0]), np.array([0.01, 0.3, 1.0, 9.0, 100.0])
CASES = [
    (likelihoods.StudentT(4.0, 0.7), 1.3),
    (likelihoods.Poisson(), 3.0),
    (likelihoods.Logit(), 1.0),
    (likelihoods.NegativeBinomial(0.5), 4.0),
    (likelihoods.DoubleExponential(0.4), -0.2),
]


def plain_moments(likelihood, datum, cavity):
    return quadrature_moments(likelihood, tilt(likelihood, datum, cavity), cavity)


def plain_w2(likelihood, datum, cavity):
    tilted = tilt(likelihood, datum, cavity)
    moments = quadrature_moments(likelihood, tilted, cavity)
    return narrowed(moments, quadrature_gap(tilted, moments, cavity))


def slopes(rule, likelihood, y):
    """Values, and derivatives in units of the cavity: in its mean, in its log variance, in the likelihood's numbers."""
    flat, rebuilt = ravel_pytree(likelihood)
    datum = Datum(jnp.asarray(y), jnp.asarray(1.0), jnp.asarray(1.0))

    def one(mean, variance):
        def of(step, grow, numbers):
            cavity = Normal(mean + step * jnp.sqrt(variance), variance * jnp.exp(grow))
            moments = rule(rebuilt(numbers), datum, cavity)
            shift = moments.shift / jnp.sqrt(variance)
            return jnp.stack([moments.log_normalizer, shift, moments.ratio, moments.shrink])

        return of(0.0, 0.0, flat), jax.jacfwd(of, argnums=(0, 1, 2))(0.0, 0.0, flat)

    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(MEAN, VARIANCE))


RULES = {"KL": (panel_moments, plain_moments), "W2": (panel_w2, plain_w2)}
CELLS = [(likelihood, y, name) for likelihood, y in CASES for name in RULES]
SOME = (("student-t", "W2"),)  # the others: campaigns


@pytest.mark.parametrize(
    ("likelihood", "y", "name"),
    [
        pytest.param(*cell, id=f"{cell[0].name}-{cell[2]}",
                     marks=() if (cell[0].name, cell[2]) in SOME else pytest.mark.campaign)
        for cell in CELLS
    ],
)  # fmt: skip
def test_responses_are_the_derivatives_of_the_quadrature(likelihood, y, name):
    rule, plain = RULES[name]
    (value, by), (expected, expected_by) = slopes(rule, likelihood, y), slopes(plain, likelihood, y)
    np.testing.assert_array_equal(value, expected)
    for found, right in zip(by, expected_by, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-9)


def test_nothing_is_computed_for_numbers_that_stay():
    """Of a likelihood without numbers only the cavity moves; of data nothing does."""
    datum = Datum(jnp.asarray(3.0), jnp.asarray(1.0), jnp.asarray(1.0))

    def size(moved):
        return len(str(jax.make_jaxpr(lambda x: jax.jvp(moved, (x,), (1.0,)))(2.0)).splitlines())

    by_cavity = size(lambda m: panel_moments(likelihoods.StudentT(), datum, Normal(m, 1.0)).shift)
    by_number = size(lambda df: panel_moments(likelihoods.StudentT(df), datum, Normal(0.0, 1.0)).shift)
    assert by_cavity < by_number


def test_derivatives_of_derivatives_follow():
    """∂² log Z/∂m² = −shrink/v, from the rule's own derivative differentiated again."""
    datum = Datum(jnp.asarray(1.3), jnp.asarray(1.0), jnp.asarray(1.0))

    def moments(m):
        return panel_moments(likelihoods.StudentT(4.0, 0.7), datum, Normal(m, 2.0))

    def slope(m):
        return jax.jvp(lambda m: moments(m).log_normalizer, (m,), (1.0,))[1]

    with jax.enable_x64(True):
        found, first, second = jax.jit(lambda m: (moments(m), slope(m), jax.jacfwd(slope)(m)))(0.4)
        found = jax.tree.map(np.asarray, found)
    np.testing.assert_allclose(first, found.shift / 2.0, rtol=1e-10)
    np.testing.assert_allclose(second, -found.shrink / 2.0, rtol=1e-8)
