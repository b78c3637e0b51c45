"""How far class probabilities are from the exact ones: the exact posterior of C n latent values by chains.

    python -m studies.classes.truth draw iris --seed 0 --seconds 400 --data FOLDER --out truths.jsonl
    python -m studies.classes.truth table --out truths.jsonl

`draw` appends one line for every data set and seed; several seeds may run side by side, and `table` puts them together.
Hyperparameters are those that the method has learned from nine tenths of the rows; the probabilities are those of the
others. What is sampled is w = (u, w_1, ..., w_C) ~ N(0, I), with f_c = R w_c and R Rᵀ = K, given Φ(h) of every
h = u + f_y − f_j = H w. In the coordinates z of EP's posterior, w = m + T z, the target is N(z | 0, I) times the ratios
Φ(h)/site(h), which are nearly constant: Hamiltonian trajectories turn z and its momentum about the Gaussian exactly,
and are pushed by the slope of the ratios alone (Beskos, Pinski, Sanz-Serna and Stuart 2011, section 4). Every chain
begins at a draw of N(0, I); the averages of the chains' halves, not their draws, say how far the average of all can be
trusted. Beside the joint models, one-vs-rest at its own hyperparameters, whose truth it is not.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp

from quantprop import GaussianProcessClassifier, Model, infer, likelihoods
from studies.classes.run import rows_of

NODES, REACH = 40, 6.0  # of u
TURN = 0.5 * np.pi  # of a trajectory: on N(0, I) alone its end is independent of its start
TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # pushes of a trajectory; the fewest that are accepted often enough
ACCEPTED = 0.8


def log_class(mean, variance, label):
    """log P(g_label is the largest), g_c ~ N(mean_c, 1 + variance_c) independent: the trapezoidal rule over g_label."""
    sd = jnp.sqrt(1.0 + variance)
    gap = jnp.max(mean) - mean[label]
    t = jnp.linspace(-REACH, REACH + gap / sd[label], NODES)
    z = (mean[label] + sd[label] * t[:, None] - mean) / sd
    each = jnp.where(jnp.arange(len(mean)) == label, 0.0, log_ndtr(z))
    return logsumexp(each.sum(axis=1) - 0.5 * t**2) + jnp.log((t[1] - t[0]) / jnp.sqrt(2 * jnp.pi))


class Target(NamedTuple):
    """N(z | 0, I) Π Φ(h)/site(h), h = centre + through z."""

    centre: Any  # n (C − 1)
    through: Any
    tau: Any
    pull: Any  # ν − τ centre

    def ratio(self, z):
        """Σ log Φ(h) − log site(h)."""
        moved = self.through @ z
        return jnp.sum(log_ndtr(self.centre + moved) - self.pull * moved + 0.5 * self.tau * moved**2)


def trajectory(key, z, target, pushes):
    """The end of a trajectory, or its start; and whether it was the end."""
    for_momentum, for_length, for_end = jax.random.split(key, 3)
    angle = TURN / pushes * jax.random.uniform(for_length, minval=0.8, maxval=1.2)
    start = z, jax.random.normal(for_momentum, z.shape)
    slope = jax.value_and_grad(target.ratio)

    def pushed(_, state):
        z, p, _, push = state
        p = p + 0.5 * angle * push
        z, p = z * jnp.cos(angle) + p * jnp.sin(angle), p * jnp.cos(angle) - z * jnp.sin(angle)
        value, push = slope(z)
        return z, p + 0.5 * angle * push, value, push

    value, push = slope(z)
    end = jax.lax.fori_loop(0, pushes, pushed, (*start, value, push))

    def energy(z, p, value):
        return 0.5 * jnp.sum(z**2) + 0.5 * jnp.sum(p**2) - value

    accepted = jax.random.exponential(for_end) > energy(*end[:3]) - energy(*start, value)  # −log of a uniform number
    return jnp.where(accepted, end[0], z), accepted


@partial(jax.jit, static_argnames=("steps",))
def chains_of(key, z, target, pushes, steps):
    """The chains' ends, their states after every trajectory (steps × chains × ...), and the share that was accepted."""

    def one(z, key):
        z, accepted = jax.vmap(trajectory, (0, 0, None, None))(jax.random.split(key, len(z)), z, target, pushes)
        return z, (z, accepted)

    end, (states, accepted) = jax.lax.scan(one, z, jax.random.split(key, steps))
    return end, states, jnp.mean(accepted)


@jax.jit
def averaged(states, at, across, variance):
    """Class probabilities at new inputs, averaged over the states of every chain: f* | f is apart for every class."""
    centre, spread = at

    def of_state(z):
        w = (centre + spread @ z).reshape(-1, across.shape[1])  # w_c, a row each
        mean = (w @ across.T).T  # new inputs × C
        labels = jnp.arange(mean.shape[1])
        each = jax.vmap(lambda m, v: jax.vmap(lambda label: log_class(m, v, label))(labels))
        return jnp.exp(each(mean, jnp.broadcast_to(variance[:, None], mean.shape)))

    def of_chain(states):
        return jnp.mean(jax.lax.map(of_state, states), axis=0)

    return jax.lax.map(of_chain, jnp.swapaxes(states, 0, 1))


def coordinates(solution, new):
    """The target, (m, T) of the whitened functions, and what f* is given them: its means' weights, its variances."""
    n, c, kernel = len(solution.X), solution.classes, solution.model.plain_kernel
    values, vectors = np.linalg.eigh(np.asarray(kernel.gram(solution.X)))
    kept = values > n * np.finfo(float).eps * values[-1]
    scale = np.sqrt(values[kept])
    root, across = vectors[:, kept] * scale, np.asarray(kernel.cross(new, solution.X)) @ vectors[:, kept] / scale
    variance = np.maximum(np.asarray(kernel.diagonal(new)) - np.sum(across**2, axis=1), 0.0)
    slot = np.tile(np.arange(c - 1), (n, 1))
    other, datum = (slot + (slot >= solution.y[:, None])).ravel(), np.repeat(np.arange(n), c - 1)
    seen = np.eye(c)[solution.y[datum]] - np.eye(c)[other]  # rows × C
    h = np.column_stack([np.eye(n)[datum], (seen[:, :, None] * root[datum][:, None]).reshape(len(datum), -1)])
    nu, tau = np.asarray(solution.sites.nu), np.asarray(solution.sites.tau)
    lower = np.linalg.cholesky(np.eye(h.shape[1]) + h.T @ (tau[:, None] * h))
    m = np.linalg.solve(lower.T, np.linalg.solve(lower, h.T @ nu))
    spread = np.linalg.inv(lower).T
    target = Target(h @ m, h @ spread, tau, nu - tau * (h @ m))
    return jax.tree.map(jnp.asarray, (target, (m[n:], spread[n:]), across, variance))


def truth(solution, new, given):
    """Exact probabilities at a solution's hyperparameters by every chain and half, and what the chains were."""
    target, at, across, variance = coordinates(solution, new)
    key, first = jax.random.split(jax.random.key(given.seed))
    z = jax.random.normal(first, (given.chains, target.through.shape[1]))
    for pushes in TRIED:
        key, now = jax.random.split(key)
        z, _, accepted = chains_of(now, z, target, pushes, given.steps)
        if accepted > ACCEPTED:
            break
    began, blocks = time.perf_counter(), []
    while len(blocks) < 4 or time.perf_counter() - began < given.seconds:
        key, now = jax.random.split(key)
        z, states, accepted = chains_of(now, z, target, pushes, given.steps)
        blocks.append(np.asarray(averaged(states, at, across, variance)))
    half = len(blocks) // 2
    halves = np.concatenate([np.mean(blocks[:half], axis=0), np.mean(blocks[half : 2 * half], axis=0)])
    chains = {"draws": 2 * half * given.steps * given.chains, "pushes": pushes, "accepted": float(accepted)}
    return halves, chains


def draw(name, given):
    """What is known of a data set after some time."""
    X, y = rows_of(name, given.data)
    order = np.random.default_rng(0).permutation(len(y))[: given.rows or None]
    X, y = X[order], y[order]
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    test = np.arange(len(y)) % 10 == 0
    learned = GaussianProcessClassifier(multi_class="joint", method="ep").fit(X[~test], y[~test])
    model = Model(learned.solution_.model.kernel, likelihoods.MultinomialProbit(int(y.max()) + 1))
    solutions = {method: infer(model, X[~test], y[~test], method) for method in ("ep", "qp")}
    halves, chains = truth(solutions["ep"], X[test], given)
    exact = halves.mean(axis=0)
    rest = GaussianProcessClassifier(method="ep").fit(X[~test], y[~test]).predict_proba(X[test])
    said = {method: s.predict_y(X[test]).probabilities for method, s in solutions.items()} | {"one-vs-rest": rest}
    row = {
        "data": name, "rows": int((~test).sum()), "classes": int(y.max()) + 1, "seed": given.seed, **chains,
        "kernel": repr(model.plain_kernel), "evidence": solutions["ep"].log_evidence, "exact": exact.tolist(),
        "error": (halves.std(axis=0, ddof=1) / np.sqrt(len(halves))).tolist(),
        "said": {method: np.asarray(p).tolist() for method, p in said.items()},
    }  # fmt: skip
    with open(given.out, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    wrong = {m: round(float(np.abs(p - exact).max()), 4) for m, p in said.items()}
    print(name, given.seed, chains, f"standard error {np.max(row['error']):.4f}", wrong, flush=True)


def table(given):
    """The largest error of a probability, and the largest standard error of the exact ones."""
    rows = [json.loads(line) for line in given.out.read_text().splitlines()]
    print(f"| data | rows | classes | draws | standard error | EP | QP | one-vs-rest |\n|{'---|' * 8}")
    for name in dict.fromkeys(row["data"] for row in rows):
        some = [row for row in rows if row["data"] == name]
        weight = np.array([row["draws"] for row in some], dtype=float)
        weight = weight / weight.sum()
        exact = np.einsum("s,skc->kc", weight, [row["exact"] for row in some])
        error = np.sqrt(np.einsum("s,skc->kc", weight**2, np.square([row["error"] for row in some]))).max()
        wrong = [np.abs(np.array(some[0]["said"][m]) - exact).max() for m in ("ep", "qp", "one-vs-rest")]
        numbers = " | ".join(f"{w:.4f}" for w in (error, *wrong))
        first = some[0]
        print(f"| {name} | {first['rows']} | {first['classes']} | {sum(r['draws'] for r in some)} | {numbers} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "table"))
    parser.add_argument("names", nargs="*", default=["iris"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the chains of a data set, once compiled")
    parser.add_argument("--steps", type=int, default=100, help="trajectories of a chain in a block")
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--rows", type=int, default=0, help="take so many rows at random; 0 for all")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with jax.enable_x64(True):
        for name in given.names if given.what == "draw" else ():
            draw(name, given)
    if given.what == "table":
        table(given)
