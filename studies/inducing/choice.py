"""Ways to choose inducing points, compared by `studies/inducing/run.py choice`."""

from __future__ import annotations

import numpy as np

from quantprop.priors.inducing.choice import chosen

SUBSAMPLE = 20  # rows for each point among which the greedy choice looks


def at_random(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Different rows."""
    rows = np.unique(x, axis=0)
    return rows[np.random.default_rng(seed).permutation(len(rows))[:count]]


def greedy(x: np.ndarray, count: int, seed: int, lengthscale: float = 1.0) -> np.ndarray:
    """Each next row where the conditional variance is largest: a pivoted Cholesky factor of the kernel's matrix."""
    rows = at_random(x, SUBSAMPLE * count, seed)
    left, factor, picked = np.ones(len(rows)), np.zeros((count, len(rows))), []
    for k in range(count):
        i = int(left.argmax())
        picked.append(i)
        column = np.exp(-0.5 * ((rows - rows[i]) ** 2).sum(1) / lengthscale**2) - factor[:k].T @ factor[:k, i]
        factor[k] = column / np.sqrt(left[i])
        left = np.maximum(left - factor[k] ** 2, 0.0)
        left[picked] = 0.0
    return rows[picked]


CHOICES = {"k-means++": chosen, "greedy": greedy, "at random": at_random}
