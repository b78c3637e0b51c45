"""A minibatch SVGP with a softmax likelihood (Hensman, Matthews and Ghahramani 2015), as people run it: Adam on all.

Each class has a function of its own with one shared kernel, and q(v_c) = N(m_c, L_c L_cᵀ) of its whitened values at the
points; E_q log softmax is averaged over draws.

    python -m studies.classes.softmax_svgp check     # the bound at stored numbers against GPyTorch's
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from quantprop import kernels
from quantprop.priors.inducing.rows import Basis

STORED = Path(__file__).parents[2] / "tests" / "priors" / "softmax_svgp.json"
JITTER = 1e-6
TELLINGS = 8


def basis_of(theta: dict[str, jax.Array], z: jax.Array) -> Basis:
    kernel = kernels.SquaredExponential(jnp.exp(theta["variance"]), jnp.exp(theta["lengthscale"]))
    return Basis(kernel, theta.get("points", z), jnp.ones(()), JITTER)


def lower_of(theta: dict[str, jax.Array]) -> jax.Array:
    """L of every class, its diagonal positive."""
    raw = theta["lower"]
    m = raw.shape[1]
    return jnp.tril(raw, -1) + jnp.exp(jnp.diagonal(raw, axis1=1, axis2=2))[:, :, None] * jnp.eye(m)


def marginals(theta: dict[str, jax.Array], z: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Means and variances of all functions, classes × rows."""
    basis = basis_of(theta, z)
    v, d = basis.explained(basis.whitening(), x)
    return theta["mean"] @ v, d + jnp.sum((jnp.swapaxes(lower_of(theta), 1, 2) @ v) ** 2, axis=1)


def divergence(theta: dict[str, jax.Array]) -> jax.Array:
    """KL(q ‖ N(0, I)), of all classes."""
    lower, mean = lower_of(theta), theta["mean"]
    size = jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)))
    return 0.5 * (jnp.sum(lower**2) + jnp.sum(mean**2) - mean.size) - size


def expected(mean: jax.Array, variance: jax.Array, y: jax.Array, draws: jax.Array) -> jax.Array:
    """E log softmax of each row's class, over draws × classes × rows of standard normal numbers."""
    f = mean + jnp.sqrt(variance) * draws
    own = jnp.take_along_axis(f, y[None, None], axis=1)[:, 0]
    return jnp.mean(own - jax.nn.logsumexp(f, axis=1), axis=0)


def probabilities(mean: jax.Array, variance: jax.Array, draws: jax.Array) -> jax.Array:
    return jnp.mean(jax.nn.softmax(mean + jnp.sqrt(variance) * draws, axis=1), axis=0)


def learned_by_svgp(
    X: np.ndarray, y: np.ndarray, points: np.ndarray, new: np.ndarray, given: argparse.Namespace
) -> Iterator[tuple[float, int, np.ndarray]]:
    """Seconds since the start, steps, and class probabilities of new rows, now and then."""
    with jax.enable_x64(True):
        n, classes, (m, d) = len(y), int(y.max()) + 1, points.shape
        batch, z = min(given.batch, n), jnp.asarray(points)
        theta = {
            "variance": jnp.log(4.0), "lengthscale": jnp.full(d if given.ard else (), 0.5 * np.log(d)),
            "mean": jnp.zeros((classes, m)), "lower": jnp.zeros((classes, m, m)),
        } | ({"points": z} if given.learn else {})  # fmt: skip
        adam = optax.adam(given.rate)

        def loss(theta: Any, key: Any, x: jax.Array, y: jax.Array) -> jax.Array:
            mean, variance = marginals(theta, z, x)
            draws = jax.random.normal(key, (given.draws, classes, len(y)))
            return (divergence(theta) - n / len(y) * jnp.sum(expected(mean, variance, y, draws))) / n

        @jax.jit
        def steps(theta: Any, state: Any, key: Any, X: jax.Array, y: jax.Array) -> Any:
            """Fifty steps."""

            def one(carry: Any, key: Any) -> Any:
                theta, state = carry
                rows, draws = jax.random.split(key)
                at = jax.random.choice(rows, n, (batch,), replace=False)
                moves, state = adam.update(jax.grad(loss)(theta, draws, X[at], y[at]), state)
                return (optax.apply_updates(theta, moves), state), None

            return jax.lax.scan(one, (theta, state), jax.random.split(key, 50))[0]

        @jax.jit
        def predicted(theta: Any, x: jax.Array) -> jax.Array:
            mean, variance = marginals(theta, z, x)
            return probabilities(mean, variance, jax.random.normal(jax.random.key(1), (500, classes, len(x)))).T

        began, key, done, told = time.perf_counter(), jax.random.key(given.seed), 0, 0
        data, labels, state = jnp.asarray(X), jnp.asarray(y), adam.init(theta)
        while (spent := time.perf_counter() - began) < given.seconds:
            key, now = jax.random.split(key)
            theta, state = jax.block_until_ready(steps(theta, state, now, data, labels))
            done += 50
            if spent >= (told + 1) * given.seconds / TELLINGS:
                told += 1
                yield time.perf_counter() - began, done, _in_pieces(predicted, theta, new)
        yield time.perf_counter() - began, done, _in_pieces(predicted, theta, new)


def _in_pieces(predicted: Any, theta: Any, new: np.ndarray, piece: int = 500) -> np.ndarray:
    return np.concatenate([np.asarray(predicted(theta, jnp.asarray(new[a : a + piece])))
                           for a in range(0, len(new), piece)])  # fmt: skip


def check() -> None:
    """Marginals, divergence and expected log-probabilities at stored numbers against GPyTorch's."""
    told = json.loads(STORED.read_text())
    z, x, y = (jnp.asarray(told[name]) for name in ("z", "x", "y"))
    raw = jnp.asarray(told["lower"])
    diagonal = jnp.log(jnp.diagonal(raw, axis1=1, axis2=2))
    theta = {"variance": jnp.log(told["variance"]), "lengthscale": jnp.log(told["lengthscale"]),
             "mean": jnp.asarray(told["mean"]),
             "lower": jnp.tril(raw, -1) + diagonal[:, :, None] * jnp.eye(raw.shape[1])}  # fmt: skip
    mean, variance = marginals(theta, z, x)
    found = jnp.sum(expected(mean, variance, y, jax.random.normal(jax.random.key(0), (20_000, *mean.shape))))
    apart = {"means": float(jnp.abs(mean - jnp.asarray(told["means"])).max()),
             "variances": float(jnp.abs(variance - jnp.asarray(told["variances"])).max()),
             "divergence": float(divergence(theta)) - told["divergence"],
             "expected": float(found) - told["expected"]}  # fmt: skip
    print(json.dumps(apart))
    if not all(abs(value) < (0.05 if name == "expected" else 1e-5) for name, value in apart.items()):
        raise SystemExit("the bound is not that of GPyTorch")


if __name__ == "__main__":
    with jax.enable_x64(True):
        check()
