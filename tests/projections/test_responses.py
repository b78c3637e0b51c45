"""Derivatives of rules that integrate, against differences of their values and against theorems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.sites import Datum
from quantprop.likelihoods.tilted import panel_moments
from quantprop.projections.wasserstein import panel_w2

MEAN, VARIANCE = np.array([-3.0, 0.0, 0.5, 2.0, 6.0]), np.array([0.01, 0.3, 1.0, 9.0, 100.0])
CASES = [
    (likelihoods.StudentT(4.0, 0.7), 1.3),
    (likelihoods.Poisson(), 3.0),
    (likelihoods.Logit(), 1.0),
    (likelihoods.NegativeBinomial(0.5), 4.0),
    (likelihoods.DoubleExponential(0.4), -0.2),
]


STEP = 1e-4  # of a difference: its error is of fourth order


def of_moves(rule, likelihood, y):
    """A rule as a function of its cavity's mean, of its log variance (in units of the cavity) and of the numbers."""
    flat, rebuilt = ravel_pytree(likelihood)
    datum = Datum(jnp.asarray(y), jnp.asarray(1.0), jnp.asarray(1.0))

    def at(moves, mean, variance):
        cavity = Normal(mean + moves[0] * jnp.sqrt(variance), variance * jnp.exp(moves[1]))
        moments = rule(rebuilt(flat + moves[2:]), datum, cavity)
        shift = moments.shift / jnp.sqrt(variance)
        return jnp.stack([moments.log_normalizer, shift, moments.ratio, moments.shrink])

    return at, 2 + len(flat)


RULES = {"KL": panel_moments, "W2": panel_w2}
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
def test_derivatives_are_those_of_differences(likelihood, y, name):
    at, size = of_moves(RULES[name], likelihood, y)
    with jax.enable_x64(True):
        rows = jax.jit(jax.vmap(at, in_axes=(None, 0, 0)))
        found = np.asarray(jax.jit(jax.vmap(jax.jacfwd(at), in_axes=(None, 0, 0)))(jnp.zeros(size), MEAN, VARIANCE))
        for k, direction in enumerate(np.eye(size)):
            ends = [np.asarray(rows(STEP * j * direction, MEAN, VARIANCE)) for j in (-2, -1, 1, 2)]
            expected = (ends[0] - 8.0 * ends[1] + 8.0 * ends[2] - ends[3]) / (12.0 * STEP)
            np.testing.assert_allclose(found[..., k], expected, rtol=1e-8, atol=1e-9)


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
