"""The posterior of each term of a sum of kernels, alone and jointly, and of effects that are linear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from quantprop import means
from quantprop.core.data import bucket, pad
from quantprop.core.gaussian import Normal
from quantprop.inference import prediction
from quantprop.inference.learned_mean import MEAN
from quantprop.kernels import CentredFactor, Columns, Constant, Factor, Kernel, Linear, Lines, summands, written
from quantprop.kernels.combinations import Difference, Item, halves
from quantprop.kernels.structure import leaves
from quantprop.priors.base import Cost
from quantprop.runtime.arguments import checked
from quantprop.runtime.memory import check_memory
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program

JOINT_MATRICES = 5  # what a joint posterior and its eigenvectors take
Solution = Any  # of `solution`, which imports this

_cross = program(lambda process, kernel, terms, x, new: process.cross_terms(kernel, terms, x, new))
_variances = program(lambda terms, new: jnp.concatenate([term.diagonal(new) for term in terms]))
_covariance = program(lambda terms, new: jax.scipy.linalg.block_diag(*(term.gram(new) for term in terms)))


@dataclass(frozen=True)
class Effects(Mapping[str, Normal]):
    """The posterior of every term of a sum at some inputs, by its formula; "mean" is the prior mean, if there is one.
    The means add up to the mean of f, and the draws of `sample` to draws of f.
    """

    solution: Solution = field(repr=False)
    X: Float[np.ndarray, "k d"] = field(repr=False)
    parts: dict[str, Normal]
    of: Parts = field(repr=False)

    def __getitem__(self, name: str) -> Normal:
        return self.parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the variance of f's posterior mean over these rows that each term explains: its covariance with f
        divided by the variance of f. Fractions add up to 1; a term that opposes the others has a negative one.
        """
        f = np.sum([part.mean for part in self.parts.values()], axis=0)
        about, spread = f - f.mean(), float(np.var(f))
        shares = {name: float(np.mean(part.mean * about)) for name, part in self.parts.items()}
        return {name: share / spread if spread > 0 else 0.0 for name, share in shares.items()}

    def joint(self) -> Normal:
        """The joint posterior of all parts, one after the other, and of a mean that was learned."""
        return joint_of(self.solution, self.X, self.of)

    @checked()
    @float64
    def sample(self, n: int, seed: int = 0) -> dict[str, Float[np.ndarray, "n k"]]:
        """n joint draws of all terms (rows: draws); their sum is a draw of f."""
        drawn, k = prediction.draws(self.joint(), n, seed), len(self.X)
        found = {name: drawn[:, i * k : (i + 1) * k] for i, name in enumerate(self.parts)}
        if MEAN in found and not found[MEAN].size:  # it is known
            found[MEAN] = np.broadcast_to(self.parts[MEAN].mean, (n, k)).copy()
        return found


class Parts(NamedTuple):
    """Parts of f: kernels, of which each has one part or several side by side, and the names of all parts."""

    names: tuple[str, ...]
    kernels: tuple[Kernel, ...]

    @staticmethod
    def of(kernel: Kernel) -> Parts:
        """The terms of a sum."""
        return Parts(tuple(terms_of(kernel)), tuple(summands(kernel)))

    @staticmethod
    def of_items(kernel: Kernel) -> Parts:
        """The same, and of differences between items the terms of an item's utility."""
        if not isinstance(kernel, Difference):
            return Parts.of(kernel)
        names, kernels = Parts.of(kernel.kernel)
        return Parts(names, tuple(map(Item, kernels)))


def terms_of(kernel: Kernel) -> dict[str, Kernel]:
    """The terms of a kernel by name."""
    found: dict[str, Kernel] = {}
    for term in summands(kernel):
        name = _name(term)
        same = sum(other == name or other.startswith(f"{name} (") for other in found)
        found[f"{name} ({same + 1})" if same else name] = term
    return found


def _name(term: Kernel) -> str:
    try:
        return written(term, digits=None)
    except TypeError:  # a kernel of the user's own
        return type(term).__name__


@float64
def effects_at(solution: Solution, x: Float[np.ndarray, "k d"], of: Parts | None = None) -> Effects:
    """The posterior of every part at inputs, including the uncertainty of a learned mean; by default of every term."""
    of = Parts.of(solution.model.plain_kernel) if of is None else of
    learned, given = solution._learned_mean, solution.model.prior_mean(x)

    def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # a column for each term
        latent, own, moves = _posterior(solution, of, x, _variances)
        mean, variance, prior = (
            np.reshape(each, (len(of.names), -1))[:, : len(x)] for each in (latent.mean, latent.variance, own)
        )
        return mean.T, (prediction.above_rounding(variance, prior, len(solution.X)) + np.sum(moves**2, axis=-1)).T

    mean, variance = prediction.in_pieces(moments, x, max(1, prediction.MAX_INPUTS // len(of.names)))
    parts = {name: Normal(mean[:, i], variance[:, i]) for i, name in enumerate(of.names)}
    if given.any() or learned.names:
        parts[MEAN] = Normal(given, np.sum(learned.moves(x) ** 2, axis=1))
    return Effects(solution, x, parts, of)


def _posterior(solution: Solution, of: Parts, x: np.ndarray, own_of: Any) -> Any:
    """The posterior of all parts at padded inputs, their prior (co)variances, and the change of each part with each
    standardised parameter of a learned mean (parts × k × p).
    """
    solution, of, x = solution.in_full(of, x)
    model, learned, k = solution.model, solution._learned_mean, len(x)
    new, train = (pad(rows, bucket(len(rows))) for rows in (x, solution.X))
    process = model.plain_process.facing(model.plain_kernel, solution.X, x).split(model.plain_kernel, of.kernels)
    cross, own = _cross(process, model.plain_kernel, of.kernels, train, new), own_of(of.kernels, new)
    zero = np.zeros(len(of.names) * len(new))
    latent, *greater = (prediction.latent_at(by, zero, cross, own) for by in (solution._predictor, *learned.predictors))
    moved = np.array([other.mean - latent.mean for other in greater]).reshape(len(greater), len(of.names), len(new))
    return *to_numpy((latent, own)), np.moveaxis(moved[:, :, :k], 0, -1) @ learned.root


@float64
def joint_of(solution: Solution, x: Float[np.ndarray, "k d"], of: Parts | None = None) -> Normal:
    """The joint posterior of all parts (terms by default) at inputs, part by part, and of a mean that was learned."""
    of = Parts.of(solution.model.plain_kernel) if of is None else of
    terms, k, size = len(of.names), len(x), bucket(len(x))
    need, parts = 8 * JOINT_MATRICES * (terms * size) ** 2, f"{JOINT_MATRICES} matrices of {terms * size} rows"
    check_memory(Cost(need, 0, 0.0, f"the joint posterior of {terms} terms at {k} rows", parts))
    parts, learned = effects_at(solution, x, of).parts, solution._learned_mean
    latent, _, moves = _posterior(solution, of, x, _covariance)
    rows = np.concatenate([np.arange(i * size, i * size + k) for i in range(terms)])
    moves = moves.reshape(len(rows), len(learned.names))
    if learned.names:
        moves = np.concatenate([moves, learned.moves(x)])
    covariance = moves @ moves.T
    covariance[: len(rows), : len(rows)] += latent.covariance[np.ix_(rows, rows)]
    mean = np.concatenate([part.mean for part in parts.values()])[: len(covariance)]
    return Normal(mean, np.diagonal(covariance).copy(), covariance)


# --- linear effects --------------------------------------------------------------------------------------------------


class FixedEffect(NamedTuple):
    """A coefficient: its estimate, standard error and 95 % interval, at the learned hyperparameters."""

    estimate: float
    error: float
    lower: float
    upper: float


def _effect(estimate: float, variance: float) -> FixedEffect:
    error = float(np.sqrt(variance))
    half = float(ndtri(0.975)) * error
    return FixedEffect(float(estimate), error, float(estimate) - half, float(estimate) + half)


@float64
def fixed_effects(solution: Solution) -> dict[str, FixedEffect]:
    """The coefficients of linear terms, the differences of a factor's levels from its reference level or, under sum
    coding, from their mean, by their codes, and the mean where it was learned or is a term, by name; of differences
    between items those of their utility.
    """
    kernel = solution.model.plain_kernel
    found, kernels = {}, terms_of(kernel.kernel if isinstance(kernel, Difference) else kernel)
    linear = {
        name: term for name, term in kernels.items() if isinstance(term, Columns) and isinstance(term.kernel, Linear)
    }
    columns = [column for term in linear.values() for column in term.columns]
    for name, term in linear.items():
        found |= _slopes(solution, name, term)
    for column in {column for column in columns if columns.count(column) > 1}:
        found |= _whole_slope(solution, linear, column)
    for name, term in kernels.items():
        found |= _differences(solution, name, term) if factors_of(term) else {}
    learned = solution._learned_mean
    variances = np.sum(learned.root**2, axis=1)
    found |= {name: _effect(value, v) for name, value, v in zip(learned.names, learned.values, variances, strict=True)}
    if (
        not learned.names
        and not isinstance(kernel, Difference)
        and any(isinstance(term, Constant) for term in kernels.values())
    ):
        found[MEAN] = _level(solution)
    return found


def _level(solution: Solution) -> FixedEffect:
    """The mean where linear terms are 0: what is known of it, and constant terms."""
    at = solution.X[:1]
    constant: list[Kernel] = [term for term in summands(solution.model.plain_kernel) if isinstance(term, Constant)]
    level = effects_at(solution, at, Parts(("level",), (reduce(add, constant),)))["level"]
    mean = solution.model.plain_mean
    known = mean.intercept if isinstance(mean, means.Linear) else solution.model.prior_mean(at)[0]
    return _effect(known + level.mean[0], level.variance[0])


def mean_of(solution: Solution, slopes: str | None) -> Any:
    """The posterior mean of the constant term: a number, or with the linear term of this name a `means.Linear`."""
    level = _level(solution).estimate
    if slopes is None:
        return level
    term: Any = terms_of(solution.model.plain_kernel)[slopes]
    each = np.array([effect.estimate for effect in _slopes(solution, slopes, term).values()])
    return means.Linear(each, level - float(each @ term.kernel.centre), tuple(map(int, term.columns)))


def _slopes(solution: Solution, name: str, term: Columns) -> dict[str, FixedEffect]:
    """The posterior of a linear term one unit from its centre: its coefficients."""
    columns, centre = list(map(int, term.columns)), getattr(term.kernel, "centre", None)
    units = np.zeros((len(columns), solution.X.shape[1]))
    units[:, columns] = np.eye(len(columns)) + (0.0 if centre is None else centre)
    at = effects_at(solution, units, Parts.of_items(solution.model.plain_kernel))[name]
    return {f"linear({called})": _effect(at.mean[i], at.variance[i]) for i, called in enumerate(_called(term))}


def factors_of(term: Kernel, called: bool = False) -> dict[Any, float | None]:
    """The columns of a term's factors with their reference levels, None under sum coding, if it has no parts besides
    factors and slopes.
    """
    parts = [(leaf, seen or ()) for leaf, seen in leaves(term, called=called)]
    coded = [(leaf, c) for leaf, seen in parts for c in seen if isinstance(leaf, (Factor, CentredFactor))]
    found = {c: float(leaf.reference) if isinstance(leaf, Factor) else None for leaf, c in coded}
    return found if all(isinstance(leaf, (Factor, CentredFactor, Linear)) for leaf, _ in parts) else {}


def codes_of(solution: Solution, term: Kernel) -> Float[np.ndarray, "k factors"]:
    """The combinations of levels of a term's factors in the rows, without their reference levels."""
    factors = factors_of(term)
    is_compared = isinstance(solution.model.plain_kernel, Difference)
    x = np.concatenate(halves(solution.X)) if is_compared else solution.X
    codes = np.unique(x[:, list(map(int, factors))], axis=0)
    references = np.array([np.nan if reference is None else reference for reference in factors.values()])
    return codes[(codes != references).all(axis=1)]


def _differences(solution: Solution, name: str, term: Kernel) -> dict[str, FixedEffect]:
    codes = codes_of(solution, term)
    x = at_levels(term, tuple(map(int, factors_of(term))), codes, solution.X.shape[1])
    at = effects_at(solution, x, Parts.of_items(solution.model.plain_kernel))[name]
    kind = "code " if factors_of(term) != factors_of(term, called=True) else ""  # a frame's levels have codes in X
    return {f"{name}[{kind}{', '.join(f'{c:g}' for c in code)}]": _effect(at.mean[i], at.variance[i])
            for i, code in enumerate(codes)}  # fmt: skip


def at_levels(term: Kernel, places: tuple[int, ...], levels: Any, features: int) -> Float[np.ndarray, "levels d"]:
    """Inputs with each of the levels in these columns, one unit from the centre of a term's linear factors, and at the
    centre of those that have an intercept.
    """
    x = np.zeros((len(levels), features))
    for leaf, seen in leaves(term):
        if isinstance(leaf, (Linear, Lines)) and seen:
            centre = 0.0 if leaf.centre is None else leaf.centre
            x[:, list(map(int, seen))] = float(isinstance(leaf, Linear)) + centre
    x[:, list(places)] = levels
    return x


def _whole_slope(solution: Solution, linear: dict[str, Any], column: Any) -> dict[str, FixedEffect]:
    """The coefficient of a column in several linear terms: how their sum changes over one unit."""
    ends = np.zeros((2, solution.X.shape[1]))
    ends[1, int(column)] = 1.0
    of = Parts.of_items(solution.model.plain_kernel)
    joint, names = joint_of(solution, ends, of), of.names
    change = np.zeros(len(joint.mean))
    for name in linear:
        change[2 * names.index(name) : 2 * names.index(name) + 2] = -1.0, 1.0
    effect = _effect(change @ joint.mean, change @ joint.covariance @ change)
    own = {_called(term)[term.columns.index(column)] for term in linear.values() if column in term.columns}
    return {f"linear({called})": effect for called in own}


def _called(term: Columns) -> tuple:
    """The names of a term's columns, or their numbers."""
    return term.names or term.columns
