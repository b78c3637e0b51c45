"""How far class probabilities are from the exact ones: the exact posterior of C n latent values by chains.

    python benchmarks/classes_truth.py iris --data FOLDER --steps 4000 --chains 4 --out truths.md

One data set a process: `--out` takes the line of each, so that they can run side by side.

Hyperparameters are those that the method has learned from nine tenths of the rows; the probabilities are those of the
others. Chains are elliptical slices (Murray, Adams and MacKay 2010) in the coordinates of EP's posterior N(m, Σ): what
is sampled is N(m, Σ) times Π p(y | f)/site(f), which is the exact posterior. Two halves of the chains tell how far
their averages can be trusted. Beside the joint models, one-vs-rest at its own hyperparameters, whose truth it is not.
"""

from __future__ import annotations

import argparse
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


@partial(jax.jit, static_argnames=("steps", "chains"))
def chains_of(key, mean, root, d, nu, labels, steps, chains):
    """Draws of f, chains × kept × n × C."""
    n, c = mean.shape

    def log_ratio(moved):
        f = mean + moved.reshape(n, c)
        exact = jax.vmap(lambda row, label: log_class(row, jnp.zeros(c), label))(f, labels)
        return jnp.sum(exact - jax.vmap(log_site)(f, d, nu))

    def one(key):
        def kept(state, key):
            keys = jax.random.split(key, EVERY)
            state = jax.lax.scan(lambda s, k: (step(k, s, log_ratio, root), None), state, keys)[0]
            return state, mean + state.d.reshape(n, c)

        start = jnp.zeros(n * c)
        return jax.lax.scan(kept, ChainState(start, log_ratio(start)), jax.random.split(key, steps // EVERY))[1]

    return jax.lax.map(one, jax.random.split(key, chains))


@jax.jit
def averaged(draws, weights, variance):
    """Class probabilities at new inputs, averaged over draws of f: f* | f is Gaussian, and apart for every class."""

    def of_draw(f):
        new = f.T[:, None] @ weights  # C × 1 × k
        labels = jnp.arange(f.shape[1])
        at = jax.vmap(lambda m, v: jax.vmap(lambda label: log_class(m, v, label))(labels))
        return jnp.exp(at(new[:, 0].T, jnp.broadcast_to(variance[:, None], new[:, 0].T.shape)))

    return jnp.mean(jax.lax.map(of_draw, draws), axis=0)


def truth(solution, new, steps, chains, seed=0):
    """Exact probabilities at the hyperparameters of a solution, and how far two halves of the chains are apart."""
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
    draws = chains_of(jax.random.key(seed), joint.mean, root, d, pull, solution.y, steps, chains)
    draws = draws[:, draws.shape[1] // 10 :]
    halves = [np.asarray(averaged(half.reshape(-1, n, c), weights, variance)) for half in jnp.split(draws, 2)]
    return 0.5 * (halves[0] + halves[1]), 0.5 * np.abs(halves[0] - halves[1]).max()


def study(name: str, folder: Path, steps: int, chains: int, rows: int) -> str:
    """A line of the table."""
    X, y = rows_of(name, folder)
    order = np.random.default_rng(0).permutation(len(y))[: rows or None]
    X, y = X[order], y[order]
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    test = np.arange(len(y)) % 10 == 0
    learned = GaussianProcessClassifier(multi_class="joint", method="ep").fit(X[~test], y[~test])
    model = Model(learned.solution_.model.kernel, likelihoods.MultinomialProbit(int(y.max()) + 1))
    solutions = {method: infer(model, X[~test], y[~test], method) for method in ("ep", "qp")}
    exact, doubt = truth(solutions["ep"], X[test], steps, chains)
    rest = GaussianProcessClassifier(method="ep").fit(X[~test], y[~test]).predict_proba(X[test])
    wrong = {method: np.abs(s.predict_y(X[test]).probabilities - exact).max() for method, s in solutions.items()}
    return (
        f"| {name} | {(~test).sum()} | {y.max() + 1} | {doubt:.4f} | {wrong['ep']:.4f} | {wrong['qp']:.4f} | "
        f"{np.abs(rest - exact).max():.4f} | {model.kernel!r} |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["iris", "wine", "glass"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--rows", type=int, default=0, help="take so many rows at random; 0 for all")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| data | rows | classes | between chains | EP | QP | one-vs-rest | kernel |\n|{'---|' * 8}")
    with jax.enable_x64(True):
        for name in given.names:
            line = study(name, given.data, given.steps, given.chains, given.rows)
            print(line, flush=True)
            if given.out is not None:
                with open(given.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
