"""Special functions of the normal distribution that stay accurate in both tails.

Scalar in, scalar out; JAX-traceable and differentiable. `x` is any real number unless said.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc, gammaln, ndtri

from quantprop.core.gaussian import LOG_2PI
from quantprop.numerics.quadrature import NODES, WEIGHTS

# Chebyshev coefficients of (1 + x²) D(x) in t = (x − 3)/(x + 3), x ≥ 0, where D(x) is the variance of a standard
# normal truncated to (x, ∞). From 35 Chebyshev points at 60 digits; tests/test_special.py compares D with mpmath.
_TRUNCATED_VARIANCE = (
    0.6767857866230532, 0.38858077338595726, -0.009844677233045909, -0.07595900139914108,
    0.0166446243747378, 0.006192220340015867, -0.0020877331885712676, -0.0005550955972318761,
    0.00020920755770105024, 5.652729400311339e-05, -1.8393817689072043e-05, -6.133579652518787e-06,
    1.3721696639432874e-06, 6.552308116134304e-07, -7.339987749308189e-08, -6.469892809374215e-08,
    2.084715210888515e-10, 5.5761684223869e-09, 6.110679980015513e-10, -3.850068477657244e-10,
    -9.854120264222058e-11, 1.6615680374323116e-11, 9.864698391377413e-12, 3.0138929105369623e-13,
    -6.430431472762405e-13, -1.3350309345162855e-13, 1.5337971447880932e-14, 1.1473896575262994e-14,
    1.9840557409779036e-15, -1.3711936046532628e-16, -2.1691094206151922e-16, -7.704351364925754e-17,
    -4.88368175042089e-18, 7.736490918373008e-18, 3.444683986990092e-18,
)  # fmt: skip

_POWERS = np.polynomial.chebyshev.cheb2poly(_TRUNCATED_VARIANCE)  # in powers of t: their sizes sum to 3, so as accurate
_SLOPES = np.polynomial.polynomial.polyder(_POWERS)

_SQRT2 = 2.0**0.5


def horner(coefficients, x):
    """Σ_k c_k x^k."""
    return reduce(lambda value, c_k: value * x + c_k, reversed(coefficients))


def norm_logpdf(x):
    """log φ(x)."""
    return -0.5 * x * x - 0.5 * LOG_2PI


class Truncated(NamedTuple):
    """A standard normal truncated to (−x, ∞): log Φ(x), the hazard n = φ(x)/Φ(x), and the variance D = 1 − n(x + n)."""

    log_mass: jax.Array
    hazard: jax.Array
    variance: jax.Array


@jax.custom_jvp
def truncated_normal(x) -> Truncated:
    """All three with relative errors near machine precision: for x → −∞, D ≈ 1/x² and n, of n(x + n) = 1 − D, ≈ −x."""
    negative, positive = jnp.minimum(x, 0.0), jnp.maximum(x, 0.0)
    low_d = _lower_variance(negative)
    low_n = 0.5 * (jnp.sqrt(negative * negative + 4.0 * (1.0 - low_d)) - negative)
    beyond = 0.5 * erfc(positive / _SQRT2)
    n = jnp.exp(norm_logpdf(positive)) / (1.0 - beyond)
    below = x < 0
    return Truncated(
        jnp.where(below, norm_logpdf(negative) - jnp.log(low_n), jnp.log1p(-beyond)),  # Φ = φ/n
        jnp.where(below, low_n, n),
        jnp.where(below, low_d, 1.0 - n * (positive + n)),
    )


def _lower_variance(x):
    """D for x ≤ 0."""
    return horner(_POWERS, (-x - 3.0) / (3.0 - x)) / (1.0 + x * x)


def _lower_slope(x, d):
    """D' for x ≤ 0, given D there."""
    by_t = horner(_SLOPES, (-x - 3.0) / (3.0 - x))
    return (-6.0 * by_t / (3.0 - x) ** 2 - 2.0 * x * d) / (1.0 + x * x)


@truncated_normal.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    at = truncated_normal(x)
    lower = _lower_slope(jnp.minimum(x, 0.0), at.variance)
    upper = at.hazard * ((x + at.hazard) ** 2 - at.variance)  # the same for all x, but it cancels for x → −∞
    by_variance = jnp.where(x < 0, lower, upper)
    return at, Truncated(at.hazard * dx, (at.variance - 1.0) * dx, by_variance * dx)  # n' = −n(x + n)


def log_ndtr(x):
    return truncated_normal(x).log_mass


class Interval(NamedTuple):
    """log(Φ(u) − Φ(l)), and what is left of it without the −½ x² of the end x that is nearer to 0."""

    log_mass: jax.Array
    log_rest: jax.Array


def normal_interval(lower, upper) -> Interval:
    """The mass of (lower, upper), lower < upper, infinite ends allowed, from whichever tail is smaller.

    In the tail, log Φ(x) = −½ x² − ½ log 2π − log n(x): squares of ends are subtracted before they are rounded, and
    `log_rest` never sees them.
    """
    flip = lower + upper > 0  # Φ(u) − Φ(l) = Φ(−l) − Φ(−u)
    a, b = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    half_line, in_tail = jnp.isneginf(a), b < 0
    a = jnp.where(half_line, b - 1.0, a)
    near, far = truncated_normal(b), truncated_normal(a)
    log_hazard, log_far = (jnp.log(jnp.where(in_tail, part.hazard, 1.0)) for part in (near, far))
    tails = 0.5 * (b - a) * (b + a) + log_hazard - log_far
    log_ratio = jnp.where(half_line, -jnp.inf, jnp.where(in_tail, tails, far.log_mass - near.log_mass))
    inside = jnp.log(-jnp.expm1(log_ratio))
    return Interval(near.log_mass + inside, inside - log_hazard - 0.5 * LOG_2PI)


def log_ndtr_difference(lower, upper):
    """log(Φ(upper) − Φ(lower)) for lower < upper."""
    return normal_interval(lower, upper).log_mass


def normal_score(lower, upper):
    """Φ⁻¹(F) from the two tail masses F = lower and 1 − F = upper, taken from the smaller one.

    A mass that rounding left at or below zero counts as 1e-300 (z = ∓37): such a point carries no weight.
    """
    z = ndtri(jnp.clip(jnp.minimum(lower, upper), 1e-300, 0.5))
    return jnp.where(lower < upper, z, -z)


def log_laguerre_ratio(y, x):
    """log ₁F₁(−y; ½; −x) for a count y ≥ 0 and x ≥ 0: a finite sum of positive terms, so nothing cancels.

    Terms t_k = t_{k−1} · (y − k + 1) x / ((k − ½) k); the sum is carried with a running scale.
    """

    def add(state):
        k, log_term, log_sum = state
        log_term = log_term + jnp.log((y - k + 1.0) * x / ((k - 0.5) * k))
        return k + 1.0, log_term, jnp.logaddexp(log_sum, log_term)

    first = (jnp.ones_like(x), jnp.zeros_like(x), jnp.zeros_like(x))
    return jax.lax.while_loop(lambda s: s[0] <= y, add, first)[2]


def log_factorial(y):
    return gammaln(y + 1.0)


def expected_log_square(mean, variance):
    """E[log f²] for f ~ N(mean, variance), and its derivatives in the mean and in the variance.

    With a = mean²/(2 variance): E[log f²] = log variance − γ − log 2 + 2 ∫₀^∞ (1 − exp(−a sech² w)) dw, and
    the derivative in 2a is ∫₀^∞ sech² w exp(−a sech² w) dw = F(√a)/√a, F Dawson's function. (A normal squared is a
    Poisson mixture of χ²; summing the mixture under the integral sign gives these.) Both integrands are smooth on the
    scale 1 and vanish beyond w = ½ log(4a) + 20.
    """
    a = 0.5 * mean * mean / variance
    panels = 16
    width = (0.5 * jnp.log1p(4.0 * a) + 20.0) / panels
    w = width * (jnp.arange(panels)[:, None] + 0.5 * (1.0 + NODES))
    weight = 0.5 * width * WEIGHTS
    sech2 = 1.0 / jnp.cosh(w) ** 2
    value = 2.0 * jnp.sum(weight * -jnp.expm1(-a * sech2))
    dawson = weight * sech2 * jnp.exp(-a * sech2)
    # 1 − 2a ∫ sech² w exp(−a sech² w) dw without the cancellation at large a: ∫ with tanh w under it is known.
    rest = jnp.exp(-a) - 2.0 * a * jnp.sum(dawson * 2.0 / (1.0 + jnp.exp(2.0 * w)))
    expected = jnp.log(variance) - np.euler_gamma - np.log(2.0) + value
    return expected, 2.0 * mean * jnp.sum(dawson) / variance, rest / variance
