"""State-space forms: kernels of one input column as chains of states.

A kernel is a Markov process if a state x(t) of d numbers has x(t) = A x(s) + q, q ~ N(0, Q), for s ≤ t, and
f(t) = h(t)ᵀ x(t). Sums put states beside each other, products take Kronecker products of them (Särkkä and Solin 2019,
Applied Stochastic Differential Equations, chapter 12). States of Matérn processes are f, f′/λ and f″/λ², which makes
all their entries comparable.

Q is never the difference P − A P Aᵀ, which has no digits left where steps are short.
"""

from __future__ import annotations

from functools import singledispatch
from math import factorial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, i0e
from jaxtyping import Array, Float

from quantprop import kernels
from quantprop.kernels import Kernel
from quantprop.priors.markov.algebra import product, transposed

Times = Float[Array, "..."]
MAX_STEP = 800.0  # exp(−z) and all that it multiplies are 0 at longer steps z
MORE_HARMONICS = 40  # harmonics at which a continued fraction begins


class Form(NamedTuple):
    """Steps from one time to another: A, Q, and the states' prior covariance before the step; h at the later time."""

    a: Float[Array, "d d ..."]
    q: Float[Array, "d d ..."]
    p: Float[Array, "d d ..."]
    h: Float[Array, "d ..."]


class NotMarkov(ValueError):
    """A kernel or its inputs have no state-space form."""


@singledispatch
def form(kernel: Kernel, before: Times, now: Times, harmonics: int) -> Form:
    """The state-space form of a kernel, for steps between times that do not decrease; `harmonics` of periodic ones."""
    raise NotMarkov(
        f"process=Markov() has no state-space form of {type(kernel).__name__}; it supports Matern12, Matern32, "
        "Matern52, IntegratedWiener, Oscillation, Periodic, Constant, Linear, White, and their sums and products: use "
        "one of these (Matern52 is the nearest to SquaredExponential), or process=Dense()"
    )


# --- Matérn ----------------------------------------------------------------------------------------------------------


@form.register
def _(kernel: kernels.Matern12, before, now, harmonics):
    return _matern(kernel, now - before, np.ones((1, 1, 1)))


@form.register
def _(kernel: kernels.Matern32, before, now, harmonics):
    """exp(F z) for F = [[0, 1], [−1, −2]], as coefficients of exp(−z), z exp(−z), …"""
    return _matern(kernel, now - before, np.array([[[1, 0], [0, 1]], [[1, 1], [-1, -1]]], dtype=float))


@form.register
def _(kernel: kernels.Matern52, before, now, harmonics):
    """exp(F z) for F = [[0, 1, 0], [0, 0, 1], [−1, −3, −3]]."""
    linear = [[1, 1, 0], [0, 1, 1], [-1, -3, -2]]
    square = [[0.5, 1, 0.5], [-0.5, -1, -0.5], [0.5, 1, 0.5]]
    return _matern(kernel, now - before, np.array([np.eye(3), linear, square]))


def _matern(kernel: kernels.Stationary, step: Times, coefficients: Float[np.ndarray, "d d d"]) -> Form:
    """With λ = √(2ν)/lengthscale and z = λ·step: A = Σ_k coefficients_k z^k exp(−z), and Q = q ∫₀^z φ φᵀ du, where φ is
    A's last column and q makes the variance of f that of the kernel.
    """
    d = len(coefficients)
    z = jnp.minimum(jnp.sqrt(2.0 * d - 1.0) * step / jnp.reshape(kernel._checked_lengthscale(1), ()), MAX_STEP)
    decay = jnp.exp(-z)
    a = jnp.sum(jnp.stack([_spread(c, z) * (z**k * decay) for k, c in enumerate(coefficients)]), axis=0)
    shape = np.zeros((d, d, 2 * d - 1))  # coefficients of the powers of u in φ φᵀ exp(2u)
    for k, one in enumerate(coefficients[:, :, -1]):
        for m, other in enumerate(coefficients[:, :, -1]):
            shape[:, :, k + m] += np.outer(one, other)
    moments = [incomplete / 2.0 ** (k + 1) for k, incomplete in enumerate(_incomplete_gammas(2.0 * z, 2 * d - 1))]
    whole = np.array([factorial(k) / 2.0 ** (k + 1) for k in range(2 * d - 1)])
    scale = kernel.variance / float(shape[0, 0] @ whole)
    q = scale * sum(_spread(shape[:, :, k], z) * moment for k, moment in enumerate(moments))
    p = scale * _spread(shape @ whole, z)
    return Form(a, q, p, _spread(np.eye(d)[0], z))


def _spread(constant: np.ndarray, like: Times) -> Array:
    """A constant at every time."""
    return jnp.asarray(constant).reshape(constant.shape + (1,) * jnp.ndim(like)) * jnp.ones_like(like)


def _incomplete_gammas(x: Times, count: int) -> list[Array]:
    """∫₀^x v^k exp(−v) dv for k < count. Downwards, k γ(k) = γ(k + 1) + x^k exp(−x), nothing cancels."""
    found, decay = [float(factorial(count)) * gammainc(count + 1.0, x)], jnp.exp(-x)
    for k in range(count, 0, -1):
        found.insert(0, (found[0] + x**k * decay) / k)
    return found[:count]


# --- others ----------------------------------------------------------------------------------------------------------


@form.register
def _(kernel: kernels.Constant, before, now, harmonics):
    one = jnp.ones_like(now)[None]
    return Form(one[None], 0.0 * one[None], kernel.variance * one[None], one)


@form.register
def _(kernel: kernels.Linear, before, now, harmonics):
    """f = x (t − centre) with a constant x."""
    one = jnp.ones_like(now)[None]
    return Form(one[None], 0.0 * one[None], kernel.variance * one[None], kernel.about(now)[None] * one)


@form.register
def _(kernel: kernels.IntegratedWiener, before, now, harmonics):
    """States are f and f′ after 0, f and −f′ before it. There time runs towards the end that is known: with w = |now|,
    u = |before| and δ = u − w, a step is that of a bridge from u to 0. The two sides of 0 are independent.
    """
    w, step = jnp.abs(now), now - before
    u = jnp.where(w + step > 0, w + step, 1.0)
    one, none, late, early = jnp.ones_like(step), jnp.zeros_like(step), before >= 0, now < 0
    ahead, back = (
        ((one, step), (none, one)),
        (
            (w**2 * (w + 3.0 * step) / u**3, -(w**2) * step / u**2),
            (6.0 * w * step / u**3, w * (w - 2.0 * step) / u**2),
        ),
    )
    noise = ((step**3 / 3.0, step**2 / 2.0), (step**2 / 2.0, step))
    tied = -(w - step) * w**2 * step**2 / (2.0 * u**3)
    bridge = ((w**3 * step**3 / (3.0 * u**3), tied), (tied, (w**3 + step**3) * w * step / u**4))
    a = jnp.where(late, _matrix(ahead), jnp.where(early, _matrix(back), 0.0))
    q = jnp.where(late, _matrix(noise), jnp.where(early, _matrix(bridge), _wiener(w)))
    return Form(a, kernel.variance * q, kernel.variance * _wiener(jnp.abs(before)), jnp.stack([one, none]))


def _matrix(entries) -> Array:
    return jnp.stack([jnp.stack(row) for row in entries])


def _wiener(t: Times) -> Array:
    """The covariance of an integrated Wiener process and its slope a time t after both were 0."""
    return _matrix(((t**3 / 3.0, t**2 / 2.0), (t**2 / 2.0, t)))


@form.register
def _(kernel: kernels.Oscillation, before, now, harmonics):
    step = now - before
    z = jnp.minimum(step / jnp.reshape(kernel._checked_lengthscale(1), ()), MAX_STEP)
    own = kernel.variance * _spread(np.eye(2), z)
    angle = 2.0 * jnp.pi * step / kernel.period
    a = jnp.exp(-z) * _matrix(((jnp.cos(angle), jnp.sin(angle)), (-jnp.sin(angle), jnp.cos(angle))))
    return Form(a, -jnp.expm1(-2.0 * z) * own, own, _spread(np.array([1.0, 0.0]), z))


@form.register
def _(kernel: kernels.Periodic, before, now, harmonics):
    """Σ_j q_j cos(2π j r/period), truncated (Solin and Särkkä 2014): nothing is forgotten, Q = 0."""
    order = (np.arange(2 * harmonics + 1) + 1) // 2  # of each state: cosine and sine of one harmonic are neighbours
    step, share = now - before, kernel.variance * series(kernel.lengthscale, harmonics)[order]
    angle = 2.0 * jnp.pi * step / kernel.period * _spread(order.astype(float), step)
    turned = np.diag(np.tile([0.0, 1.0], harmonics), 1)[: len(order), : len(order)]
    one = _spread(np.eye(len(order)), step)
    a = one * jnp.cos(angle) + _spread(turned - turned.T, step) * jnp.sin(angle)
    h = _spread(np.where(order > 0, np.arange(len(order)) % 2, 1.0), step)
    return Form(a, jnp.zeros_like(a), one * share.reshape((-1,) + (1,) * step.ndim), h)


def series(lengthscale: Any, harmonics: int) -> Float[Array, " j"]:
    """q_0 … q_J of exp(−2 sin²(θ/2)/ℓ²) = Σ q_j cos jθ: with κ = ℓ⁻², q_0 = I_0(κ) exp(−κ) and q_j = 2 I_j(κ) exp(−κ).

    Ratios I_j/I_{j−1} come from their continued fraction, downwards, all terms positive. 1 − Σ q_j is the largest error
    of the truncated correlation.
    """
    kappa = jnp.reshape(jnp.asarray(lengthscale), ()) ** -2.0
    ratio, ratios = 0.0, []
    for j in range(harmonics + MORE_HARMONICS, 0, -1):
        ratio = 1.0 / (2.0 * j / kappa + ratio)
        ratios.append(ratio)
    first = i0e(kappa)
    return jnp.concatenate([first[None], 2.0 * first * jnp.cumprod(jnp.stack(ratios[::-1][:harmonics]))])


@form.register
def _(kernel: kernels.White, before, now, harmonics):
    """No state: what no two data share is not the chain's (`Kernel.noise`)."""
    none = jnp.zeros((0, *jnp.shape(now)))
    return Form(none[None][:0], none[None][:0], none[None][:0], none)


@form.register
def _(kernel: kernels.Columns, before, now, harmonics):
    """Times are those of its column."""
    return form(kernel.kernel, before, now, harmonics)


@form.register
def _(kernel: kernels.Sum, before, now, harmonics):
    one, two = form(kernel.left, before, now, harmonics), form(kernel.right, before, now, harmonics)
    a, q, p = (_beside(x, y) for x, y in ((one.a, two.a), (one.q, two.q), (one.p, two.p)))
    return Form(a, q, p, jnp.concatenate([one.h, two.h]))


@form.register
def _(kernel: kernels.Product, before, now, harmonics):
    """With P_A = A P Aᵀ of each: Q = Q₁ ⊗ P_A₂ + P_A₁ ⊗ Q₂ + Q₁ ⊗ Q₂."""
    one, two = form(kernel.left, before, now, harmonics), form(kernel.right, before, now, harmonics)
    passed = [product(product(f.a, f.p), transposed(f.a)) for f in (one, two)]
    q = _kron(one.q, passed[1]) + _kron(passed[0], two.q) + _kron(one.q, two.q)
    h = (one.h[:, None] * two.h[None]).reshape(-1, *one.h.shape[1:])
    return Form(_kron(one.a, two.a), q, _kron(one.p, two.p), h)


@form.register
def _(kernel: kernels.Power, before, now, harmonics):
    if kernel.exponent not in (1, 2, 3, 4):
        raise NotMarkov(f"process=Markov() takes integer powers of kernels from 1 to 4; got {kernel.exponent}")
    whole = kernel.base
    for _ in range(int(kernel.exponent) - 1):
        whole = kernels.Product(whole, kernel.base)
    return form(whole, before, now, harmonics)


def _beside(x: Array, y: Array) -> Array:
    """The block-diagonal matrix of two."""
    none = jnp.zeros((len(x), len(y), *x.shape[2:]))
    above = jnp.concatenate([x, none], axis=1)
    return jnp.concatenate([above, jnp.concatenate([jnp.swapaxes(none, 0, 1), y], axis=1)])


def _kron(x: Array, y: Array) -> Array:
    """x ⊗ y."""
    whole = x[:, None, :, None] * y[None, :, None, :]
    return whole.reshape(len(x) * len(y), len(x) * len(y), *x.shape[2:])
