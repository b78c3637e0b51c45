"""Covariances of priors written out in full, by formulas that share no code with them."""

from __future__ import annotations

import jax
import numpy as np
from priors.lowrank import LowRankPrior

from quantprop import kernels
from quantprop.kernels.combinations import ClassRows
from quantprop.priors import (
    ClassesInducingPrior,
    ClassesPrior,
    DensePrior,
    InducingPrior,
    MarkovPrior,
    NeighboursPrior,
    Prior,
    Process,
)

N, NEW = 12, 5
KERNEL = kernels.Matern32(2.0, 0.7) + kernels.White(0.05)
POINTS = np.linspace(-2.0, 2.0, 6)[:, None]
ROUGHER = kernels.Matern12(1.5, 0.4) + kernels.White(0.1)
LABELS = np.array([0, 2, 1, 1, 0, 2])


@jax.jit
def of_the_kernel(kernel, x, new):
    return kernel.cross(x, new), kernel.gram(new)


@jax.jit
def gram_of(kernel, x):
    return kernel.gram(x)


@jax.jit
def ties(process: Process, x, new):
    return process.cross(KERNEL, x, new)


@jax.jit
def of_the_points(basis, x):
    return basis.kernel.cross(basis.z, basis.z), basis.kernel.cross(basis.z, x), basis.kernel.diagonal(x)


@jax.jit
def held(prior: InducingPrior):
    return prior.for_sweeps().rows.v[0]


def in_full(prior: Prior) -> np.ndarray:
    """The covariance as a matrix."""
    if isinstance(prior, DensePrior):
        return np.asarray(prior.k)
    if isinstance(prior, InducingPrior):
        basis = prior.basis
        k_uu, k_uf, own = map(np.asarray, of_the_points(basis, prior.x))
        v = np.linalg.solve(np.linalg.cholesky(k_uu + basis.jitter * np.diag(np.diag(k_uu))), k_uf)
        return float(basis.scale) * (v.T @ believed(prior) @ v + np.diag(own - np.sum(v**2, axis=0)))
    if isinstance(prior, MarkovPrior):
        return chain_in_full(prior)
    if isinstance(prior, NeighboursPrior):  # all other rows are neighbours
        return float(prior.bases.scale) * np.asarray(gram_of(prior.bases.kernel, prior.x))
    if isinstance(prior, ClassesPrior):
        return differences_in_full(np.asarray(prior.k), float(prior.own))
    if isinstance(prior, ClassesInducingPrior):
        v = np.asarray(prior.v)[0]
        k = np.swapaxes(v, 1, 2) @ v + np.eye(len(LABELS)) * np.asarray(prior.residual)[:, None]
        return differences_in_full(k, float(prior.own))
    assert isinstance(prior, LowRankPrior)
    v = np.asarray(prior.v)
    return v.T @ v + np.diag(prior.d)


def believed(prior: InducingPrior) -> np.ndarray:
    """The covariance of v before the rows."""
    return np.eye(len(prior.basis.z)) if prior.before is None else np.linalg.inv(prior.before.precision)


def chain_in_full(prior: MarkovPrior) -> np.ndarray:
    """Of values f_i = h_iᵀx_i + noise on x_i = A_i x_{i−1} + q_i: Cov(x_j, x_i) = A_j Cov(x_{j−1}, x_i)."""
    a, q, h = (np.moveaxis(part, -1, 0).reshape(-1, *part.shape[1:-1]) for part in map(np.asarray, prior.chain))
    noise, order = (np.asarray(part).T.ravel() for part in (prior.noise, prior.layout.order))
    n, own, k = len(prior.mean), np.zeros_like(q[0]), np.zeros((len(a), len(a)))
    for i in range(len(a)):
        own = a[i] @ own @ a[i].T + q[i]
        tie = own
        k[i, i] = h[i] @ tie @ h[i] + noise[i]
        for j in range(i + 1, len(a)):
            tie = a[j] @ tie
            k[i, j] = k[j, i] = h[j] @ tie @ h[i]
    rows = order[:n].astype(int)
    found = np.zeros((n, n))
    found[np.ix_(rows, rows)] = k[:n, :n]
    return found


def differences() -> tuple[np.ndarray, np.ndarray]:
    """Of every datum, its label's function minus those of the other classes, and which datum a row belongs to."""
    rows = [np.eye(3)[label] - np.eye(3)[other] for label in LABELS for other in range(3) if other != label]
    return np.array(rows), np.repeat(np.arange(len(LABELS)), 2)


def differences_in_full(k: np.ndarray, own: float) -> np.ndarray:
    """Cov(h, h') = Σ_c w_c w'_c k_c(x, x'), and ω for two rows of one datum."""
    w, datum = differences()
    total = sum(np.outer(w[:, c], w[:, c]) * k[c][np.ix_(datum, datum)] for c in range(3))
    return total + own * (datum[:, None] == datum)


def with_classes(x: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of differences at half of the inputs, combinations at new ones, and their covariance."""
    w, datum = differences()
    ahead = np.random.default_rng(8).normal(size=(NEW, 3))
    rows = np.column_stack([x[datum], w, datum])
    each = [np.asarray(of_the_kernel(k, x[datum], new)[0]) for k in (KERNEL, ROUGHER, KERNEL)]
    cross = sum(np.outer(w[:, c], ahead[:, c]) * each[c] for c in range(3))
    return rows, np.asarray(ClassRows(new, ahead, -np.ones(NEW)).written()), cross
