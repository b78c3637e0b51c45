"""Kernels and likelihoods compared by the leave-one-out log density that the cavities of one fit give."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.comparison.compare import Report
from quantprop.comparison.scores import Estimate
from quantprop.estimators import GaussianProcessClassifier
from quantprop.estimators.insight import surprise, unreliable
from quantprop.tables import Problem, TableModel


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
        """The sum minus that of another candidate, paired row by row."""
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
                    f"{lines}); if the difference is small, compare them one at a time by cross-validation"
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
    """Make all pairs of likelihoods and kernels, each named by what differs; with a parameter that varies, each with
    it and with a constant.

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
        for name, terms in problem.varying.items():
            constant = replace(problem, varying={})
            found.append(Candidate(", ".join([*parts, f"constant {name}"]), constant))
            parts = [*parts, f"{name} = {terms}"]
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
    found = []
    for i, candidate in enumerate(given):
        report("models", i, len(given))
        found.append(_standing(candidate, method))
    report("models", len(given), len(given))
    return Choice(tuple(sorted(found, key=lambda one: -np.nan_to_num(one.total.value, nan=-np.inf))))


def _standing(candidate: Candidate, method: str) -> Standing:
    """One candidate, learned from all rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how each ended is in its status
        model = candidate.problem.fit(method)
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
        raise ValueError(f"candidates must be fitted to the same rows; got {sorted(sizes)}")
