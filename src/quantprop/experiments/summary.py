"""The numbers of the table, from rows: means over rounds, and how the fits went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from quantprop.experiments import published
from quantprop.experiments.against_ep import AgainstEP, Fraction, compare, log_likelihoods, pairs
from quantprop.experiments.grouping import Setting, in_order, setting
from quantprop.experiments.protocol import TEST_TO_TRAIN
from quantprop.experiments.published import NTLL_UNIT, TE_UNIT, Entry, Spread
from quantprop.experiments.resampled import Difference, difference
from quantprop.experiments.rows import Row


@dataclass(frozen=True)
class MethodSummary:
    """One method on one data set: over a round's folds the mean, over rounds mean and standard deviation.

    `rounds` gave numbers; `short_rounds` of them with fewer folds than the fullest one has rows. Failed rows have no
    numbers: they are counted, and nothing stands in for them.
    """

    setting: Setting
    split: str
    dataset: str
    method: str
    te: Spread | None
    ntll: Spread | None
    forecasts: dict[str, tuple[Spread | None, Spread | None]]  # TE and NTLL of each forecast of counts
    rounds: int
    short_rounds: int
    failed: Fraction  # rows without numbers, of all rows
    converged: Fraction  # rows whose learning and inference converged, of all rows
    against_ep: AgainstEP | None  # of QP, where EP's rows are there
    less_ep: Difference | None  # NTLL less EP's over the same divisions, in the table's units; finite ones, two or more

    @property
    def paper(self) -> Entry | None:
        """What the paper prints for this method and data set."""
        return published.entry(self.dataset, self.method)

    @property
    def te_difference(self) -> float | None:
        """TE minus the paper's, in the paper's standard deviations."""
        return _difference(self.te, self.paper and self.paper.te)

    @property
    def ntll_difference(self) -> float | None:
        """NTLL minus the paper's, in the paper's standard deviations."""
        return _difference(self.ntll, self.paper and self.paper.ntll)


def _difference(ours: Spread | None, paper: Spread | None) -> float | None:
    if ours is None or paper is None or not paper.sd:  # some standard deviations are printed as 0.0
        return None
    return (ours.mean - paper.mean) / paper.sd


def summarise(rows: Iterable[Row]) -> list[MethodSummary]:
    """One summary per (variant, kernel, objective, split, data set, method), in the paper's order."""
    groups = {key: list(group) for key, group in groupby(in_order(rows), key=_group)}
    return [_summary(group, groups.get((*key[:-1], "ep"))) for key, group in groups.items()]


def _group(row: Row) -> tuple:
    return (setting(row), row.split, row.dataset, row.method)


def _summary(rows: list[Row], ep: list[Row] | None) -> MethodSummary:
    first = rows[0]
    given = [row for row in rows if not row.failed]
    folds, full = Counter(row.round for row in given), max(Counter(row.round for row in rows).values())
    return MethodSummary(
        setting=setting(first),
        split=first.split,
        dataset=first.dataset,
        method=first.method,
        te=_spread(_means(given, lambda row: row.te), TE_UNIT),
        ntll=_spread(_means(given, lambda row: row.ntll), NTLL_UNIT),
        forecasts=_forecasts(given),
        rounds=len(folds),
        short_rounds=sum(count < full for count in folds.values()),
        failed=Fraction(len(rows) - len(given), len(rows)),
        converged=Fraction(sum(row.converged for row in rows), len(rows)),
        against_ep=compare(pairs(ep, rows)) if first.method == "qp" and ep else None,
        less_ep=_less_ep(rows, ep) if first.method != "ep" and ep else None,
    )


def _less_ep(rows: list[Row], ep: list[Row]) -> Difference | None:
    of_ep, own = log_likelihoods(pairs(ep, rows))
    if len(own) < 2 or not (np.isfinite(own).all() and np.isfinite(of_ep).all()):
        return None
    return difference(own / NTLL_UNIT, of_ep / NTLL_UNIT, TEST_TO_TRAIN[rows[0].split])


def _means(rows: list[Row], score: Callable[[Row], Any]) -> list[float]:
    """The mean of a score over each round's rows."""
    rounds: dict[int, list[float]] = {}
    for row in rows:
        rounds.setdefault(row.round, []).append(score(row))
    return [float(np.mean(numbers)) for numbers in rounds.values()]


def _spread(means: list[float], unit: float) -> Spread | None:
    """Mean and standard deviation (dividing by the number of rounds) of the rounds' means, in units."""
    if not means:
        return None
    known = len(means) > 1 and bool(np.isfinite(means).all())
    return Spread(float(np.mean(means)) / unit, float(np.std(means)) / unit if known else None)


def _forecasts(given: list[Row]) -> dict[str, tuple[Spread | None, Spread | None]]:
    """TE and NTLL of every forecast that the rows hold."""
    found = {}
    for name in dict.fromkeys(name for row in given for name in row.forecasts):
        rows = [row for row in given if name in row.forecasts]
        te, ntll = (_means(rows, lambda row, at=(name, score): row.forecasts[at[0]][at[1]]) for score in ("te", "ntll"))
        found[name] = _spread(te, TE_UNIT), _spread(ntll, NTLL_UNIT)
    return found
