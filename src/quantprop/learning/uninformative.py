"""Kernels that are flat or diagonal on the data, from which nothing can be learned."""

from __future__ import annotations

import warnings
from functools import reduce

import numpy as np
from jaxtyping import Float

from quantprop.core.data import bucket, pad
from quantprop.core.parameters import declared, free, named, values
from quantprop.inference.prediction import gram_of
from quantprop.kernels import Constant, Kernel, Sum, summands
from quantprop.runtime.jobs import sampled
from quantprop.runtime.precision import float64

CORRELATION_TOLERANCE = 1e-8  # correlations that differ from 0, or from 1, by less than this carry nothing
BLOCK = 64  # rows whose distances to all others are computed at a time
ROWS = 200  # that stand for all when the kernel is looked at
FEW_ROWS = 16  # that mostly show that it is informative


class KernelWarning(UserWarning):
    """A kernel that cannot learn from the data it was given."""


def varying(kernel: Kernel) -> Kernel:
    """The terms of a kernel with something to learn, constants left aside: what starts are judged by. A fixed wide
    prior of a level or a slope says nothing of how f varies.
    """
    terms = [term for term in summands(kernel) if not isinstance(term, Constant) and free(declared(term))]
    return reduce(Sum, terms) if terms else kernel


def typical_distance(x: Float[np.ndarray, "n d"]) -> float:
    """The median distance between (at most 500) different rows; 1 if all are equal."""
    rows = sampled(x)
    rows = rows[distinct(rows, 500)]
    scale = np.abs(rows).max() if rows.size and np.abs(rows).max() > 0 else 1.0
    distances = np.sqrt(_squared_distances(rows / scale))
    distances = distances[distances > 0]
    return float(np.median(distances) * scale) if len(distances) else 1.0


def _squared_distances(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " pairs"]:
    """Of all pairs of rows, each once, by blocks that stay in a processor's cache. The kernels' function of this name
    would have to be compiled for every number of rows.
    """
    parts, columns = [np.zeros(0)], np.ascontiguousarray(x.T)
    for a in range(0, len(x), BLOCK):
        some, rest = columns[:, a : a + BLOCK], columns[:, a:]
        squares = np.zeros((some.shape[1], rest.shape[1]))
        apart = np.empty_like(squares)
        for one, other in zip(some, rest, strict=True):
            np.subtract(one[:, None], other, out=apart)
            squares += np.square(apart, out=apart)
        parts.append(squares[np.triu_indices(some.shape[1], 1, rest.shape[1])])
    return np.concatenate(parts)


def distinct(x: Float[np.ndarray, "n d"], most: int = ROWS) -> np.ndarray:
    """The indices of about so many of the different rows."""
    rows = np.unique(x, axis=0, return_index=True)[1]
    return rows[:: max(1, len(rows) // most)]


def correlations_of(k: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " pairs"]:
    """Of all pairs of rows that have a variance."""
    some = np.diagonal(k) > 0
    k = k[np.ix_(some, some)]
    sd = np.sqrt(np.diagonal(k))
    return (k / (sd[:, None] * sd))[np.triu_indices(len(k), 1)]


def blindness(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> tuple[str, str] | None:
    """Whether a kernel with a lengthscale is diagonal or flat on the data, in words, and which lengthscale would help:
    nothing can be learned from there.
    """
    if all(label.split(".")[-1] == "variance" for label, _ in named(declared(kernel))):
        return None
    kernel = varying(kernel)
    if _without_sight(correlations_of(covariance_of(kernel, x[:FEW_ROWS]))) is None:
        return None
    correlations = correlations_of(covariance_of(kernel, x))
    return _without_sight(correlations) if len(correlations) else None


def _without_sight(correlations: Float[np.ndarray, " pairs"]) -> tuple[str, str] | None:
    """What all of them have in common, and the remedy; nothing if some are neither 0 nor 1."""
    if np.abs(correlations).max(initial=0.0) < CORRELATION_TOLERANCE:
        return "diagonal (no two rows are correlated)", "longer"
    if correlations.min(initial=1.0) > 1.0 - CORRELATION_TOLERANCE:
        return "flat (all rows are the same to it)", "shorter"
    return None


def warn_of_blindness(
    blind: tuple[str, str] | None, x: Float[np.ndarray, "n d"], name: str, remedy: str, stacklevel: int
) -> None:
    """Warn of a kernel's blindness, if that was found."""
    if blind is not None:
        problem, change = blind
        warnings.warn(
            f"{name}: the kernel starts {problem} on these data, where its gradient vanishes: give it a {change} "
            f"lengthscale (typical distance between rows: {typical_distance(x):.3g}), scale the features, or {remedy}",
            KernelWarning,
            stacklevel=stacklevel,
        )


@float64
def covariance_of(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "k k"]:
    """The covariance that a kernel gives `distinct` rows of x; in a long series, every other one is the neighbour of
    the one before, since those far apart say nothing of each other.
    """
    x = sampled(x)
    rows = x[distinct(x)]
    if x.shape[1] == 1 and len(line := np.unique(x)) > ROWS:
        spread = np.linspace(0, len(line) - 2, ROWS // 2).astype(int)
        rows = line[np.sort(np.concatenate([spread, spread + 1]))][:, None]
    k = gram_of(values(kernel), pad(rows, bucket(len(rows))))
    return np.asarray(k)[: len(rows), : len(rows)]
