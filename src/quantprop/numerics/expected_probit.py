"""E[log Φ(f)] under a Gaussian and its derivatives: all that variational Bayes needs of the probit likelihood.

Under a wide Gaussian the nodes do not depend on it: x = sinh t at equal steps of t, where log Φ and its derivatives are
constants, and only the weights are computed. The trapezoidal rule in t converges exponentially (Trefethen and Weideman
2014) while the Gaussian is wide beside the steps, which grow with |x|. Under a narrow one, or one far below 0, where
log Φ changes on the scale of its mean, the rule is the trapezoidal one in u = (f − m)/s. Beyond every node log Φ is
−½ x² below 0, whose expectation is known.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from quantprop.core.gaussian import LOG_2PI
from quantprop.numerics.special import norm_logpdf, truncated_normal

STEP, FIRST, LAST = 0.1, -2e7, 16.0  # step in t; outermost nodes x
NARROW, WIDE = 0.8, 1e6  # standard deviations below and above which the fixed nodes do not serve
MIN_SCORE = -6.2  # m/s from which the fixed nodes serve
U, DU = 0.6 * np.arange(-15, 16), 0.6  # nodes of the other rule, and their step


class Expected(NamedTuple):
    """The expectation of log Φ(f), of its first and of its second derivative."""

    value: Any
    slope: Any
    curvature: Any


@cache
def _fixed() -> tuple[np.ndarray, Expected]:
    """Nodes x, and dx times log Φ and its derivatives there."""
    t = STEP * np.arange(np.ceil(np.arcsinh(FIRST) / STEP), np.floor(np.arcsinh(LAST) / STEP) + 1)
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        of = jax.vmap(truncated_normal)(jnp.asarray(np.sinh(t)))
        parts = [np.asarray(part) for part in (of.log_mass, of.hazard, of.variance - 1.0)]
    return np.sinh(t), Expected(*(STEP * np.cosh(t) * part for part in parts))


def expected_log_ndtr(m: Any, s: Any) -> Expected:
    """The expectations for f ~ N(m, s²), scalars: to 1e-9 of their size for m < 6 s."""
    fixed = (s > NARROW) & (m > MIN_SCORE * s)
    by_u = _on_own_nodes(m, jnp.where(fixed, NARROW, s))
    by_x = _on_fixed_nodes(m, jnp.where(fixed, s, 10.0 * NARROW))
    wide = jax.tree.map(lambda a, b: jnp.where(s > WIDE, a, b), _quadratic(m, s), by_x)
    return jax.tree.map(lambda a, b: jnp.where(fixed, a, b), wide, by_u)


def _on_fixed_nodes(m: Any, s: Any) -> Expected:
    x, of = _fixed()
    u = (x - m) / s
    mass = jnp.exp(-0.5 * (u * u + LOG_2PI)) / s
    return Expected(*(jnp.sum(mass * part) for part in of))


def _on_own_nodes(m: Any, s: Any) -> Expected:
    of, mass = truncated_normal(m + s * U), DU * np.exp(-0.5 * (U * U + LOG_2PI))
    return Expected(*(jnp.sum(mass * part) for part in (of.log_mass, of.hazard, of.variance - 1.0)))


def _quadratic(m: Any, s: Any) -> Expected:
    """The expectations of −½ x² below 0: the remainder is about log s/s² of them."""
    z = m / s
    below, density = ndtr(-z), jnp.exp(norm_logpdf(z))
    return Expected(-0.5 * s * s * ((1.0 + z * z) * below - z * density), s * (density - z * below), -below)
