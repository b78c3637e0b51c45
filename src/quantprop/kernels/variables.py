"""The variables of a table of numbers, and the distribution of each."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

MAX_COLUMN_NODES = 32  # values that represent a column's distribution
CONSTANT, LEVELS, CURVE = "constant", "levels", "curve"  # kinds of variables


def variables(x: Float[np.ndarray, "n d"]) -> tuple[tuple[int, ...], ...]:
    """The columns of each variable: columns of two values next to each other, of which exactly one is high in every
    row, are the levels of one variable; every other column is a variable.
    """
    low, top = x.min(axis=0), x.max(axis=0)
    high = np.where(x == top, x > low, np.where(x == low, 0.0, np.nan))
    found, start = [], 0
    while start < x.shape[1]:
        whole = (np.cumsum(high[:, start:], axis=1) == 1.0).all(axis=0)
        more = int(np.argmax(whole)) if low[start] < top[start] else 0
        found.append(tuple(range(start, start + more + 1)))
        start += more + 1
    return tuple(found)


def distribution(x: Float[np.ndarray, "n c"], counts: Float[np.ndarray, " n"]) -> tuple[str, np.ndarray, np.ndarray]:
    """The kind of a variable, and the distribution of its column: nodes, and weights that sum to 1. More than 32 values
    become at most 32 means of equal mass. Of levels the nodes are the middles between high and low of all columns, and
    the weights those of no column and of each.
    """
    share = counts / counts.sum()
    nodes, place = np.unique(x[:, 0], return_inverse=True)
    if x.shape[1] > 1 or len(nodes) < 3:
        middle = 0.5 * (x.min(axis=0) + x.max(axis=0))
        high = x > middle
        if (high.sum(axis=1) > 1).any():
            raise ValueError("Additive: the columns of one factor are levels that exclude each other, and row "
                             f"{int(np.argmax(high.sum(axis=1) > 1))} of X has two")  # fmt: skip
        weights = np.concatenate([[~high.any(axis=1) @ share], share @ high])
        return LEVELS if high.any() else CONSTANT, middle, weights
    mass = np.bincount(place, share)
    if len(nodes) > MAX_COLUMN_NODES:
        group = np.floor(MAX_COLUMN_NODES * (np.cumsum(mass) - 0.5 * mass)).astype(int)
        _, group = np.unique(np.clip(group, 0, MAX_COLUMN_NODES - 1), return_inverse=True)
        whole = np.bincount(group, mass)
        nodes, mass = np.bincount(group, mass * nodes) / whole, whole
    return CURVE, nodes, mass
