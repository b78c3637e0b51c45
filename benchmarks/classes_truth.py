"""How far class probabilities are from the exact ones: the exact posterior of C n latent values by chains.

    python benchmarks/classes_truth.py draw iris --seed 0 --seconds 400 --data FOLDER --out truths.jsonl
    python benchmarks/classes_truth.py table --out truths.jsonl

`draw` appends one line for every data set and seed; several seeds may run side by side, and `table` puts them together.
Hyperparameters are those that the method has learned from nine tenths of the rows; the probabilities are those of the
others. Chains are elliptical slices (Murray, Adams and MacKay 2010) in the coordinates of EP's posterior N(m, Σ): what
is sampled is N(m, Σ) times Π p(y | f)/site(f), which is the exact posterior. The seeds' averages tell how far the
average of all can be trusted. Beside the joint models, one-vs-rest at its own hyperparameters, whose truth it is not.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from classes import rows_of
from jax.scipy.special import log_ndtr, logsumexp

from quantprop import GaussianProcessClassifier, Model, infer, likelihoods
from quantprop.reference.slices import ChainState, step

NODES, REACH = 40, 6.0  # of u
EVERY = 20  # steps between draws that are kept


def log_class(mean, variance, label):
    """log P(g_label is the largest), g_c ~ N(mean_c, 1 + variance_c) independent: the trapezoidal rule over g_label."""
    sd = jnp.sqrt(1.0 + variance)
    gap = jnp.max(mean) - mean[label]
    t = jnp.linspace(-REACH, REACH + gap / sd[label], NODES)
    z = (mean[label] + sd[label] * t[:, None] - mean) / sd
    each = jnp.where(jnp.arange(len(mean)) == label, 0.0, log_ndtr(z))
    return logsumexp(each.sum(axis=1) - 0.5 * t**2) + jnp.log((t[1] - t[0]) / jnp.sqrt(2 * jnp.pi))


def log_site(f, d, nu):
    """A datum's Gaussian factors with u integrated out, as a function of f."""
    pulled = jnp.sum(d * f) + jnp.sum(nu)
    return -0.5 * jnp.sum(d * f**2) - jnp.sum(nu * f) + 0.5 * pulled**2 / jnp.sum(d)


@partial(jax.jit, static_argnames=("steps",))
def chains_of(key, start, mean, root, d, nu, labels, steps):
    """The chains' last moves from the mean, and draws of f, chains × kept × n × C."""
    n, c = mean.shape

    def log_ratio(moved):
        f = mean + moved.reshape(n, c)
        exact = jax.vmap(lambda row, label: log_class(row, jnp.zeros(c), label))(f, labels)
        return jnp.sum(exact - jax.vmap(log_site)(f, d, nu))

    def one(given):
        def kept(state, key):
            keys = jax.random.split(key, EVERY)
            state = jax.lax.scan(lambda s, k: (step(k, s, log_ratio, root), None), state, keys)[0]
            return state, mean + state.d.reshape(n, c)

        key, start = given
        state = ChainState(start, log_ratio(start))
        end, draws = jax.lax.scan(kept, state, jax.random.split(key, steps // EVERY))
        return end.d, draws

    return jax.lax.map(one, (jax.random.split(key, len(start)), start))


@jax.jit
def averaged(draws, weights, variance):
    """Class probabilities at new inputs, averaged over draws of f: f* | f is Gaussian, and apart for every class."""

    def of_draw(f):
        new = f.T[:, None] @ weights  # C × 1 × k
        labels = jnp.arange(f.shape[1])
        at = jax.vmap(lambda m, v: jax.vmap(lambda label: log_class(m, v, label))(labels))
        return jnp.exp(at(new[:, 0].T, jnp.broadcast_to(variance[:, None], new[:, 0].T.shape)))

    return jnp.mean(jax.lax.map(of_draw, draws), axis=0)


def truth(solution, new, given):
    """Exact probabilities at the hyperparameters of a solution, and how many blocks of steps they are averaged over."""
    n, c = len(solution.X), solution.classes
    joint = solution.predict(solution.X, full_cov=True)
    values, vectors = np.linalg.eigh(joint.covariance.reshape(n * c, n * c))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    tau, nu = (np.asarray(part).reshape(n, c - 1) for part in (solution.sites.tau, solution.sites.nu))
    slot = np.arange(c - 1) + (np.arange(c - 1) >= solution.y[:, None])
    d, pull = np.ones((n, c)), np.zeros((n, c))
    d[np.arange(n)[:, None], slot], pull[np.arange(n)[:, None], slot] = tau, nu
    kernel = solution.model.plain_kernel
    k = np.asarray(kernel.gram(solution.X))
    cross = np.asarray(kernel.cross(solution.X, new))
    k = k + 1e-9 * np.trace(k) / n * np.eye(n)
    weights = np.linalg.solve(k, cross)
    variance = np.maximum(np.asarray(kernel.diagonal(new)) - np.sum(cross * weights, axis=0), 0.0)
    began, key, total, blocks = time.perf_counter(), jax.random.key(given.seed), 0.0, -1
    at = jnp.zeros((given.chains, n * c))
    while blocks < 1 or time.perf_counter() - began < given.seconds:
        key, now = jax.random.split(key)
        at, draws = chains_of(now, at, joint.mean, root, d, pull, solution.y, given.steps)
        if blocks >= 0:  # the first block is where chains begin
            total = total + np.asarray(averaged(draws.reshape(-1, n, c), weights, variance))
        blocks += 1
    return total / blocks, blocks


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
    exact, blocks = truth(solutions["ep"], X[test], given)
    rest = GaussianProcessClassifier(method="ep").fit(X[~test], y[~test]).predict_proba(X[test])
    said = {method: s.predict_y(X[test]).probabilities for method, s in solutions.items()} | {"one-vs-rest": rest}
    row = {
        "data": name, "rows": int((~test).sum()), "classes": int(y.max()) + 1, "seed": given.seed, "blocks": blocks,
        "steps": blocks * given.steps * given.chains, "kernel": repr(model.plain_kernel), "exact": exact.tolist(),
        "said": {method: np.asarray(p).tolist() for method, p in said.items()},
    }  # fmt: skip
    with open(given.out, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(name, given.seed, blocks, {m: round(float(np.abs(p - exact).max()), 4) for m, p in said.items()}, flush=True)


def table(given):
    """The largest error of a probability, and the largest standard error of the exact ones."""
    rows = [json.loads(line) for line in given.out.read_text().splitlines()]
    print(f"| data | rows | classes | steps | standard error | EP | QP | one-vs-rest |\n|{'---|' * 8}")
    for name in dict.fromkeys(row["data"] for row in rows):
        some = [row for row in rows if row["data"] == name]
        each, weight = np.array([row["exact"] for row in some]), np.array([row["blocks"] for row in some], dtype=float)
        exact = np.average(each, axis=0, weights=weight)
        error = np.sqrt(np.average((each - exact) ** 2, axis=0, weights=weight) / max(len(some) - 1, 1)).max()
        wrong = [np.abs(np.array(some[0]["said"][m]) - exact).max() for m in ("ep", "qp", "one-vs-rest")]
        numbers = " | ".join(f"{w:.4f}" for w in (error, *wrong))
        first = some[0]
        print(f"| {name} | {first['rows']} | {first['classes']} | {sum(r['steps'] for r in some)} | {numbers} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "table"))
    parser.add_argument("names", nargs="*", default=["iris"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the chains of a data set, once compiled")
    parser.add_argument("--steps", type=int, default=1000, help="of a chain in a block")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--rows", type=int, default=0, help="take so many rows at random; 0 for all")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with jax.enable_x64(True):
        for name in given.names if given.what == "draw" else ():
            draw(name, given)
    if given.what == "table":
        table(given)
