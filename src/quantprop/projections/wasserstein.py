"""W₂(tilted, Gaussian): the projection of quantile propagation (paper, section 4.2 and appendix A).

Same mean as KL; standard deviation σ* = E[(f − μ) z(f)] with z = Φ⁻¹(F(f)), F the tilted CDF. By Cauchy-Schwarz
σ* ≤ σ, and σ² − σ*² = E[(f − μ − σ* z)²] = W₂², which is how the difference is computed: it cannot turn negative.
"""

from __future__ import annotations

import math
from functools import singledispatch

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jaxtyping import Array, Bool

from quantprop.core.gaussian import Normal
from quantprop.core.records import field
from quantprop.likelihoods.additive import Gaussian
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar
from quantprop.likelihoods.binary import Heaviside, Probit, Sign
from quantprop.likelihoods.derived import ByOutput, WithFewNodes
from quantprop.likelihoods.on_grid import OnNodes
from quantprop.likelihoods.tilted import Tilted, on_few_nodes, quadrature_moments, tilt
from quantprop.likelihoods.varying import OfFunction
from quantprop.likelihoods.warped import Warped
from quantprop.numerics.quadrature import frozen
from quantprop.numerics.smooth import summed
from quantprop.numerics.special import norm_logpdf, normal_score
from quantprop.numerics.trusted import if_trusted, unless_trusted
from quantprop.projections.base import Projection
from quantprop.projections.probit_table import variance_gap
from quantprop.projections.wasserstein_p import nearest_wp
from quantprop.runtime.arguments import is_number

MIN_TAIL = 1e-12  # tail mass that counts: what lies beyond it contributes less than 1e-10
MIXTURE_NODES, FARTHEST = 128, 9.0  # nodes in f, up to this many standard deviations from the mean of each part
NARROW_SHARE = 1e-2  # nodes are dense around the narrowest part with this probability, relative to the largest
SCORE_TOLERANCE = 1e-9  # largest error of z's first two moments that is accepted


class Wasserstein(Projection):
    """The Gaussian nearest to the tilted density in the L_p Wasserstein distance.

    Args:
        p: Order of the distance, at least 1.

    >>> from quantprop import likelihoods, project, projections
    >>> found = project(likelihoods.Heaviside(), 1, (0.0, 1.0), projections.Wasserstein(2))
    >>> round(float(found.variance), 4)  # below KL's 0.3634
    0.3368
    """

    p: float = field(default=2.0, static=True)

    def __check_init__(self) -> None:
        if not (is_number(self.p) and 1.0 <= self.p < math.inf):
            raise ValueError(f"Wasserstein: p must be a finite number, at least 1; got {self.p}")

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        if self.p == 2:
            return nearest_w2(likelihood, datum, cavity)
        return nearest_wp(float(self.p), likelihood, datum, cavity)

    def quick(self, likelihood: Likelihood) -> bool:
        return self.p == 2 and isinstance(likelihood, Probit)

    def on_few_nodes(self, likelihood: Likelihood) -> bool:
        return (
            self.p == 2 and likelihood.smooth and nearest_w2.dispatch(type(likelihood)) is nearest_w2.dispatch(object)
        )


def narrowed(moments: Moments, gap: Scalar) -> Moments:
    """Moments whose variance is reduced by the factor 1 − gap."""
    return Moments(
        moments.log_normalizer,
        moments.shift,
        moments.ratio * (1.0 - gap),
        moments.shrink + moments.ratio * gap,
    )


@singledispatch
def nearest_w2(likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
    """W₂ projection; by quadrature unless a faster way is registered for the likelihood's type."""
    return smooth_w2(likelihood, datum, cavity) if likelihood.smooth else panel_w2(likelihood, datum, cavity)


def panel_w2(likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
    tilted = tilt(likelihood, datum, cavity)
    moments = quadrature_moments(likelihood, tilted, cavity)
    return narrowed(moments, quadrature_gap(tilted, moments, cavity))


def few_node_w2(likelihood: Likelihood, datum: Datum, cavity: Normal) -> tuple[Moments, Bool[Array, ""]]:
    """W₂ projection by the small rule, and whether it is accurate: z is standard normal, so E z = 0 and E z² = 1."""
    few = on_few_nodes(likelihood, datum, cavity, kept=jax.lax.optimization_barrier)  # once, not once per sum
    moments, mass = few.moments, few.nodes.mass / few.total
    lower, upper = few.nodes.tails(few.total)
    x = (few.nodes.offset - moments.shift) / jnp.sqrt(moments.ratio * cavity.variance)
    z = jnp.where(jnp.minimum(lower, upper) > MIN_TAIL, normal_score(lower, upper), x)
    z = jax.lax.optimization_barrier(z)
    mean, square, sigma = summed(mass * z, mass * z * z, mass * x * z)
    (gap,) = summed(mass * (x - sigma * z) ** 2)
    normal = jnp.maximum(jnp.abs(mean), jnp.abs(square - 1.0)) <= SCORE_TOLERANCE
    return narrowed(moments, gap), few.trusted & (normal | ~(cavity.variance > 0))


smooth_w2, trusted_w2 = unless_trusted(few_node_w2, panel_w2), if_trusted(few_node_w2)


def quadrature_gap(tilted: Tilted, moments: Moments, cavity: Normal) -> Scalar:
    """1 − σ*²/σ² of a tilted density from its nodes."""
    return _gap(tilted, _scores(tilted), moments, cavity)


def _scores(tilted: Tilted) -> Array:
    """z = Φ⁻¹(F) at the nodes, once, not once per sum."""
    return jax.lax.optimization_barrier(normal_score(*tilted.density.tails()))


def _gap(tilted: Tilted, z: Array, moments: Moments, cavity: Normal) -> Scalar:
    density, deviation = tilted.density, tilted.offset - moments.shift
    sigma = density.expect(deviation * z)
    return density.expect((deviation - sigma * z) ** 2) / (moments.ratio * cavity.variance)


@nearest_w2.register
def _(likelihood: WithFewNodes, datum: Datum, cavity: Normal) -> Moments:
    return trusted_w2(likelihood.base, datum, cavity)


@nearest_w2.register(Warped)
@nearest_w2.register(Gaussian)
def _(likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
    return likelihood.moments(datum, cavity)  # the tilted density is Gaussian: nothing to narrow


@nearest_w2.register
def _(likelihood: ByOutput, datum: Datum, cavity: Normal) -> Moments:
    return likelihood.each(nearest_w2, datum, cavity)


@nearest_w2.register
def _(likelihood: OnNodes, datum: Datum, cavity: Normal) -> Moments:
    """NaN if z is not standard normal, where the density is rough between its nodes."""
    tilted = likelihood.known
    density, z = tilted.density, _scores(tilted)
    moments = quadrature_moments(likelihood, tilted, cavity)
    error = jnp.maximum(jnp.abs(density.expect(z)), jnp.abs(density.expect(z * z) - 1.0))
    good = (error <= likelihood.max_score) | ~(cavity.variance > 0)
    found = narrowed(moments, _gap(tilted, z, moments, cavity))
    return jax.tree.map(lambda part: jnp.where(good, part, jnp.nan), found)


@nearest_w2.register
def _(likelihood: OfFunction, datum: Datum, cavity: Normal) -> Moments:
    if not likelihood.of_g.whole.base.conjugate:
        return smooth_w2(likelihood, datum, cavity)
    given = likelihood.of_g.given_each(datum, likelihood.g)
    moments = likelihood.of_g.mixed(given, likelihood.mass)
    variance = moments.ratio * cavity.variance
    sigma = mixture_sigma(given.shift, jnp.sqrt(given.ratio * cavity.variance), likelihood.mass)
    return narrowed(moments, 1.0 - sigma**2 / variance)


def mixture_sigma(mean: Array, sd: Array, mass: Array) -> Scalar:
    """σ* of a mixture of Gaussians: ∫ φ(z(f)) df, which is E[(f − μ) z] by parts; nodes are dense around the narrowest
    part that matters.
    """
    m, s, share = frozen((mean, sd, mass))
    lower, upper = (
        end * jnp.max(jnp.where(share > MIN_TAIL**2, end * m + FARTHEST * s, -jnp.inf)) for end in (-1.0, 1.0)
    )
    narrow = jnp.argmin(jnp.where(share > NARROW_SHARE * jnp.max(share), s, jnp.inf))
    first, last = (jnp.arcsinh((end - m[narrow]) / s[narrow]) for end in (lower, upper))
    t = jnp.linspace(first, last, MIXTURE_NODES)
    f = m[narrow] + s[narrow] * jnp.sinh(t)
    below = 0.5 * jnp.sum(mass * erfc((mean - f[:, None]) / (np.sqrt(2.0) * sd)), axis=1)  # faster than `ndtr`
    height = jnp.exp(norm_logpdf(normal_score(below, 1.0 - below)))
    return jnp.sum(height * s[narrow] * jnp.cosh(t)) * (t[1] - t[0])


@nearest_w2.register
def _(likelihood: Probit, datum: Datum, cavity: Normal) -> Moments:
    return narrowed(likelihood.moments(datum, cavity), variance_gap(likelihood.margin(datum, cavity), cavity.variance))


@nearest_w2.register
def _(likelihood: Heaviside, datum: Datum, cavity: Normal) -> Moments:
    # A threshold at 0 has no scale of its own: the gap is that of the cavity in units of its standard deviation.
    standard = Normal(cavity.mean / jnp.sqrt(cavity.variance), jnp.ones_like(cavity.variance))
    moments = likelihood.moments(datum, standard)
    gap = jax.lax.cond(
        jnp.asarray(likelihood.noise) == 0.0,
        lambda: variance_gap(likelihood.margin(datum, cavity), jnp.full_like(cavity.variance, jnp.inf)),
        lambda: quadrature_gap(tilt(likelihood, datum, standard), moments, standard),
    )
    return narrowed(likelihood.moments(datum, cavity), gap)


@nearest_w2.register
def _(likelihood: Sign, datum: Datum, cavity: Normal) -> Moments:
    """A threshold without noise: the limit of probit for a cavity of infinite variance, at any scale of f."""
    margin = datum.y * cavity.mean / jnp.sqrt(cavity.variance)
    return narrowed(likelihood.moments(datum, cavity), variance_gap(margin, jnp.full_like(margin, jnp.inf)))
