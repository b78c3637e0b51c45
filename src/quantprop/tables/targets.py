"""What kind of y a column holds: which likelihood it asks for, and y as the estimators take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quantprop import likelihoods
from quantprop.likelihoods import Likelihood
from quantprop.tables.encoding import TRUTH, check_complete, levels_of
from quantprop.tables.reading import Table, TableError

CLASSES = ("probit", "logit", "heaviside")  # of two labels, or more by one model a label
REAL: dict[str, Callable[[], Likelihood]] = {  # y in units of its own deviation; the scale of the noise is learned
    "gaussian": lambda: likelihoods.Gaussian(0.5),
    "student-t": lambda: likelihoods.StudentT(scale=0.5),
    "double-exponential": lambda: likelihoods.DoubleExponential(0.5),
}
OTHER = ("poisson", "negative-binomial", "gamma", "beta")
LIKELIHOODS = (*CLASSES, *REAL, *OTHER)


@dataclass(frozen=True)
class Target:
    """A column that is predicted: its likelihood and why, and its y."""

    name: str
    likelihood: str
    why: str
    y: np.ndarray

    @property
    def classes(self) -> bool:
        """Whether y are labels."""
        return self.likelihood in CLASSES


def target(table: Table, name: str, likelihood: str | None = None) -> Target:
    """The target of a name, with the likelihood given or guessed.

    Words, truth values and numbers that take only two values are labels (probit); whole numbers from 0 on are counts
    (poisson); all else is real (gaussian, its noise learned).
    """
    if likelihood is not None and likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(LIKELIHOODS)}; got {likelihood!r}")
    cells = table.column(name)
    check_complete(table, [name])
    words = levels_of(table, name)
    labels = _labels(cells, words)
    kinds = np.unique(labels)
    if len(kinds) < 2:
        raise TableError(f"column {name!r} of {table.source} always holds {kinds[0]}: there is nothing to predict")
    guess, why = _guess(labels, kinds)
    chosen = likelihood or guess
    if chosen in CLASSES:
        return Target(name, chosen, why, labels)
    if words:
        raise TableError(f"the {chosen} likelihood needs numbers, and column {name!r} of {table.source} holds words "
                         f"({', '.join(map(repr, words[:3]))}): choose one of {', '.join(CLASSES)}")  # fmt: skip
    numbers = labels.astype(np.float64)
    if not np.isfinite(numbers).all():
        at = int(np.argmin(np.isfinite(numbers)))
        raise TableError(f"{table.source}, {table.where(at)}: {cells[at]!r} in column {name!r} is not a finite number")
    return Target(name, chosen, why, numbers)


def _labels(cells: list[str], words: tuple[str, ...]) -> np.ndarray:
    """Labels as written, truth values in lower case, numbers as numbers (whole ones as integers)."""
    if words:
        return np.array([cell.casefold() for cell in cells] if words == TRUTH else cells)
    numbers = np.array([float(cell) for cell in cells])
    whole = np.isfinite(numbers).all() and np.all(numbers == np.round(numbers)) and np.abs(numbers).max() < 2**53
    return numbers.astype(np.int64) if whole else numbers


def _guess(labels: np.ndarray, kinds: np.ndarray) -> tuple[str, str]:
    if labels.dtype.kind == "U" or len(kinds) == 2:
        shown = ", ".join(map(str, kinds[:5])) + (", ..." if len(kinds) > 5 else "")
        return "probit", f"{len(kinds)} different values ({shown})"
    if labels.dtype.kind == "i" and kinds[0] >= 0:
        return "poisson", f"whole numbers from {kinds[0]} to {kinds[-1]}"
    return "gaussian", f"real numbers from {kinds[0]:g} to {kinds[-1]:g}"
