"""Effects of the levels of a column on f, and contrasts of levels on the scale of y."""

from __future__ import annotations

from collections.abc import Sequence
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
from quantprop.inference.varying import VaryingSolution
from quantprop.kernels import Categories, Kernel, Linear, Lines, columns_of, summands
from quantprop.kernels.structure import bare, leaves
from quantprop.likelihoods import Gaussian, Varying
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


def averages(solution: Solution, group: Grouping, x: np.ndarray, weights: np.ndarray | None) -> Normal:
    """The joint posterior of f averaged over rows, with all of them at each level."""
    at, share = blocks(group, x, weights)
    f, average = _compared(solution, group, at), np.kron(np.eye(len(group.levels)), share)
    return _normal(average @ f.mean, average @ f.covariance @ average.T)


def _compared(solution: Solution, group: Grouping, at: np.ndarray) -> Normal:
    """The joint posterior of f with random effects within levels of the column at 0, as in a population of groups:
    group(block, variety) says how one plot differs from its variety. Without other terms of the column they count.
    """
    kernel = solution.model.plain_kernel
    kept = [term for term in summands(kernel) if not _is_within(term, group)]
    moved = any(bare(term) or set(columns_of(term)) & set(group.places) for term in kept)
    if not moved or len(kept) == len(summands(kernel)):
        return solution.predict(at, full_cov=True)
    joint, k = joint_of(solution, at, Parts(("kept",), (reduce(add, kept),))), len(at)
    if len(joint.mean) == k:  # the mean is known
        return _normal(joint.mean + solution.model.prior_mean(at), joint.covariance)
    whole = np.hstack([np.eye(k), np.eye(k)])
    return _normal(whole @ joint.mean, whole @ joint.covariance @ whole.T)


def _is_within(term: Kernel, group: Grouping) -> bool:
    """True if a term depends on the column, and has random effects of another column."""
    others = [
        leaf for leaf, seen in leaves(term) if isinstance(leaf, Categories) and set(seen or ()) - set(group.places)
    ]
    return bool(others) and bool(set(columns_of(term)) & set(group.places))


@float64
def contrasts(
    posterior: Posterior,
    group: Grouping,
    x: np.ndarray,
    weights: np.ndarray | None,
    against: str | None = None,
    units: Units = Units(),
    labels: Sequence[str] = (),
    seed: int = 0,
) -> Listing:
    """The expected y averaged over rows x with all of them at each level, and its difference from and ratio to the
    level `against`. For Gaussian noise differences are exact; otherwise estimates and 95 % intervals are quantiles of
    joint draws, and an error is the width of its interval divided by that of a standard normal distribution.

    `labels` are those of classes. Ordered ones count as the numbers that they are, or as their places from 1.
    """
    named = list(group.levels)
    against = named[0] if against is None else against
    check_name("against", against, named)
    likelihood = posterior.model.plain_likelihood
    of_y = likelihood.base if isinstance(likelihood, Varying) else likelihood
    called, grades = _grades(labels if likelihood.observes == "ordered" else ())
    if isinstance(posterior, Solution) and isinstance(of_y, Gaussian) and not units.log:
        f = averages(posterior.of_f, group, x, weights)
        y = _normal(units.centre + units.scale * f.mean, units.scale**2 * f.covariance)
        drawn = draws(y, MEAN_DRAWS, seed)
    else:
        y, drawn = None, _draws_of_y(posterior, group, x, weights, units, grades, seed)
    base = named.index(against)
    rows = [_contrast(y, drawn, k, base) for k in range(len(named)) if k != base]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    others = [name for name in named if name != against]
    if _is_binary(likelihood):
        called = f"probability of {labels[1] if labels else 'the second class'}"
    what = "median y" if units.log else called
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


def _is_binary(likelihood: Any) -> bool:
    return likelihood.observes == "classes"


def _grades(labels: Sequence[str]) -> tuple[str, list[float]]:
    """Words for the expectation of y, and ordered labels as the numbers that they are, or as their places."""
    try:
        return "expected y", [float(label) for label in labels]
    except ValueError:
        return f"expected place of y in {' < '.join(labels)}, from 1,", [1.0 + i for i in range(len(labels))]


def _draws_of_y(
    posterior: Posterior, group: Grouping, x: np.ndarray, weights: np.ndarray | None, units: Units,
    grades: Sequence[float], seed: int,
) -> Float[np.ndarray, "draws levels"]:  # fmt: skip
    """Joint draws of the expected y at every level, averaged over rows; of a target's logarithm, of the median."""
    at, share = blocks(group, x, weights)

    def sampled(rng: np.random.Generator, one: Solution, n: int) -> np.ndarray:
        return draws(_compared(one, group, at), n, int(rng.integers(2**31)))

    def of_component(rng: np.random.Generator, one: Solution, n: int) -> np.ndarray:
        f, likelihood = sampled(rng, one.of_f, n), one.model.plain_likelihood
        if isinstance(one, VaryingSolution):
            f = np.stack([f, sampled(rng, one.parameter, n)], axis=-1)
        if grades:  # Σ P(y ≥ j) (grade j − grade before)
            mean = np.full_like(f, grades[0])
            for step, cutpoint in zip(np.diff(grades), likelihood.cutpoints, strict=True):
                mean += step * ndtr(f - cutpoint)
        else:
            mean = to_numpy(_mean_of_y(likelihood, f))
            mean = units.outward(0.5 * (1.0 + mean) if _is_binary(likelihood) else mean)
        return mean.reshape(n, len(group.levels), len(share)) @ share

    if isinstance(posterior, Mixture):
        return posterior._drawn(MEAN_DRAWS, seed, of_component)
    return of_component(np.random.default_rng(seed), posterior, MEAN_DRAWS)
