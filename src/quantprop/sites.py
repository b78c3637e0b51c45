"""Gaussian sites and the cavities they leave; all for one datum."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from quantprop.gaussian import Natural, Normal
from quantprop.likelihoods.base import Moments, Scalar


class Marginal(eqx.Module):
    """What a prior backend says about one latent value under the current sites.

    With S = diag τ: alpha = [(I + S K)⁻¹(ν − τ m)]_i, which is also ν − τ·mean; b = [(I + S K)⁻¹]_ii, also
    1 − τ·variance. They come as numbers of their own because both differences lose every digit when K is large.
    """

    mean: Scalar
    variance: Scalar
    alpha: Scalar
    b: Scalar


def cavity(marginal: Marginal, site: Natural, share: Scalar | float) -> Normal:
    """The marginal with `share` of its site removed (1 for EP, a fraction for power EP or repeated data).

    Improper (variance not positive) where the rest of the model does not hold the value; the caller decides.
    """
    b = 1.0 - share * (1.0 - marginal.b)
    strong = site.tau * marginal.variance > 0.5
    tau = jnp.where(strong, site.tau, 1.0)
    variance = marginal.variance / b
    mean = jnp.where(strong, site.nu / tau - marginal.alpha / (tau * b), marginal.mean - share * variance * marginal.alpha)
    return Normal(mean, variance)


def renewed(cavity: Normal, projected: Moments) -> Natural:
    """The site that turns the cavity into the projected Gaussian."""
    precision = 1.0 / (projected.ratio * cavity.variance)
    tau = projected.shrink * precision
    return Natural(cavity.mean * tau + projected.shift * precision, tau)


def log_site_normalizer(marginal: Marginal, site: Natural, share: Scalar | float, cavity: Normal) -> Scalar:
    """log ∫ exp(ν' f − ½ τ' f²) N(f | cavity) df for the removed share (ν', τ') of the site."""
    b = 1.0 - share * (1.0 - marginal.b)
    nu, tau = share * site.nu, share * site.tau
    pull = share * marginal.alpha / b  # = ν' − τ' m of the cavity
    mean = cavity.mean
    return 0.5 * jnp.log(b) + mean * (nu - 0.5 * tau * mean) + 0.5 * pull**2 * marginal.variance
