"""Sobol indices: the variance of f that each of its components explains, with independent columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Normal
from quantprop.core.records import changed
from quantprop.inference.components import Decomposition, Summand, within
from quantprop.inference.prediction import draws
from quantprop.kernels import Kernel
from quantprop.kernels.effects import EffectForm
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program

MAX_ROWS = 1000  # at which draws of f are matched
LOW = 2  # order up to which components are drawn one by one
TRUNCATED_VARIANCE = 1e-6  # fraction of a variable's variance beyond its last eigenfunction: drawn at the rows only
MIN_EIGENVALUE = 1e-10  # relative to the largest
REST = f"order > {LOW}"
Solution = Any  # of `solution`, which imports this


@program
def _evaluated(form: EffectForm, rows: Any) -> Any:
    return form(rows, form.points), form(form.points, form.points)


@program
def _prior(kernel: Kernel, rows: Any) -> Any:
    """The covariance of f at rows without its noise, and the variances of this."""
    noise = kernel.noise(rows)
    return kernel.gram(rows) - jnp.diag(noise), noise


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
        shares: of each main effect and each interaction of two columns, and of all of more columns together. The
            interval of the last is too narrow: it is that of the expected variance given f at the rows.
        totals: of each column, the sum over all components that contain it.
    """

    shares: dict[str, Share]
    totals: dict[str, Share]

    @staticmethod
    def of(decomposition: Decomposition, explained: Explained) -> Sobol:
        """The summary of draws of the variance that each component explains."""
        sets = _sets(decomposition)
        each, rest = explained
        whole = each.sum(axis=0) + rest[0]
        if not whole.any():  # f does not vary
            return Sobol({}, {})
        found = {decomposition.name(some): Share.of(own / whole) for some, own in zip(sets, each, strict=True)}
        if rest[0].any():
            found[REST] = Share.of(rest[0] / whole)
        totals = {
            name: Share.of((each[[i in some for some in sets]].sum(axis=0) + rest[1 + i]) / whole)
            for i, name in enumerate(decomposition.names)
        }
        return Sobol(*(dict(sorted(own.items(), key=lambda pair: -pair[1].share)) for own in (found, totals)))


class Explained(NamedTuple):
    """Draws of the variance that each component up to order 2 explains, and those of a higher order: all together, and
    all that contain each variable.
    """

    each: Float[np.ndarray, "sets draws"]
    rest: Float[np.ndarray, "variables draws"]

    @staticmethod
    def of(several: Sequence[Explained]) -> Explained:
        """All draws of several posteriors; one without components of an order has 0 there."""
        most = max(len(own.each) for own in several)
        each = [np.pad(own.each, ((0, most - len(own.each)), (0, 0))) for own in several]
        return Explained(np.concatenate(each, axis=1), np.concatenate([own.rest for own in several], axis=1))


class _Basis(NamedTuple):
    """Orthonormal functions of one variable: their tie to f at the rows, their eigenvalues, their part in the level's
    effect, and their values at the nodes, times roots of the weights.
    """

    at: Float[np.ndarray, "n r"]
    eigenvalues: Float[np.ndarray, " r"]
    shift: Float[np.ndarray, " r"]
    nodes: Float[np.ndarray, "m r"]

    @staticmethod
    def of(each: np.ndarray, own: np.ndarray, shift: np.ndarray, weights: np.ndarray) -> _Basis:
        """Eigenfunctions of what is independent of the level (Nyström)."""
        root = np.sqrt(weights)
        values, vectors = np.linalg.eigh(root[:, None] * (own - np.outer(shift, shift)) * root)
        values, vectors = values[::-1], vectors[:, ::-1]
        rank = int(np.searchsorted(np.cumsum(values), (1.0 - TRUNCATED_VARIANCE) * values.sum())) + (values[0] > 0)
        nodes, values = vectors[:, :rank], values[:rank]
        return _Basis(((each - shift) * root) @ nodes / values, values, (root * shift) @ nodes, nodes)

    @property
    def tied(self) -> Float[np.ndarray, "n r"]:
        """Covariances of the coefficients with f at the rows, in units of `outside`."""
        return self.at * self.eigenvalues + self.shift


def _pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Products of all columns of two matrices, row by row."""
    return (left[:, :, None] * right[:, None]).reshape(len(left), -1)


class _Function:
    """One of the functions that f is the sum of: draws from its prior, in independent coordinates of its effects. The
    level is among these if effects are tied to it.
    """

    def __init__(self, summand: Summand, rows: Any, rng: np.random.Generator, count: int) -> None:
        others: Any = summand.others
        self.form, scale = summand.form, np.prod([np.asarray(other.variance) for other in others])
        self.order = self.form.order
        at_rows, at_nodes = to_numpy(_evaluated(self.form, within(summand.kernel, jnp.asarray(rows))[1]))
        self.each, self.own, self.weights = at_rows.each, at_nodes.own, np.asarray(self.form.weights)
        self.outside, self.inside, shift = scale * at_rows.outside, scale * at_nodes.inside, at_nodes.shift[0]
        self.amplitudes = self.inside[: LOW + 1] * np.array([shift.any(), 1.0, 1.0])[: self.order + 1]
        self.bases = [_Basis.of(*of) for of in zip(self.each, self.own, shift, self.weights, strict=True)]
        self.drawn: dict[tuple[int, ...], Any] = {(): rng.standard_normal((1, count))}
        for some in _subsets(len(self.bases), self.low):
            eigenvalues = _kron([self.bases[i].eigenvalues for i in some])
            self.drawn[some] = np.sqrt(eigenvalues)[:, None] * rng.standard_normal((len(eigenvalues), count))

    @property
    def low(self) -> int:
        return min(self.order, LOW)

    def gram(self) -> Float[np.ndarray, "n n"]:
        """The prior covariance at the rows of all that is drawn."""
        sums: list[Any] = [1.0, 0.0, 0.0]
        for own in self.bases:
            k = (own.at * own.eigenvalues) @ own.at.T
            sums = [1.0, sums[1] + k, sums[2] + sums[1] * k]
        each = zip(self.outside, self.amplitudes, sums, strict=False)
        return np.sum([np.outer(o, o) / a * e for o, a, e in each if a > 0], axis=0)

    def at_rows(self) -> Float[np.ndarray, "n draws"]:
        """The draws at the rows."""
        found: list[Any] = [0.0] * (self.low + 1)
        for some, own in self.drawn.items():
            found[len(some)] += self._at(some) @ own
        each = zip(self.outside, self.amplitudes, found, strict=False)
        return np.sum([(o / np.sqrt(a))[:, None] * e for o, a, e in each if a > 0], axis=0)

    def _at(self, some: tuple[int, ...]) -> Float[np.ndarray, "n r"]:
        """The functions of some variables at the rows."""
        each = [self.bases[i].at for i in some]
        return _pairs(*each) if len(each) == 2 else each[0] if each else np.ones((self.outside.shape[1], 1))

    def coefficients(self, some: tuple[int, ...], v: np.ndarray) -> Float[np.ndarray, "r draws"]:
        """The coordinates of the effect of one or two variables; v are draws of K⁻¹ (f less its prior draw)."""
        tied = v * self.outside[len(some)][:, None]
        bases, level = [self.bases[i] for i in some], self.drawn[()]
        if len(some) == 1:
            own = self.drawn[some] + bases[0].shift[:, None] * level
            return np.sqrt(self.amplitudes[1]) * own + bases[0].tied.T @ tied
        a, b = bases
        of_a, of_b = (self.drawn[(i,)] for i in some)
        own = of_a[:, None] * b.shift[:, None] + a.shift[:, None, None] * (of_b + b.shift[:, None] * level)
        own = self.drawn[some] + own.reshape(self.drawn[some].shape)
        return np.sqrt(self.amplitudes[2]) * own + _pairs(a.tied, b.tied).T @ tied


def _kron(each: Sequence[np.ndarray]) -> np.ndarray:
    return np.kron(*each) if len(each) == 2 else each[0]


def _subsets(count: int, order: int) -> list[tuple[int, ...]]:
    """The sets of one variable, two, ..., up to an order."""
    return [some for q in range(1, order + 1) for some in combinations(range(count), q)]


def _sets(decomposition: Decomposition) -> list[tuple[int, ...]]:
    return _subsets(len(decomposition.names), min(decomposition.order, LOW))


@float64
def explained(solution: Solution, decomposition: Decomposition, count: int, seed: int) -> Explained:
    """Draws of all components given f, by Matheron's rule in the coordinates of their eigenfunctions.

    What these do not hold, other terms of the kernel included, is drawn with the covariance that is left of that of f
    at the rows, so that draws of f are exact there, without noise. The variance of components of a higher order is the
    one expected given f at the rows.
    """
    rows, rng = solution.X[:: -(-len(solution.X) // MAX_ROWS)], np.random.default_rng(seed)
    functions = [_Function(own, rows, rng, count) for own in decomposition.summands if own.form.order]
    k, noise = map(np.array, _prior(solution.model.plain_kernel, rows))
    left = k - sum(own.gram() for own in functions)
    rest = draws(Normal(np.zeros(len(k)), np.diagonal(left), left), count, seed + 1).T
    f = rest + sum(own.at_rows() for own in functions)
    around = solution.predict(rows, full_cov=True)
    wanted = draws(changed(around, covariance=around.covariance - np.diag(noise)), count, seed + 2).T
    wanted = wanted - solution.model.prior_mean(rows)[:, None]
    values, vectors = np.linalg.eigh(k)
    values, vectors = values[keep := values > MIN_EIGENVALUE * values[-1]], vectors[:, keep]
    inverse = (vectors / values) @ vectors.T
    drawn, sets = inverse @ (wanted - f), _sets(decomposition)
    found = np.zeros((len(sets), count))
    for i, some in enumerate(sets):
        own = [one for one in functions if one.order >= len(some)]
        at = sum(_kron([one.bases[v].nodes for v in some]) @ one.coefficients(some, drawn) for one in own)
        found[i] = np.sum(at**2, axis=0)
    higher = _higher(functions, len(decomposition.names), inverse, inverse @ wanted)
    return Explained(found, higher)


def _higher(
    functions: list[_Function], count: int, inverse: np.ndarray, u: np.ndarray
) -> Float[np.ndarray, "variables draws"]:
    """The expected variance of components of a higher order, given K⁻¹ f."""
    found = np.zeros((1 + count, u.shape[1]))
    high = [own for own in functions if own.order > LOW]
    for one, other in product(high, high):
        weighted = one.each * one.weights[:, None]
        outside, order = np.outer(one.outside[-1], other.outside[-1]), min(one.order, other.order)
        for i, own in enumerate(_products(list(weighted @ other.each.swapaxes(1, 2)), order)):
            found[i] += np.sum(u * ((outside * own) @ u), axis=0) - np.sum(inverse * outside * own)
    for one in high:
        prior = [np.diagonal(own) @ w for own, w in zip(one.own, one.weights, strict=True)]
        found += one.inside[-1] * np.array([*_products(prior, one.order)])[:, None]
    return found


def _products(each: list[Any], order: int) -> Iterator[Any]:
    """Sums of products of three of some arrays, or of three to all of them if the order is larger: the sum of all, then
    of those that contain each.
    """
    one, two, three, whole = 0.0, 0.0, 0.0, 1.0
    for k in each:
        three, two, one, whole = three + two * k, two + one * k, one + k, whole * (1.0 + k)
    yield whole - 1.0 - one - two if order > 3 else three
    for k in each:
        yield k * (whole / (1.0 + k) - 1.0 - (one - k)) if order > 3 else k * (two - k * (one - k))
