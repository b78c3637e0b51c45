"""A small quadrature rule for a tilted density p(y | f) N(f | m, v) with one smooth peak; other rows use an exact rule.

The mode and the two places where the density has dropped by exp(−DEPTH) come from Newton's method. Between them t has
equal steps, 2 t = asinh((f − c − h)/w) + asinh((f − c + h)/w): nodes are dense on the scale w around the likelihood's
landmarks c ± h, the two ends of an interval or one place (h = 0, f = c + w sinh t), and equally spaced where the window
is narrow beside w. A trapezoidal sum in t converges exponentially.

The error is measured at these nodes, not extrapolated. A derivative integrates to zero, and its trapezoidal sum is
what aliasing leaves: 2π/step times as much as of the integral itself, in the other phase. The derivatives of g, x g
and x² g, g the density in t and x its standardised argument, between them show both phases (`Sums.error`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import sici

from quantprop.core.records import Record

NODE_COUNT = 56
DEPTH = 34.0  # nodes end where the density is exp(−DEPTH) of its maximum
MIN_DEPTH = 28.0  # the least drop that still leaves nothing outside: exp(−28) = 7e-13
WIDEN = 2.0  # w in units of the landmark's scale
MIN_WIDTH = 0.03  # w at least, in units of the window
NEAR_LANDMARK = 3.0  # standard deviations from the mode; w grows with the distance of a landmark that is farther away
FAR_WIDTH_PER_SD = 0.15  # in units of that distance
MAX_FAR_WIDTH = 0.5  # in units of that distance
MAX_REACH = 3.0  # windows between the window and c, at most
NEWTON_STEPS = 8
OUTWARD_STEPS = 5
TRUSTED_ERROR = 3e-10  # largest error of the integrals that is accepted


def _running_sums() -> np.ndarray:
    """[A; C] with F = mass A + (mass · bend) C at the nodes, from samples of a function and of its derivative.

    Both together determine a function whose frequencies are below 2π/step, as the trapezoidal sum does:
    g(t) = Σ (g_k + (t − t_k) g′_k) sinc²((t − t_k)/step), and the integrals of these terms are known.
    """
    away = np.arange(NODE_COUNT)[None] - np.arange(NODE_COUNT)[:, None]
    sine, cosine = sici(2.0 * np.pi * np.maximum(np.abs(away), 1))
    below = 0.5 + np.sign(away) * sine / np.pi
    odd = (np.log(2.0 * np.pi * np.maximum(np.abs(away), 1)) + np.euler_gamma - cosine) / (2.0 * np.pi**2)
    return np.concatenate([below, np.where(away == 0, 0.0, odd)])


_SUMS = _running_sums()
_STEPS = np.linspace(0.0, 1.0, NODE_COUNT)


class Placement(NamedTuple):
    """The nodes d(t), dense on the scale w around c ± h, for NODE_COUNT values of t from `first` on, over a range of
    `span`.
    """

    c: Array
    h: Array
    w: Array
    first: Array
    span: Array
    mode: Array  # of the density
    sd: Array  # (−∂² log density)^−½ there
    top: Array  # log density there
    whole: Bool[Array, ""]  # nothing lies outside


class Nodes(Record):
    """exp(log_prob(d)) N(d | 0, v) at the nodes, up to a constant: ∫ g q ≈ Σ mass · g / Σ mass."""

    offset: Float[Array, " nodes"]  # d
    mass: Float[Array, " nodes"]
    slope: Float[Array, " nodes"]  # of log_prob, less its value at the mode
    width: Float[Array, " nodes"]  # dd/dt · step
    bend: Float[Array, " nodes"]  # d log(mass)/dt · step

    def tails(self, total: Array) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
        """F and 1 − F at the nodes."""
        lower = (jnp.concatenate([self.mass, self.mass * self.bend]) @ _SUMS) / total
        return lower, 1.0 - lower


class Sums(NamedTuple):
    """Integrals of a density on nodes: mass, mean and variance of d, covariance of d and slope, and their error."""

    total: Array
    mean: Array
    variance: Array
    covariance: Array
    error: Array


@jax.custom_jvp
def summed(*terms: Float[Array, " nodes"]) -> tuple[Array, ...]:
    """The sum of each term, in one loop over the nodes: several loops would compute what the terms share each time."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    return tuple(jax.lax.reduce(terms, zeros, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), (0,)))


@summed.defjvp
def _(primals, tangents):
    return summed(*primals), summed(*tangents)


class Peak(NamedTuple):
    """The likelihood as seen from the cavity's mean: log p(m + d), its first and last landmark (less m), its shape."""

    log_prob: Callable
    location: Array
    last: Array
    scale: Array
    log_concave: bool


def place(of: Peak, v: Array) -> Placement:
    """Nodes for exp(log_prob(d)) N(d | 0, v). Differentiate what is integrated, not where: freeze the arguments."""

    def log_density(d):
        return of.log_prob(d) - 0.5 * d * d / v

    d = _mode(of, log_density, v)
    top, bend = log_density(d), _derivative(_derivative(log_density))(d)
    sd = jnp.where(bend < 0, jnp.sqrt(-1.0 / jnp.where(bend < 0, bend, -1.0)), jnp.sqrt(v))
    left, right = _window(lambda x: top - log_density(d + x), sd, DEPTH + _rise(of, d, sd))
    left, right = d + left, d + right
    window = right - left
    a, b = (jnp.clip(one, left - MAX_REACH * window, right + MAX_REACH * window) for one in (of.location, of.last))
    away = jnp.minimum(jnp.abs(d - a), jnp.abs(d - b))
    coarse = away * jnp.clip(FAR_WIDTH_PER_SD * (away / sd - NEAR_LANDMARK), 0.0, MAX_FAR_WIDTH)
    w = jnp.maximum(jnp.maximum(WIDEN * of.scale, MIN_WIDTH * window), coarse)
    first, last = (0.5 * (jnp.arcsinh((end - a) / w) + jnp.arcsinh((end - b) / w)) for end in (left, right))
    whole = _nothing_outside(of, v, top, left, right)
    return Placement(0.5 * (a + b), 0.5 * (b - a), w, first, last - first, d, sd, top, whole)


def _derivative(function: Callable) -> Callable:
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def _mode(of: Peak, log_density: Callable, v: Array) -> Array:
    """The maximum of the density: Newton's method in a bracket, between the cavity's mean and v ∂ log p there if
    log p is concave, and else the landmark.
    """
    slope = _derivative(log_density)
    other = v * slope(jnp.zeros_like(v)) if of.log_concave else of.location
    low, high = jnp.minimum(other, 0.0), jnp.maximum(other, 0.0)

    def newton(_, state):
        d, low, high = state
        value, bend = jax.jvp(slope, (d,), (jnp.ones_like(d),))
        low, high = jnp.where(value > 0, d, low), jnp.where(value > 0, high, d)
        new = d - value / bend
        return jnp.where((new >= low) & (new <= high) & (bend < 0), new, 0.5 * (low + high)), low, high

    start = jnp.clip(jnp.clip(0.0, of.location, of.last) * v / (v + of.scale**2), low, high)
    return jax.lax.fori_loop(0, NEWTON_STEPS, newton, (start, low, high))[0]


def _rise(of: Peak, d: Array, sd: Array) -> Array:
    """Additional depth of the nodes for an outlier: beyond them log p may rise to its peak (`_nothing_outside`)."""
    if of.log_concave:
        return jnp.zeros_like(d)
    higher = jnp.maximum(of.log_prob(of.location) - of.log_prob(d), 0.0)
    return higher + 3.0 * jnp.log1p(jnp.abs(of.location - d) / sd)


def _window(drop: Callable, sd: Array, depth: Array) -> tuple[Array, Array]:
    """The points on either side of 0 at which the log density has dropped by `depth`.

    Newton's method on √drop, linear for a Gaussian; `drop` is a function of the distance.
    """

    def outward(_, x):
        value, rise = jax.vmap(lambda x: jax.jvp(drop, (x,), (jnp.ones_like(x),)))(x)
        root = jnp.sqrt(jnp.maximum(value, 0.0))
        factor = 1.0 - 2.0 * root * (root - jnp.sqrt(depth)) / (rise * x)
        return x * jnp.where(jnp.isfinite(factor) & (value > 0), jnp.clip(factor, 0.25, 8.0), 0.5)

    ends = jax.lax.fori_loop(0, OUTWARD_STEPS, outward, jnp.stack([-sd, sd]) * jnp.sqrt(2.0 * depth))
    return ends[0], ends[1]


def _nothing_outside(of: Peak, v: Array, top: Array, left: Array, right: Array) -> Bool[Array, ""]:
    """Return whether the density has dropped enough at both ends, and cannot rise again beyond them.

    With one peak in log p it can rise beyond an end e only towards the cavity's mean, which it does not if log p falls
    that far, or towards that peak, where it is at most N(e) times p at the peak.
    """

    def side(end, away):
        value, slope = jax.jvp(of.log_prob, (end,), (jnp.ones_like(end),))
        gaussian = -0.5 * end * end / v
        small = top - value - gaussian > MIN_DEPTH
        if of.log_concave:
            return small
        distance = jnp.maximum(jnp.abs(end), jnp.abs(of.location - end)) / (right - left)
        rising, outside = slope * away > 0, end * away > 0
        highest = jnp.maximum(of.log_prob(of.location), value)
        bound = jnp.where(outside, jnp.where(rising, highest + gaussian, value + gaussian), value)
        return small & ~(rising & ~outside) & (top - bound - 3.0 * jnp.log1p(distance) > MIN_DEPTH)

    return side(left, -1.0) & side(right, 1.0)


def on_nodes(log_prob: Callable, v: Array, at: Placement, kept: Callable = lambda x: x) -> Nodes:
    """exp(log_prob(d)) N(d | 0, v) at the nodes; `kept` is done to what takes long to compute."""
    grown, step = kept(jnp.exp(at.first + at.span * _STEPS)), at.span / (NODE_COUNT - 1)
    sinh, cosh = 0.5 * (grown - 1.0 / grown), 0.5 * (grown + 1.0 / grown)
    ends = (at.h / cosh) ** 2
    root = jnp.sqrt(at.w**2 + ends)
    offset, grade = at.c + sinh * root, at.w**2 * cosh + ends / cosh  # dd/dt = grade/root
    width = step * grade / root
    widening = step * sinh * ((at.w**2 - 3.0 * ends / cosh**2) / grade + ends / (cosh * root**2))  # of the width
    value, slope = jax.jvp(jax.vmap(log_prob), (offset,), (jnp.ones_like(offset),))
    mass, slope = kept((jnp.exp(value - 0.5 * offset**2 / v - at.top) * width, slope))
    bend = (slope - offset / v) * width + widening
    slope = slope - at.mode / jax.lax.stop_gradient(v)
    there = mass > 0  # where it underflows, derivatives may be infinite, and compiled maxima may drop NaN
    return Nodes(offset, mass, jnp.where(there, slope, 0.0), width, jnp.where(there, bend, 0.0))


def sums(of: Nodes, at: Placement) -> Sums:
    """Moments, from sums around the mode; and what ∫ (xʲ g)′ = 0, j = 0, 1, 2, leaves at the nodes."""
    x, by_step, m = (of.offset - at.mode) / at.sd, of.width / at.sd, of.mass
    bent = x * of.bend
    total, *rest = summed(
        m, m * x, m * x * x, m * of.slope, m * x * of.slope,
        m * of.bend, m * (bent + by_step), m * x * (bent + 2.0 * by_step),
    )  # fmt: skip
    mean, square, slope, product, *left = (one / total for one in rest)
    variance, covariance = at.sd**2 * (square - mean * mean), at.sd * (product - mean * slope)
    error = jnp.sum(jnp.abs(jnp.stack(left))) / (2.0 * np.pi)
    return Sums(total, at.mode + at.sd * mean, variance, covariance, error)
