"""State-space forms: kernels of one input column as chains of states.

A kernel is a Markov process if a state x(t) of d numbers has x(t) = A x(s) + q, q ~ N(0, Q), for s ≤ t, and
f(t) = h(t)ᵀ x(t). Sums put states beside each other, products take Kronecker products of them (Särkkä and Solin 2019,
Applied Stochastic Differential Equations, chapter 12). States of Matérn processes are f, f′/λ and f″/λ², which makes
all their entries comparable.

Q is never the difference P − A P Aᵀ, which has no digits left where steps are short.
"""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop import kernels
from quantprop.kernels import Kernel
from quantprop.priors.markov.algebra import product, transposed

Times = Float[Array, "..."]
FAR = 800.0  # beyond which exp(−z) and all that it multiplies are 0
NEAR = 2.0  # up to which an incomplete gamma function is a series
TERMS = 24


class Form(NamedTuple):
    """Steps from one time to another: A, Q, and the states' prior covariance before the step; h at the later time."""

    a: Float[Array, "d d ..."]
    q: Float[Array, "d d ..."]
    p: Float[Array, "d d ..."]
    h: Float[Array, "d ..."]


class NotMarkov(ValueError):
    """A kernel or its inputs have no state-space form."""


@singledispatch
def form(kernel: Kernel, before: Times, now: Times) -> Form:
    """The state-space form of a kernel, for steps between times that are not decreasing."""
    raise NotMarkov(
        f"process=Markov() has no state-space form of {type(kernel).__name__}; it has those of Matern12, Matern32, "
        "Matern52, Constant, Linear, White, and sums and products of them: use one of these kernels (Matern52 "
        "is the nearest to SquaredExponential), or process=Dense()"
    )


def applies(kernel: Kernel, columns: int) -> bool:
    """Whether a process with this kernel over so many columns is one of `Markov()`."""
    try:
        check(kernel, columns)
    except NotMarkov:
        return False
    return True


def check(kernel: Kernel, columns: int) -> None:
    """An error where there is no state-space form."""
    if columns != 1:
        raise NotMarkov(
            f"process=Markov() takes one column of X, time; got {columns}: use process=Dense(), or leave the other "
            "columns to the mean (means.Linear)"
        )
    form(kernel, np.zeros(1), np.zeros(1))


# --- Matérn ----------------------------------------------------------------------------------------------------------


@form.register
def _(kernel: kernels.Matern12, before, now):
    return _matern(kernel, now - before, np.ones((1, 1, 1)))


@form.register
def _(kernel: kernels.Matern32, before, now):
    """exp(F z) for F = [[0, 1], [−1, −2]], as coefficients of exp(−z), z exp(−z), …"""
    return _matern(kernel, now - before, np.array([[[1, 0], [0, 1]], [[1, 1], [-1, -1]]], dtype=float))


@form.register
def _(kernel: kernels.Matern52, before, now):
    """exp(F z) for F = [[0, 1, 0], [0, 0, 1], [−1, −3, −3]]."""
    linear = [[1, 1, 0], [0, 1, 1], [-1, -3, -2]]
    square = [[0.5, 1, 0.5], [-0.5, -1, -0.5], [0.5, 1, 0.5]]
    return _matern(kernel, now - before, np.array([np.eye(3), linear, square]))


def _matern(kernel: kernels.Stationary, step: Times, coefficients: Float[np.ndarray, "d d d"]) -> Form:
    """With λ = √(2ν)/lengthscale and z = λ·step: A = Σ_k coefficients_k z^k exp(−z), and Q = q ∫₀^z φ φᵀ du, where φ is
    A's last column and q makes the variance of f that of the kernel.
    """
    d = len(coefficients)
    z = jnp.minimum(jnp.sqrt(2.0 * d - 1.0) * step / jnp.reshape(kernel._checked_lengthscale(1), ()), FAR)
    decay = jnp.exp(-z)
    a = sum(_spread(c, z) * (z**k * decay) for k, c in enumerate(coefficients))
    shape = np.zeros((d, d, 2 * d - 1))  # coefficients of the powers of u in φ φᵀ exp(2u)
    for k, one in enumerate(coefficients[:, :, -1]):
        for m, other in enumerate(coefficients[:, :, -1]):
            shape[:, :, k + m] += np.outer(one, other)
    moments = [incomplete / 2.0 ** (k + 1) for k, incomplete in enumerate(_incomplete_gammas(2.0 * z, 2 * d - 1))]
    whole = np.array([float(np.prod(np.arange(1, k + 1))) / 2.0 ** (k + 1) for k in range(2 * d - 1)])
    scale = kernel.variance / float(shape[0, 0] @ whole)
    q = scale * sum(_spread(shape[:, :, k], z) * moment for k, moment in enumerate(moments))
    p = scale * _spread(shape @ whole, z)
    return Form(a, q, p, _spread(np.eye(d)[0], z))


def _spread(constant: np.ndarray, like: Times) -> Array:
    """A constant at every time."""
    return jnp.asarray(constant).reshape(constant.shape + (1,) * jnp.ndim(like)) * jnp.ones_like(like)


def _incomplete_gammas(x: Times, count: int) -> list[Array]:
    """∫₀^x v^k exp(−v) dv for k < count: the last by a series or its complement, the others downwards, which adds
    positive numbers only: (k) γ(k) = γ(k + 1) + x^k exp(−x).
    """
    k, decay = count - 1, jnp.exp(-x)
    small, series = jnp.minimum(x, NEAR), 1.0
    for j in range(TERMS, 0, -1):
        series = 1.0 + series * small / (k + 1 + j)
    near = small ** (k + 1) * jnp.exp(-small) * series / (k + 1)
    term, rest = jnp.ones_like(x), jnp.ones_like(x)
    for j in range(1, k + 1):
        term = term * x / j
        rest = rest + term
    factorial = float(np.prod(np.arange(1, k + 1)))
    found = [jnp.where(x < NEAR, near, factorial * (1.0 - decay * rest))]
    for j in range(k, 0, -1):
        found.insert(0, (found[0] + x**j * decay) / j)
    return found


# --- others ----------------------------------------------------------------------------------------------------------


@form.register
def _(kernel: kernels.Constant, before, now):
    one = jnp.ones_like(now)[None]
    return Form(one[None], 0.0 * one[None], kernel.variance * one[None], one)


@form.register
def _(kernel: kernels.Linear, before, now):
    """f = x t with a constant x."""
    one = jnp.ones_like(now)[None]
    return Form(one[None], 0.0 * one[None], kernel.variance * one[None], now[None] * one)


@form.register
def _(kernel: kernels.White, before, now):
    """No state: what no two data share is not the chain's (`Kernel.noise`)."""
    none = jnp.zeros((0, *jnp.shape(now)))
    return Form(none[None][:0], none[None][:0], none[None][:0], none)


@form.register
def _(kernel: kernels.Sum, before, now):
    one, two = form(kernel.left, before, now), form(kernel.right, before, now)
    return Form(*(_beside(x, y) for x, y in zip(one[:3], two[:3], strict=True)), jnp.concatenate([one.h, two.h]))


@form.register
def _(kernel: kernels.Product, before, now):
    """With P_A = A P Aᵀ of each: Q = Q₁ ⊗ P_A₂ + P_A₁ ⊗ Q₂ + Q₁ ⊗ Q₂."""
    one, two = form(kernel.left, before, now), form(kernel.right, before, now)
    kept = [product(product(f.a, f.p), transposed(f.a)) for f in (one, two)]
    q = _kron(one.q, kept[1]) + _kron(kept[0], two.q) + _kron(one.q, two.q)
    h = (one.h[:, None] * two.h[None]).reshape(-1, *one.h.shape[1:])
    return Form(_kron(one.a, two.a), q, _kron(one.p, two.p), h)


@form.register
def _(kernel: kernels.Power, before, now):
    if kernel.exponent not in (1, 2, 3, 4):
        raise NotMarkov(f"process=Markov() takes whole powers of kernels from 1 to 4; got {kernel.exponent}")
    whole = kernel.base
    for _ in range(int(kernel.exponent) - 1):
        whole = kernels.Product(whole, kernel.base)
    return form(whole, before, now)


def _beside(x: Array, y: Array) -> Array:
    """The block-diagonal matrix of two."""
    none = jnp.zeros((len(x), len(y), *x.shape[2:]))
    above = jnp.concatenate([x, none], axis=1)
    return jnp.concatenate([above, jnp.concatenate([jnp.swapaxes(none, 0, 1), y], axis=1)])


def _kron(x: Array, y: Array) -> Array:
    """x ⊗ y."""
    whole = x[:, None, :, None] * y[None, :, None, :]
    return whole.reshape(len(x) * len(y), len(x) * len(y), *x.shape[2:])
