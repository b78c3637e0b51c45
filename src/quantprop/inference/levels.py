"""Effects of the levels of a column on f, and contrasts of levels on the scale of y."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from quantprop.core.gaussian import Normal
from quantprop.core.sites import Datum
from quantprop.core.units import Units
from quantprop.inference.mixture import Mixture
from quantprop.inference.prediction import draws
from quantprop.inference.solution import Solution
from quantprop.inference.terms import Parts, at_levels, joint_of, terms_of
from quantprop.kernels import Categories, Kernel, Linear, Lines, columns_of, summands
from quantprop.kernels.structure import leaves
from quantprop.likelihoods import Gaussian
from quantprop.runtime.listing import Listing
from quantprop.runtime.names import check_name
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program

MAX_JOINT_INPUTS = 2_000  # inputs of a joint posterior whose averages are wanted
MEAN_DRAWS = 4_000
ENDS = (0.025, 0.975)
Z95 = float(ndtri(ENDS[1]))
ALONE = "average"  # the name of effects that are no term's
Posterior = Any  # a Solution, or a Mixture of several

_mean_of_y = program(
    lambda likelihood, f: jax.vmap(jax.vmap(lambda one: likelihood.mean(Datum(0.0, 1.0, 1.0), one)))(f)
)


class Grouping(NamedTuple):
    """A column whose levels are compared: its name, the columns of X that code it, and their values at each level."""

    name: str
    places: tuple[int, ...]
    levels: dict[str, Float[np.ndarray, " k"]]


# --- effects on f ----------------------------------------------------------------------------------------------------


@float64
def levels(posterior: Posterior, group: Grouping, unit: float = 1.0) -> Listing:
    """The effect of every level on `unit` times f: estimate, standard error, 95 % interval, and expected rank, 1 for
    the largest.

    The effects are those of the kernel's terms in the column, alone or times a linear term, whose slope it changes; of
    correlated lines first the intercept, at the mean of the columns, then each slope.
    Without such a term an effect is f with all rows at the level, averaged over rows, minus its mean over levels.
    """
    parts = posterior.components if isinstance(posterior, Mixture) else (posterior,)
    weights = posterior.weights if isinstance(posterior, Mixture) else np.ones(1)
    each = [_effects(part.of_f, group) for part in parts]
    found: dict[str, list] = {name: [] for name in ("term", "level", "estimate", "error", "lower", "upper", "rank")}
    for name in each[0]:
        means = np.stack([effects[name].mean for effects in each])
        within = np.stack([np.diagonal(effects[name].covariance) for effects in each])
        mean = weights @ means
        error = np.sqrt(weights @ (within + (means - mean) ** 2))
        rank = weights @ np.stack([expected_rank(effects[name]) for effects in each])
        columns = (unit * mean, unit * error, unit * (mean - Z95 * error), unit * (mean + Z95 * error), rank)
        listed = ([name] * len(mean), list(group.levels), *(column.tolist() for column in columns))
        found = {key: [*found[key], *column] for key, column in zip(found, listed, strict=True)}
    return Listing(f"effects of {group.name} on f (95 % interval; expected rank, 1 for the largest)", found)


def expected_rank(effects: Normal) -> Float[np.ndarray, " levels"]:
    """1 plus the expected number of levels with a larger effect."""
    mean, own = effects.mean, np.diagonal(effects.covariance)
    spread = np.sqrt(np.maximum(own[:, None] + own - 2.0 * effects.covariance, np.finfo(float).tiny))
    return 0.5 + ndtr((mean - mean[:, None]) / spread).sum(axis=1)  # each level counts itself as ½


def _effects(solution: Solution, group: Grouping) -> dict[str, Normal]:
    """The joint posterior of all levels' effects, by the term that they come from."""
    terms = {name: term for name, term in terms_of(solution.model.plain_kernel).items() if is_effect(term, group)}
    if not terms:
        mean = averages(solution, group, solution.X, solution.weights)
        centring = np.eye(len(group.levels)) - 1.0 / len(group.levels)
        return {ALONE: _normal(centring @ mean.mean, centring @ mean.covariance @ centring)}
    found = {}
    for name, term in terms.items():
        x = at_levels(term, group.places, list(group.levels.values()), solution.X.shape[1])
        joint, k = joint_of(solution, x, Parts((name,), (term,))), len(x)
        found[name] = _normal(joint.mean[:k], joint.covariance[:k, :k])
        for called, column in _slopes_of(term).items():
            step = np.concatenate([-np.eye(k), np.eye(k)], axis=1)
            ends = np.concatenate([x, x + np.eye(x.shape[1])[column]])
            joint = joint_of(solution, ends, Parts((name,), (term,)))
            both = joint.covariance[: 2 * k, : 2 * k]
            found[f"{name}: {called}"] = _normal(step @ joint.mean[: 2 * k], step @ both @ step.T)
    return found


def _slopes_of(term: Kernel) -> dict[str, int]:
    """The columns, by name, whose slopes a term has beside an intercept."""
    named, placed = ([pair for pair in leaves(term, called=called)] for called in (True, False))
    both = [(names, seen) for (leaf, names), (_, seen) in zip(named, placed, strict=True) if isinstance(leaf, Lines)]
    return {str(name): int(place) for names, seen in both for name, place in zip(names or (), seen or (), strict=True)}


def is_effect(term: Kernel, group: Grouping) -> bool:
    """True if a term depends on the column, and on no others except through linear factors."""
    others = [leaf for leaf, seen in leaves(term) if seen is None or set(seen) - set(group.places)]
    return set(group.places) <= set(columns_of(term)) and all(isinstance(leaf, (Linear, Lines)) for leaf in others)


def _normal(mean: np.ndarray, covariance: np.ndarray) -> Normal:
    return Normal(mean, np.diagonal(covariance).copy(), covariance)


# --- on the scale of y -----------------------------------------------------------------------------------------------


def blocks(group: Grouping, x: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows x once with every level, level by level, and the weights that average over the rows of a level: of many rows
    a random sample.
    """
    share = np.ones(len(x)) if weights is None else weights
    most = max(1, MAX_JOINT_INPUTS // len(group.levels))
    if len(x) > most:
        some = np.sort(np.random.default_rng(0).choice(len(x), most, replace=False))
        x, share = x[some], share[some]
    found = np.tile(x, (len(group.levels), 1))
    found[:, list(group.places)] = np.repeat(list(group.levels.values()), len(x), axis=0)
    return found, share / share.sum()


def _is_nested(term: Kernel, group: Grouping) -> bool:
    """True if a term has a random effect of each combination of the column's levels with those of other columns."""
    seen = {column for _, columns in leaves(term) for column in columns or (None,)}
    return all(isinstance(leaf, Categories) for leaf, _ in leaves(term)) and seen > set(group.places)


def _latent(solution: Solution, group: Grouping, at: np.ndarray) -> Normal:
    """The joint posterior of f at inputs, without random effects nested in the column, which new rows have not."""
    terms = summands(solution.model.plain_kernel)
    kept = [term for term in terms if not _is_nested(term, group)]
    if len(kept) in (0, len(terms)):
        return solution.predict(at, full_cov=True)
    joint, k = joint_of(solution, at, Parts(("others",), (reduce(add, kept),))), len(at)
    both = np.tile(np.eye(k), len(joint.mean) // k)  # with a mean that was learned
    known = 0.0 if solution._learned_mean.names else solution.model.prior_mean(at)
    return _normal(both @ joint.mean + known, both @ joint.covariance @ both.T)


def averages(posterior: Solution, group: Grouping, x: np.ndarray, weights: np.ndarray | None) -> Normal:
    """The joint posterior of f averaged over rows, with all of them at each level."""
    at, share = blocks(group, x, weights)
    f, average = _latent(posterior, group, at), np.kron(np.eye(len(group.levels)), share)
    return _normal(average @ f.mean, average @ f.covariance @ average.T)


@float64
def contrasts(
    posterior: Posterior,
    group: Grouping,
    x: np.ndarray,
    weights: np.ndarray | None,
    against: str | None = None,
    units: Units = Units(),
    grades: Float[np.ndarray, " classes"] | None = None,
    seed: int = 0,
) -> Listing:
    """The expected y averaged over rows x with all of them at each level, and its difference from and ratio to the
    level `against`, without random effects nested in the column; `grades` are the values of ordered classes. For
    Gaussian noise differences are exact; otherwise estimates and 95 % intervals are quantiles of joint draws, and an
    error is the width of its interval divided by that of a standard normal distribution.
    """
    named = list(group.levels)
    against = named[0] if against is None else against
    check_name("against", against, named)
    likelihood = posterior.model.plain_likelihood
    if likelihood.latents > 1:
        raise ValueError("contrasts is not supported for a likelihood with a varying parameter: use levels, the "
                         "effects on f, or predictions at each level")  # fmt: skip
    exact = isinstance(posterior, Solution) and isinstance(likelihood, Gaussian) and not units.log
    if exact:
        f = averages(posterior, group, x, weights)
        y = _normal(units.centre + units.scale * f.mean, units.scale**2 * f.covariance)
        drawn = draws(y, MEAN_DRAWS, seed)
    else:
        y, drawn = None, _draws_of_y(posterior, group, x, weights, units, grades, seed)
    base = named.index(against)
    rows = [_contrast(y, drawn, k, base) for k in range(len(named)) if k != base]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    others = [name for name in named if name != against]
    what = "median y" if units.log else "probability of the second class" if _is_binary(likelihood) else "expected y"
    title = f"{what} at levels of {group.name} against {against}, averaged over rows (95 % intervals)"
    return Listing(title, {"level": others, "against": [against] * len(others), **columns})


def _contrast(y: Normal | None, drawn: np.ndarray, k: int, base: int) -> dict[str, float]:
    """One level against another, exactly if y is Gaussian; the ratio is NaN unless the other's y is positive in all
    draws.
    """
    low, middle, high = np.quantile(drawn[:, k] - drawn[:, base], (ENDS[0], 0.5, ENDS[1]))
    mean, error = np.median(drawn[:, k]), (high - low) / (2.0 * Z95)
    if y is not None:
        mean, middle, own = y.mean[k], y.mean[k] - y.mean[base], y.covariance
        error = np.sqrt(own[k, k] + own[base, base] - 2.0 * own[k, base])
        low, high = middle - Z95 * error, middle + Z95 * error
    over = drawn[:, base]
    ratios = drawn[:, k] / over if (over > 0).all() else np.full(len(over), np.nan)
    ratio = np.quantile(ratios, (0.5, *ENDS)).tolist()
    names = ("mean", "difference", "error", "lower", "upper", "ratio", "ratio_lower", "ratio_upper")
    return dict(zip(names, (*map(float, (mean, middle, error, low, high)), *ratio), strict=True))


def _mean_grade(likelihood: Any, f: np.ndarray, grades: np.ndarray) -> np.ndarray:
    """E[y | f] of ordered classes with values: Σ_j P(y ≥ j) (grade_j − grade_{j−1})."""
    above = ndtr(f[..., None] - np.asarray(likelihood.cutpoints))
    return grades[0] + above @ np.diff(grades)


def _is_binary(likelihood: Any) -> bool:
    return likelihood.observes == "classes"


def _draws_of_y(
    posterior: Posterior,
    group: Grouping,
    x: np.ndarray,
    weights: np.ndarray | None,
    units: Units,
    grades: np.ndarray | None,
    seed: int,
) -> Float[np.ndarray, "draws levels"]:
    """Joint draws of the expected y at every level, averaged over rows; of a target's logarithm, of the median."""
    at, share = blocks(group, x, weights)

    def of_component(rng: np.random.Generator, one: Solution, n: int) -> np.ndarray:
        f = draws(_latent(one, group, at), n, seed=int(rng.integers(2**31)))
        likelihood = one.model.plain_likelihood
        mean = to_numpy(_mean_of_y(likelihood, f)) if grades is None else _mean_grade(likelihood, f, grades)
        mean = units.outward(0.5 * (1.0 + mean) if _is_binary(likelihood) else mean)
        return mean.reshape(n, len(group.levels), len(share)) @ share

    if isinstance(posterior, Mixture):
        return posterior._drawn(MEAN_DRAWS, seed, of_component)
    return of_component(np.random.default_rng(seed), posterior, MEAN_DRAWS)
