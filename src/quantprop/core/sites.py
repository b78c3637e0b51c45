"""Quantities of one observation that likelihoods and methods exchange: data, moments, Gaussian sites and cavities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural, Normal, Vector
from quantprop.core.records import Record

Scalar = Any  # one number: a Python float, or a JAX array of shape ()
Factor = Any  # a Likelihood, which needs what is imported here


class Datum(NamedTuple):
    """One observation (or, stacked, all of them) with its exposure and trials.

    Args:
        y: The observation.
        exposure: Exposure; 1 by default.
        trials: Trials; 1 by default.

    >>> from quantprop.likelihoods import Datum
    >>> Datum(3.0, exposure=2.0, trials=1.0).exposure
    2.0
    """

    y: Vector
    exposure: Vector
    trials: Vector


class Moments(Record):
    """A Gaussian approximation to a tilted density, relative to its cavity N(m, v), so that nothing cancels.

    The approximation is N(m + shift, ratio · v); shrink is 1 − ratio, computed on its own.
    """

    log_normalizer: Scalar
    shift: Scalar
    ratio: Scalar
    shrink: Scalar


class Split(NamedTuple):
    """p(y | f) N(f | cavity) as exp(constant + rest(f)) N(f | core)."""

    rest: Callable[[Scalar], Scalar]
    core: Normal
    constant: Scalar


class Marginal(Record):
    """Everything that a prior backend reports about one latent value under the current sites.

    With S = diag τ: alpha = [(I + S K)⁻¹(ν − τ m)]_i, which is also ν − τ·mean; b = [(I + S K)⁻¹]_ii, also
    1 − τ·variance. They come as numbers of their own because both differences lose every digit when K is large.
    """

    mean: Scalar
    variance: Scalar
    alpha: Scalar
    b: Scalar


class Removal(Record):
    """The part removed from a marginal: `share` of its site, minus a precision `retained` from the likelihood."""

    share: Scalar
    retained: Scalar = 0.0

    def left(self, marginal: Marginal) -> Scalar:
        """marginal variance / cavity variance = 1 − share (τ − retained) · variance, without cancellation."""
        return (1.0 - self.share) + self.share * (marginal.b + self.retained * marginal.variance)

    def pull(self, marginal: Marginal) -> Scalar:
        """ν' − τ' · mean for the removed (ν', τ') = share · (ν, τ − retained)."""
        return self.share * (marginal.alpha + self.retained * marginal.mean)


def cavity(marginal: Marginal, site: Natural, removal: Removal) -> Normal:
    """The marginal without the removed part of its site (all of it for EP, a fraction for power EP or repeated data).

    Improper (variance not positive) where the rest of the model does not constrain the value; the caller decides.
    """
    left = removal.left(marginal)
    variance = marginal.variance / left
    mean = marginal.mean - removal.pull(marginal) * variance
    # Where the site is strong, mean and pull·variance are large and nearly equal: use ν/τ − α/(τ left) instead.
    strong = (site.tau * marginal.variance > 0.5) & (removal.retained == 0.0)
    tau = jnp.where(strong, site.tau, 1.0)
    return Normal(jnp.where(strong, site.nu / tau - marginal.alpha / (tau * left), mean), variance)


def renewed(cavity: Normal, projected: Moments) -> Natural:
    """The site that turns the cavity into the projected Gaussian."""
    precision = 1.0 / (projected.ratio * cavity.variance)
    tau = projected.shrink * precision
    return Natural(cavity.mean * tau + projected.shift * precision, tau)


def log_site_normalizer(marginal: Marginal, removal: Removal, cavity: Normal) -> Scalar:
    """log ∫ exp(ν'(f − μ) − ½ τ'(f² − μ²)) N(f | cavity) df for the removed part (ν', τ') of the site.

    Sites are measured at the marginal's mean μ: their own size, ν²/τ, is huge where noise is tiny, and cancels.
    """
    return 0.5 * jnp.log(removal.left(marginal)) - 0.5 * removal.pull(marginal) ** 2 * cavity.variance


def unit(variance: Scalar) -> Scalar:
    """The standard deviation as the unit of changes; 1 where a value has no variance, and nothing moves it."""
    return jnp.sqrt(jnp.where(variance == 0.0, 1.0, variance))


def change(marginal: Marginal, c: Float[Array, "2 ..."], s: Float[Array, "2 ..."]) -> tuple[Marginal, Natural]:
    """The change of marginals and sites with a small move: c of the surroundings and s of the sites, both as (p, q).

    The changes of b = 1 − τσ² and α = ν − τμ are written so that nothing cancels where b is small.
    """
    sd = unit(marginal.variance)
    by_sd = 1.0 / sd
    p, q = c + s
    by = Marginal(
        sd * p,
        -marginal.variance * q,
        (marginal.b * s[0] - (1.0 - marginal.b) * c[0]) * by_sd,
        (1.0 - marginal.b) * c[1] - marginal.b * s[1],
    )
    by_tau = s[1] * by_sd**2
    return by, Natural(s[0] * by_sd + marginal.mean * by_tau, by_tau)


def moved(
    marginal: Marginal, site: Natural, c: Float[Array, "2 ..."], s: Float[Array, "2 ..."]
) -> tuple[Marginal, Natural]:
    return jax.tree.map(jnp.add, (marginal, site), change(marginal, c, s))
