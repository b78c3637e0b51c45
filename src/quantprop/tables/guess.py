"""Guesses whether a column of observations holds classes, grades, counts or measurements, with reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_CODES = 10  # different values of a column of codes
MIN_REPEATS = 3  # rows per value of a column of codes, on average
MAX_MEDIAN = 30  # Poisson noise of larger counts is below 20 %, and such integers are mostly measurements
ERRORS = 2.0  # standard errors of a significant difference
MIN_MISSING = 2.0  # rows expected above the largest value that reveal a ceiling

CODES = {
    "probit": "they are labels of classes",
    "ordinal": "they are grades, whose order counts",
    "poisson": "they are counts",
    "gaussian": "they are measurements",
}


@dataclass(frozen=True)
class Guess:
    """A likelihood, what the column looks like, and others with what the column would be then."""

    likelihood: str
    why: str
    others: tuple[tuple[str, str], ...] = ()


def guess(labels: np.ndarray) -> Guess:
    """The likelihood that observations ask for: text, whole numbers (as integers) or real ones."""
    kinds, rows = np.unique(labels, return_counts=True)
    if labels.dtype.kind == "U" or len(kinds) == 2:
        others = (("ordinal", "they are grades; --order names them from the lowest"),) if len(kinds) > 2 else ()
        return Guess("probit", f"{len(kinds)} different values ({shown(kinds)})", others)
    if labels.dtype.kind != "i":
        return Guess("gaussian", f"real numbers from {kinds[0]:g} to {kinds[-1]:g}", _real(kinds))
    return _whole(kinds, rows)


def shown(kinds: np.ndarray) -> str:
    """The first values, for a message."""
    return ", ".join(map(str, kinds[:5])) + (", ..." if len(kinds) > 5 else "")


def _whole(kinds: np.ndarray, rows: np.ndarray) -> Guess:
    """Whole numbers. Three values that recur are treated as classes whatever their shares: that is a model of three
    counts as well, and Poisson is none of three classes.
    """
    why = f"integers from {kinds[0]} to {kinds[-1]}"
    few = len(kinds) <= MAX_CODES and rows.sum() >= MIN_REPEATS * len(kinds)
    against = against_counts(kinds, rows)
    if not against and not (few and len(kinds) == 3):
        others = (
            ("negative-binomial", "they are counts that vary more"),
            *_others("poisson", *([] if few else ["probit", "ordinal"])),
        )
        return Guess("poisson", f"{why}, as counts are", others)
    if not few:
        more = (("poisson", CODES["poisson"]), ("student-t", "some lie far out")) if kinds[0] >= 0 else _real(kinds)
        return Guess("gaussian", f"{why}, {against}", more)
    why = f"{len(kinds)} different integers ({shown(kinds)})" + (f", {against}" if against else "")
    graded = len(kinds) > 3 and kinds[0] != 0 and kinds[-1] - kinds[0] == len(kinds) - 1
    chosen = "ordinal" if graded else "probit"
    return Guess(chosen, why, _others(chosen, *(["poisson"] if kinds[0] < 0 else [])))


def _others(*but: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, when) for name, when in CODES.items() if name not in but)


def _real(kinds: np.ndarray) -> tuple[tuple[str, str], ...]:
    outlying = (("student-t", "some lie far out"),)
    if kinds[0] > 0 and kinds[-1] < 1:
        return (*outlying, ("beta", "they are proportions"))
    return (*outlying, ("gamma", "their variance grows with their size")) if kinds[0] > 0 else outlying


def against_counts(kinds: np.ndarray, rows: np.ndarray) -> str:
    """The evidence against counts with rates that may differ in any way, that is a mixture of Poisson distributions;
    empty if there is none.

    Its variance is at least its mean. And (k + 1) p(k + 1)/p(k), which is E[rate | k] (Robbins 1956), never falls with
    k: from the rows with the two largest values follows how many there should be beyond.
    """
    n, top = int(rows.sum()), int(kinds[-1])
    if kinds[0] < 0:
        return "some of them below 0"
    mean = float(rows @ kinds / n)
    variance = float(rows @ (kinds - mean) ** 2 / n)
    if variance < mean * (1.0 - ERRORS * np.sqrt(2.0 / n)):
        return f"whose variance, {variance:.3g}, is below their mean, {mean:.3g}, unlike for counts"
    before = rows[-2] if kinds[-2] == top - 1 else 0
    beyond = rows[-1] ** 2 / (before + 1.0) * top / (top + 1.0)
    error = np.sqrt(4.0 / rows[-1] + 1.0 / (before + 1.0))  # of the logarithm
    if beyond * np.exp(-ERRORS * error) > MIN_MISSING:
        return f"none above {top}, where counts would have about {beyond:.0f} rows with {top + 1}"
    if np.median(np.repeat(kinds, rows)) > MAX_MEDIAN:
        return "half of them far from 0, as rounded measurements are"
    return ""
