"""Sobol indices: the variance of f that each component of an additive kernel explains, with independent columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Normal
from quantprop.inference.components import AdditiveTerm
from quantprop.inference.prediction import draws
from quantprop.kernels import Constant, summands
from quantprop.runtime.precision import float64

MAX_ROWS = 1000  # at which draws of f are matched
MAX_TRIPLES = 500  # a random sample stands for more of them
TRUNCATED_VARIANCE = 1e-6  # fraction of a factor's variance beyond its last eigenfunction: part of the remainder
MIN_EIGENVALUE = 1e-10  # relative to the largest
Solution = Any  # of `solution`, which imports this


class Share(NamedTuple):
    """A Sobol index: its posterior mean and 95 % interval."""

    share: float
    lower: float
    upper: float

    @staticmethod
    def of(draws: Float[np.ndarray, " draws"]) -> Share:
        """The summary of some draws."""
        return Share(float(draws.mean()), *map(float, np.quantile(draws, (0.025, 0.975))))


@dataclass(frozen=True)
class Sobol:
    """Sobol indices of the components of f under the product of the distributions of the columns, largest first.

    Attributes:
        shares: of each main effect and each interaction of two columns, and of all of three columns together.
        totals: of each column, the sum over all components that contain it.
    """

    shares: dict[str, Share]
    totals: dict[str, Share]


class _Factor(NamedTuple):
    """Eigenfunctions of a factor under the distribution of its column, at some rows, and their eigenvalues."""

    at: Float[np.ndarray, "n r"]
    eigenvalues: Float[np.ndarray, " r"]

    @staticmethod
    def of(cross: np.ndarray, own: np.ndarray, weights: np.ndarray) -> _Factor:
        """From k̃ between rows and nodes, and among nodes (Nyström)."""
        root = np.sqrt(weights)
        values, vectors = np.linalg.eigh(root[:, None] * own * root)
        values, vectors = values[::-1], vectors[:, ::-1]
        rank = 1 + int(np.searchsorted(np.cumsum(values), (1.0 - TRUNCATED_VARIANCE) * values.sum()))
        return _Factor((cross * root) @ vectors[:, :rank] / values[:rank], values[:rank])


@float64
def sobol(solution: Solution, count: int = 200, seed: int = 0) -> Sobol:
    """Draws of all components given f, by Matheron's rule in the coordinates of their eigenfunctions.

    Coordinates have independent normal priors. What these do not hold, other terms of the kernel included, is drawn
    with the covariance that is left of that of f at the rows, so that draws of f are exact there.
    """
    term, amplitude = _additive(solution)
    rows = solution.X[:: -(-len(solution.X) // MAX_ROWS)]
    factors = _factors(term, rows)
    sets, weight = _sets(term, rng := np.random.default_rng(seed))
    variances = [amplitude * float(own) for own in term.kernel.amplitudes()]
    k = np.array(solution.model.plain_kernel.gram(rows))
    grams = [(own.at * own.eigenvalues) @ own.at.T for own in factors]
    left, prior, f = k - variances[0], [], np.sqrt(variances[0]) * rng.standard_normal((1, count))
    for some in sets:
        at, eigenvalues = _product([factors[i] for i in some])
        deviation = np.sqrt(variances[len(some)] * eigenvalues)[:, None]
        left -= variances[len(some)] * reduce(np.multiply, [grams[i] for i in some])
        prior.append(deviation * rng.standard_normal((len(eigenvalues), count)))
        f = f + at @ prior[-1]
    f = f + draws(Normal(np.zeros(len(k)), np.diagonal(left), left), count, seed + 1).T
    wanted = draws(solution.predict(rows, full_cov=True), count, seed + 2).T - solution.model.prior_mean(rows)[:, None]
    values, vectors = np.linalg.eigh(k)
    values, vectors = values[keep := values > MIN_EIGENVALUE * values[-1]], vectors[:, keep]
    v = vectors @ ((vectors.T @ (wanted - f)) / values[:, None])
    explained = []
    for some, own, scale in zip(sets, prior, weight, strict=True):
        at, eigenvalues = _product([factors[i] for i in some])
        explained.append(scale * np.sum((own + variances[len(some)] * eigenvalues[:, None] * (at.T @ v)) ** 2, axis=0))
    return _summary(term, sets, np.array(explained))


def _additive(solution: Solution) -> tuple[AdditiveTerm, float]:
    """The additive term of a kernel, and the variance by which it is multiplied."""
    found = [own for term in summands(solution.model.plain_kernel) if (own := AdditiveTerm.of(term)) is not None]
    scales = [np.asarray(other.variance) for term in found for other in term.others if isinstance(other, Constant)]
    if len(found) != 1 or len(scales) != len(found[0].others):
        raise ValueError("Sobol indices need a kernel with one additive term, alone or times a constant: "
                         "kernels.Additive(order=2)")  # fmt: skip
    return found[0], float(np.prod(scales))


def _factors(term: AdditiveTerm, rows: np.ndarray) -> list[_Factor]:
    kernel = term.kernel
    points, weights = map(jnp.asarray, kernel.points())
    x = jnp.asarray(rows if term.columns is None else rows[:, list(term.columns)])
    cross, own = np.asarray(kernel.each(x, points)), np.asarray(kernel.each(points, points))
    return [_Factor.of(*each) for each in zip(cross, own, weights, strict=True)]


def _product(factors: list[_Factor]) -> _Factor:
    """All products of eigenfunctions, one of each factor."""
    at, eigenvalues = factors[0]
    for other in factors[1:]:
        at = (at[:, :, None] * other.at[:, None]).reshape(len(at), -1)
        eigenvalues = np.outer(eigenvalues, other.eigenvalues).ravel()
    return _Factor(at, eigenvalues)


def _sets(term: AdditiveTerm, rng: np.random.Generator) -> tuple[list[tuple[int, ...]], list[float]]:
    """The components, and how many each of them stands for."""
    order, whole = term.kernel.order, range(term.kernel.count)
    sets = [some for q in range(1, min(order, 2) + 1) for some in combinations(whole, q)]
    triples = list(combinations(whole, 3)) if order == 3 else []
    some = sorted(rng.permutation(len(triples))[:MAX_TRIPLES])
    return [*sets, *(triples[i] for i in some)], [1.0] * len(sets) + [len(triples) / max(len(some), 1)] * len(some)


def _summary(term: AdditiveTerm, sets: list[tuple[int, ...]], explained: Float[np.ndarray, "sets draws"]) -> Sobol:
    share = explained / explained.sum(axis=0)
    found = {term.name(some): Share.of(own) for some, own in zip(sets, share, strict=True) if len(some) < 3}
    if (triples := np.array([len(some) == 3 for some in sets])).any():
        found["order 3"] = Share.of(share[triples].sum(axis=0))
    totals = {}
    for i, name in enumerate(term.names):
        totals[name] = Share.of(share[[i in some for some in sets]].sum(axis=0))
    return Sobol(*(dict(sorted(each.items(), key=lambda pair: -pair[1].share)) for each in (found, totals)))
