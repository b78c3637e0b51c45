"""How the integrals of a tilted density change with its cavity and its likelihood: covariances with a score.

If log q moves by s(f) at every f, then log Z moves by E s, and an expectation E g by Cov(g, s). For the cavity N(m, v)
the scores are (f − m)/v and ((f − m)²/v − 1)/(2v): derivatives in the cavity are higher moments. Nothing that was
integrated is differentiated, which would make programs several times as large.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.numerics.quadrature import Density, widths


class Integrals(NamedTuple):
    """A tilted density on its nodes, its mean and variance, and z = Φ⁻¹(F) at the nodes if σ is of interest."""

    density: Density
    offset: Float[Array, "panels 16"]  # f − m
    shift: Any  # μ − m
    variance: Any
    z: Float[Array, "panels 16"] | None


class Response(NamedTuple):
    """Changes of log Z, of the mean, of the variance, and of σ = E[(f − μ) z]."""

    log_normalizer: Any
    mean: Any
    variance: Any
    sigma: Any

    def __mul__(self, by: Any) -> Response:
        return Response(*(by * one for one in self))

    def plus(self, other: Response) -> Response:
        """The response to both."""
        return Response(*(a + b for a, b in zip(self, other, strict=True)))


def to_score(of: Integrals, score: Float[Array, "panels 16"]) -> Response:
    """The response to a score that is given at the nodes.

    With φ the normal density, σ = ∫ φ(z(f)) df: so dσ = −∫ z dF df, where dF = ∫ s q up to f, s centred.
    """
    density, deviation = of.density, of.offset - of.shift
    score = jnp.where(density.mass > 0, score, 0.0)
    rise = jnp.sum(density.mass * score)
    pull = density.mass * (score - rise)
    sigma = 0.0 if of.z is None else -jnp.sum(widths(density.nodes) * of.z * density.below(pull))
    return Response(rise, jnp.sum(pull * deviation), jnp.sum(pull * deviation**2), sigma)


def to_cavity(of: Integrals, v: Any, dm: Any, dv: Any) -> Response:
    """The response to changes of the cavity's mean and variance."""
    by_mean, by_variance = to_score(of, of.offset / v), to_score(of, 0.5 * (of.offset**2 / v - 1.0) / v)
    return (by_mean * unless_zero(dm)).plus(by_variance * unless_zero(dv))


def score_along(log_prob: Any, parts: Any, tangents: Any) -> Array | None:
    """The change of log_prob(parts), values at the nodes, along changes of the parts' numbers; None if none changes."""
    leaves, form = jax.tree.flatten(parts)
    along = jax.tree.leaves(tangents, is_leaf=_is_zero)
    moving = [not _is_zero(one) for one in along]
    if not any(moving):
        return None

    def at_nodes(*numbers: Any) -> Array:
        own = iter(numbers)
        return log_prob(form.unflatten([next(own) if it else leaf for it, leaf in zip(moving, leaves, strict=True)]))

    chosen = [(leaf, one) for it, leaf, one in zip(moving, leaves, along, strict=True) if it]
    numbers, directions = zip(*chosen, strict=True)
    return jax.jvp(at_nodes, numbers, directions)[1]


def unless_zero(tangent: Any) -> Any:
    """A tangent as a number."""
    return 0.0 if _is_zero(tangent) else tangent


def _is_zero(part: Any) -> bool:
    return isinstance(part, jax.custom_derivatives.SymbolicZero)
