"""Minibatch SVGP (Hensman, Matthews and Ghahramani 2015) as people run it: natural gradients for q(u), else Adam.

    python -m studies.inducing.svgp check                    # its optimum at fixed numbers against GPyTorch's (stored)
    python -m studies.inducing.svgp run sets.npz --sets magic banana flights --seconds 60

`run` uses the divisions and points of `studies/inducing/run.py scores`, and prints the mean negative log density of the
held-out rows against the seconds since the start, compilation included. Probit only. Every line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import log_ndtr

from quantprop import Inducing, kernels
from quantprop.priors.inducing.rows import Basis
from studies.inducing.data import read
from studies.inducing.run import divided, tell

STORED = Path(__file__).parents[2] / "tests" / "priors" / "svgp.json"
NODES, WEIGHTS = (jnp.asarray(part) for part in np.polynomial.hermite_e.hermegauss(20))
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Posterior(NamedTuple):
    """q(v) of the whitened values: N(P⁻¹ h, P⁻¹)."""

    precision: jax.Array
    linear: jax.Array


class State(NamedTuple):
    theta: dict[str, jax.Array]  # logarithms of variance and lengthscales; the points where they are learned
    q: Posterior
    adam: Any


def basis_of(theta: dict[str, jax.Array], z: jax.Array, jitter: float) -> Basis:
    kernel = kernels.SquaredExponential(jnp.exp(theta["variance"]), jnp.exp(theta["lengthscale"]))
    return Basis(kernel, theta.get("points", z), jnp.ones(()), jitter)


def marginals(q: Posterior, basis: Basis, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """V, and mean and variance of f under q."""
    v, d = basis.explained(basis.whitening(), x)
    lower = jnp.linalg.cholesky(q.precision)
    mean = v.T @ cho_solve((lower, True), q.linear)
    return v, mean, d + jnp.sum(solve_triangular(lower, v, lower=True) ** 2, axis=0)


def expected(mean: jax.Array, variance: jax.Array, y: jax.Array) -> jax.Array:
    """E log Φ(y f)."""
    f = mean[:, None] + jnp.sqrt(variance)[:, None] * NODES
    return log_ndtr(y[:, None] * f) @ WEIGHTS


def bound(q: Posterior, basis: Basis, x: jax.Array, y: jax.Array, share: float) -> jax.Array:
    """The bound, its sum over rows estimated from a share of them."""
    _, mean, variance = marginals(q, basis, x)
    lower = jnp.linalg.cholesky(q.precision)
    centre, m = cho_solve((lower, True), q.linear), len(q.linear)
    trace = jnp.sum(solve_triangular(lower, jnp.eye(m), lower=True) ** 2)
    kl = 0.5 * (trace + centre @ centre - m) + jnp.sum(jnp.log(jnp.diagonal(lower)))
    return jnp.sum(expected(mean, variance, y)) / share - kl


def natural_step(q: Posterior, basis: Basis, x: jax.Array, y: jax.Array, share: float, rate: float) -> Posterior:
    """A natural-gradient step: P towards I + Σ s V Vᵀ with s = −E[∂² log p], and h likewise."""
    v, mean, variance = marginals(q, basis, x)
    by_mean = jax.grad(lambda mean: jnp.sum(expected(mean, variance, y)))(mean)
    s = -2.0 * jax.grad(lambda variance: jnp.sum(expected(mean, variance, y)))(variance)
    precision = jnp.eye(len(v)) + (v * s) @ v.T / share
    linear = v @ (by_mean + s * mean) / share
    return Posterior(*((1.0 - rate) * old + rate * new for old, new in zip(q, (precision, linear), strict=True)))


def learner(z: jax.Array, rows: int, batch: int, given: argparse.Namespace) -> tuple[State, Any, Any]:
    """The start, and a step on one minibatch."""
    adam = optax.adam(given.rate)
    theta = {"variance": jnp.zeros(()), "lengthscale": jnp.zeros(z.shape[1])} | ({"points": z} if given.learn else {})
    start = State(theta, Posterior(jnp.eye(len(z)), jnp.zeros(len(z))), adam.init(theta))
    share = batch / rows

    @jax.jit
    def step(state: State, x: jax.Array, y: jax.Array) -> State:
        q = natural_step(state.q, basis_of(state.theta, z, given.jitter), x, y, share, given.natural)
        slope = jax.grad(lambda theta: -bound(q, basis_of(theta, z, given.jitter), x, y, share) / rows)(state.theta)
        moves, opt = adam.update(slope, state.adam)
        return State(optax.apply_updates(state.theta, moves), q, opt)

    @jax.jit
    def density(state: State, x: jax.Array, y: jax.Array) -> jax.Array:
        _, mean, variance = marginals(state.q, basis_of(state.theta, z, given.jitter), x)
        return log_ndtr(y * mean / jnp.sqrt(1.0 + variance))

    return start, step, density


def run(given: argparse.Namespace) -> None:
    tell(device=jax.devices()[0].device_kind, jax=jax.__version__, batch=given.batch, rate=given.rate)
    for name in given.sets:
        train, test = divided(read(given.file, name), given.seed)
        points = Inducing(min(given.points, len(train.x) // 4)).settled(None, train.x).points  # type: ignore[arg-type]
        rows, batch = len(train.x), min(given.batch, len(train.x))
        began, draw = time.perf_counter(), np.random.default_rng(given.seed)
        state, step, density = learner(jnp.asarray(points), rows, batch, given)
        x, y, new, label = (jnp.asarray(part) for part in (train.x, train.y, test.x, test.y))
        steps, tellings = 0, 0

        def say(**more: Any) -> None:
            score = -float(density(state, new, label).mean())  # noqa: B023
            tell(set=name, rows=rows, points=len(points), seconds=round(time.perf_counter() - began, 2),  # noqa: B023
                 steps=steps, epochs=round(steps * batch / rows, 2), NTLL=round(score, 5), **more)  # noqa: B023  # fmt: skip

        while (spent := time.perf_counter() - began) < given.seconds:
            if spent >= tellings * given.seconds / 12:
                say()
                tellings += 1
            for at in np.split(draw.permutation(rows)[: rows // batch * batch], rows // batch)[:50]:
                state, steps = step(state, x[at], y[at]), steps + 1
            jax.block_until_ready(state.q.linear)
        say(end=True, lengthscale=np.exp(state.theta["lengthscale"]).round(3).tolist())


def check(given: argparse.Namespace) -> None:
    """Natural gradients on all rows, at the stored numbers, against GPyTorch's optimum."""
    told = json.loads(STORED.read_text())
    x, y, z, new = (jnp.asarray(told[name]) for name in ("x", "y", "z", "new"))
    basis = Basis(kernels.Matern32(told["variance"], told["lengthscale"]), z, jnp.ones(()), told["jitter"])
    q = Posterior(jnp.eye(len(z)), jnp.zeros(len(z)))
    step = jax.jit(lambda q: natural_step(q, basis, x, y, 1.0, 0.5))
    for _ in range(200):
        q = step(q)
    _, mean, variance = marginals(q, basis, new)
    apart = {"bound": float(bound(q, basis, x, y, 1.0)) - told["bound"],
             "mean": float(jnp.abs(mean - jnp.asarray(told["mean"])).max()),
             "variance": float(jnp.abs(variance - jnp.diagonal(jnp.asarray(told["covariance"]))).max())}  # fmt: skip
    tell(check="GPyTorch's optimum", **apart)
    if not all(abs(value) < 1e-4 for value in apart.values()):
        raise SystemExit("the baseline does not reach the stored optimum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "run"))
    parser.add_argument("file", nargs="?", type=Path, default=Path("sets.npz"))
    parser.add_argument("--sets", nargs="+", default=["magic", "banana", "flights", "letter", "visits"])
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=0.01, help="of Adam")
    parser.add_argument("--natural", type=float, default=0.1, help="of the natural gradient")
    parser.add_argument("--learn", action="store_true", help="the points too")
    parser.add_argument("--jitter", type=float, default=1e-6)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with jax.enable_x64(True):
        {"check": check, "run": run}[given.what](given)


if __name__ == "__main__":
    main()
