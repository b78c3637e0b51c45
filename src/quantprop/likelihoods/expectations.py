"""Expectations under a Gaussian of functions that are rough at known places."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.gaussian import Normal
from quantprop.likelihoods.records import Scalar
from quantprop.numerics.quadrature import Density, Landmarks, fixed_panels, frozen, integrate

OUTERMOST = 12.0  # standard deviations of a Gaussian that expectations look at


def latent_nodes(at: Landmarks, latent: Normal) -> tuple[Density, Float[Array, "panels 16"]]:
    """N(latent) itself on nodes that resolve the landmarks: the density of u = (f − mean)/sd, and f."""
    mean, sd = latent.mean, jnp.sqrt(latent.variance)
    relative = frozen(Landmarks((at.location - mean) / sd, at.scale / sd))

    density = integrate(lambda u: -0.5 * u * u, fixed_panels(-OUTERMOST, OUTERMOST, relative))
    return density, mean + sd * density.nodes


def quadrature_expectation(ell: Callable, at: Landmarks, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
    """E_q[ℓ], ∂/∂μ = E_q[u ℓ]/σ and ∂/∂v = E_q[(u² − 1) ℓ]/(2v) with u = (f − μ)/σ, ℓ(f) = log p(y | f).

    The forms with derivatives of ℓ diverge for a square link and miss the kink of double-exponential noise.
    """
    density, f = latent_nodes(at, marginal)
    u = density.nodes
    value = jax.vmap(jax.vmap(ell))(f)
    expected = density.expect(value)
    centred = value - expected  # the derivatives do not see constants
    by_mean = density.expect(u * centred) / jnp.sqrt(marginal.variance)
    return expected, by_mean, density.expect((u * u - 1.0) * centred) / (2.0 * marginal.variance)
