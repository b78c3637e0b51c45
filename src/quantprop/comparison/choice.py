"""Kernels and likelihoods compared by the leave-one-out log density that the cavities of one fit give; sums of terms
grown one at a time while it gains significantly.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.comparison.compare import OFFSET, Report
from quantprop.comparison.insight import surprise
from quantprop.comparison.scores import Estimate
from quantprop.estimators import GaussianProcessClassifier
from quantprop.inference.classes import ClassSolution
from quantprop.inference.solution import Solution
from quantprop.kernels import Terms, columns_of
from quantprop.kernels.terms import quoted
from quantprop.likelihoods import Gaussian
from quantprop.likelihoods.base import Datum
from quantprop.runtime.precision import float64
from quantprop.tables import Problem, Table, TableError, TableModel
from quantprop.tables.encoding import is_dates, levels_of
from quantprop.tables.reading import MISSING

UNRELIABLE = 0.4  # posterior variance of a row's log density (Vehtari, Gelman and Gabry 2017, section 2.2)
NODES = 32
DRAWS_OF_F = 400  # in multi-class models
MIN_GAIN = 2.0  # nats, and standard errors, that a term must gain
TOLERATED_LOSS = 2.0  # nats, or standard errors, by which a simpler term may fall behind the best and be taken


@dataclass(frozen=True)
class Candidate:
    """A model that could be chosen: its name and what is to be learned."""

    name: str
    problem: Problem = field(repr=False)


@dataclass(frozen=True)
class Standing:
    """A candidate as learned: log p(y_i | other rows) of every row, in units of the table's y, and the rows whose
    cavities are unreliable: improper, or approximate with an uncertain log density.
    """

    name: str
    model: TableModel = field(repr=False)
    loo: Float[np.ndarray, " n"] = field(repr=False)
    unreliable: np.ndarray = field(repr=False)

    @property
    def total(self) -> Estimate:
        """The sum over rows, with its standard error."""
        return summed(self.loo, self.model.fits[0].solution.weights)

    def less(self, other: Standing) -> Estimate:
        """Its sum minus that of another candidate, paired row by row."""
        return summed(self.loo - other.loo, self.model.fits[0].solution.weights)


@dataclass(frozen=True)
class Choice:
    """Candidates from the best; differences are from it."""

    standings: tuple[Standing, ...]

    @property
    def best(self) -> Standing:
        """The candidate of the greatest leave-one-out log density."""
        return self.standings[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each candidate with unreliable rows."""
        found = []
        for one in self.standings:
            rows = np.flatnonzero(one.unreliable)
            if len(rows):
                lines = ", ".join(str(one.model.lines[i]) for i in rows[:5]) + ", ..." * (len(rows) > 5)
                found.append(
                    f"{one.name}: leave-one-out densities are unreliable for {len(rows)} of {len(one.loo)} rows (lines "
                    f"{lines}); if the difference is small, compare by cross-validation"
                )
        return tuple(found)


def summed(rows: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"] | None = None) -> Estimate:
    """A sum over rows, each counted by its weight; its standard error is √n times the deviation of one row's part."""
    w = np.ones(len(rows)) if weights is None else weights
    n = float(np.sum(w))
    with np.errstate(invalid="ignore"):
        total = float(np.sum(w * rows))
        spread = np.sum(w * (rows - total / n) ** 2) / (n - 1.0)
        return Estimate(total, float(np.sqrt(n * spread)), round(n) - 1)


def candidates(problem_of: Callable[[str | None, str], Problem], likelihoods: Sequence[str | None],
               kernels: Sequence[str]) -> list[Candidate]:  # fmt: skip
    """Make all pairs of likelihoods and kernels, each named by what differs.

    Args:
        problem_of: Function of likelihood and kernel that makes a problem.
        likelihoods: Names of likelihoods; None is guessed.
        kernels: Names or formulas of kernels.

    Returns:
        Candidates for `choose`.
    """
    found = []
    for likelihood, kernel in itertools.product(likelihoods, kernels):
        problem = problem_of(likelihood, kernel)
        parts = [kernel] * (len(kernels) > 1) + [problem.target.likelihood] * (len(likelihoods) > 1)
        found.append(Candidate(", ".join(parts) or kernel, problem))
    return found


def choose(given: Sequence[Candidate], method: str = "qp", report: Report = lambda name, done, total: None) -> Choice:
    """Fit every candidate to all rows, and order them by leave-one-out log density.

    Densities of discrete and of continuous y are not comparable; mixing them raises an error.

    Args:
        given: Candidates, as returned by `candidates`.
        method: A method or its name: "qp", "ep", "power-ep", "vb", "laplace".
        report: Called with (what is done, number done, total).

    Returns:
        The candidates, best first.
    """
    _check_comparable(given)
    found = learned(given, method, report, "models")
    return Choice(tuple(sorted(found, key=lambda one: -np.nan_to_num(one.total.value, nan=-np.inf))))


def learned(given: Sequence[Candidate], method: str, report: Report, name: str) -> list[Standing]:
    """Every candidate, learned from all rows; progress is reported under a name."""
    found = []
    for i, candidate in enumerate(given):
        report(name, i, len(given))
        found.append(standing(candidate, method))
    report(name, len(given), len(given))
    return found


def standing(candidate: Candidate, method: str = "qp", **settings: Any) -> Standing:
    """One candidate, learned from all rows; `settings` are the estimator's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how each ended is in its status
        model = candidate.problem.fit(method, **settings)
    unit = float(np.log(getattr(model.estimator, "_y_std", 1.0) * model.units.scale))
    return Standing(candidate.name, model, -surprise(model) - unit * _have_density(model), unreliable(model))


def _have_density(model: TableModel) -> Any:
    """True for rows with a density of y, which has a unit; censored rows have probabilities."""
    if isinstance(model.estimator, GaussianProcessClassifier):
        return 1.0
    data = model.fits[0].solution.data
    return 1.0 if data is None or data.y.ndim == 1 else data.y[:, 0] == data.y[:, 1]


def _check_comparable(given: Sequence[Candidate]) -> None:
    continuous = [one.name for one in given if not one.problem.target.discrete]
    if 0 < len(continuous) < len(given):
        raise ValueError(f"{continuous[0]} has a density and others probabilities of y: they cannot be compared")
    sizes = {len(one.problem.raw) for one in given}
    if len(sizes) > 1:
        raise ValueError(f"candidates must be learned from the same rows; got {sorted(sizes)}")


def unreliable(model: TableModel) -> np.ndarray:
    """Rows whose cavity is improper, or for which the posterior variance of log p(y_i | f_i) is above 0.4, in any of
    the models of classes. Cavities of the Gaussian likelihood are exact, whatever that variance.
    """
    found = []
    for solution in (fitted.solution for fitted in model.fits):
        if isinstance(solution, ClassSolution):
            found.append(~(_class_spread(solution) <= UNRELIABLE))
        elif isinstance(solution.model.likelihood, Gaussian):
            found.append(np.isnan(solution.loo))
        else:
            found.append(np.isnan(solution.loo) | ~(_spread(solution) <= UNRELIABLE))
    return np.any(found, axis=0)


@float64
def _class_spread(solution: ClassSolution) -> Float[np.ndarray, " n"]:
    """Var log p(y_i | f_i) of the functions of all classes, over draws of them."""
    latent = solution.marginals
    values, vectors = np.linalg.eigh(latent.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    z = np.random.default_rng(0).standard_normal((DRAWS_OF_F, *np.shape(latent.mean)))
    f = latent.mean + np.einsum("ncd,snd->snc", root, z)
    one = np.ones(len(solution.y))
    each = jax.vmap(solution.likelihood.log_prob, (Datum(0, 0, 0), 0))
    return np.var(np.asarray(jax.jit(jax.vmap(each, (None, 0)))(Datum(solution.y, one, one), f)), axis=0)


@float64
def _spread(solution: Solution) -> Float[np.ndarray, " n"]:
    """Var log p(y_i | f_i) under the marginal posterior of f_i: WAIC's penalty of a row."""
    likelihood, latent = solution.model.plain_likelihood, solution.marginals
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    f = latent.mean[:, None] + np.sqrt(latent.variance)[:, None] * nodes
    each = jax.vmap(lambda datum, fs: jax.vmap(lambda f: likelihood.log_prob(datum, f))(fs))
    logs = np.asarray(each(solution.data, f))
    with np.errstate(invalid="ignore"):
        mean = logs @ weights
        return ((logs - mean[:, None]) ** 2) @ weights


@dataclass(frozen=True)
class Growth:
    """The steps of a search, from no term to the sum that was found."""

    steps: tuple[Standing, ...]

    @property
    def best(self) -> Standing:
        """The sum that was found."""
        return self.steps[-1]


def possible_terms(table: Table) -> tuple[str, ...]:
    """List a linear and a smooth term for every numeric or date column, and a group for every text column, simple ones
    first.

    Other columns, and text columns without repeated values, are skipped.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.

    Returns:
        The terms.
    """
    linear, smooth, groups = [], [], []
    for name in table.names:
        present = table.only([i for i, cell in enumerate(table.column(name)) if cell not in MISSING])
        cells, column = present.column(name), quoted(name)
        if len(set(cells)) < 2:
            continue
        try:
            words = () if is_dates(cells) else levels_of(present, name)
        except TableError:  # too many words for 0-1 columns, but not for a group
            words = tuple(set(cells))
        if not words:
            linear.append(f"linear({column})")
            smooth += [f"se({column})"] * (len(set(cells)) > 5)
        elif len(words) == 2:
            linear.append(f"linear({column})")
        elif len(words) < len(cells):
            groups.append(f"group({column})")
    return (*linear, *groups, *smooth)


def grow(
    problem_of: Callable[[str], Problem],
    terms: Sequence[str],
    method: str = "qp",
    report: Report = lambda name, done, total: None,
    most: int = 10,
) -> Growth:
    """Start from a constant, repeatedly add the best term, and stop when none gains 2 nats and 2 standard errors.

    Of terms that gain about as much as the best, the first is chosen, so simple ones should come first.

    Args:
        problem_of: Function of a kernel formula that makes a problem.
        terms: Terms to try, simple ones first: `possible_terms`.
        method: A method or its name: "qp", "ep", "power-ep", "vb", "laplace".
        report: Called with (what is done, number done, total).
        most: Maximum number of terms.

    Returns:
        The steps, with the problem and score of each.
    """
    left, chosen, steps = list(terms), [], []
    if not left:
        raise ValueError("terms: there is no column that could become a term")
    steps.append(standing(Candidate("constant()", problem_of(left[0])), method, kernel=OFFSET))
    while left and len(chosen) < most:
        texts = [" + ".join([*chosen, term]) for term in left]
        found = learned(
            [Candidate(text, problem_of(text)) for text in texts], method, report, f"term {len(chosen) + 1}"
        )
        at = _taken(left, found, steps[-1])
        if at is None:
            break
        steps.append(found[at])
        chosen.append(left.pop(at))
    return Growth(tuple(steps))


def _taken(terms: Sequence[str], found: Sequence[Standing], before: Standing) -> int | None:
    gains = [one.less(before) for one in found]
    good = [i for i, gain in enumerate(gains) if gain.value > MIN_GAIN * max(1.0, gain.error)]
    if not good:
        return None
    best = max(good, key=lambda i: gains[i].value)
    columns = [columns_of(Terms(term).kernel()) for term in terms]
    for i in good[: good.index(best)]:  # simpler terms of the same column
        loss = found[best].less(found[i])
        if columns[i] == columns[best] and loss.value < TOLERATED_LOSS * max(1.0, loss.error):
            return i
    return best
