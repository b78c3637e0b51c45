"""The numbers of the table, from rows: means over rounds, how the fits went, and each method compared with EP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student_t

from quantprop.experiments import published
from quantprop.experiments.protocol import TEST_TO_TRAIN
from quantprop.experiments.published import NTLL_UNIT, TE_UNIT, Entry, Setting, Spread, in_order, setting
from quantprop.experiments.rows import Row

Pair = tuple[Row, Row]  # EP's row of one experiment, and the row of QP or another method


@dataclass(frozen=True)
class Fraction:
    count: int
    total: int

    @property
    def share(self) -> float | None:
        """The fraction as a number; None of nothing."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True)
class AgainstEP:
    """QP compared with EP, over the experiments in which both gave numbers, and over their test points."""

    ntll_below: Fraction  # experiments in which QP's NTLL is below EP's
    variance_at_ep: Fraction  # test points where QP's latent variance ≤ EP's, both at EP's hyperparameters
    variance_own: Fraction  # the same, each at its own hyperparameters
    largest_ratio: float | None  # of QP's to EP's variance, at EP's hyperparameters

    @property
    def asterisk(self) -> bool:
        """True if QP's NTLL is below EP's in more than 90 % of experiments."""
        return 10 * self.ntll_below.count > 9 * self.ntll_below.total


@dataclass(frozen=True)
class Difference:
    """The mean difference of two methods' scores over train-test splits, and the corrected test that it is 0.

    The splits of one data set overlap and are not independent: with their spread over √n as the standard error anything
    becomes significant. Nadeau and Bengio (2003) replace 1/n by 1/n + n_test/n_train, a correlation of
    n_test / (n_train + n_test) between two splits; Bouckaert and Frank (2004) use it for repeated cross-validation.
    """

    mean: float
    standard_error: float
    divisions: int

    @property
    def t(self) -> float:
        """The mean in standard errors; NaN where all divisions agree that it is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.float64(self.mean) / self.standard_error)

    @property
    def p_value(self) -> float:
        """Two-sided, by Student's t with one degree of freedom fewer than there are divisions."""
        return float(2.0 * student_t.sf(abs(self.t), self.divisions - 1))


@dataclass(frozen=True)
class MethodSummary:
    """One method on one data set: the mean over a round's folds, its mean and standard deviation over rounds.

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
    less_ep: Difference | None  # NTLL minus EP's on the same splits, in the table's units; finite ones, two or more

    @property
    def paper(self) -> Entry | None:
        return published.entry(self.dataset, self.method)

    @property
    def te_difference(self) -> float | None:
        return _in_deviations(self.te, self.paper and self.paper.te)

    @property
    def ntll_difference(self) -> float | None:
        return _in_deviations(self.ntll, self.paper and self.paper.ntll)


def _in_deviations(ours: Spread | None, paper: Spread | None) -> float | None:
    if ours is None or paper is None or not paper.sd:  # some standard deviations are printed as 0.0
        return None
    return (ours.mean - paper.mean) / paper.sd


def summarise(rows: Iterable[Row]) -> list[MethodSummary]:
    """One summary per (variant, kernel, objective, split, data set, method), in the paper's order."""
    groups = {key: list(group) for key, group in groupby(in_order(rows), key=_group)}
    return [_summary(group, groups.get((*key[:-1], "ep"), [])) for key, group in groups.items()]


def _group(row: Row) -> tuple:
    return (setting(row), row.split, row.dataset, row.method)


def _summary(rows: list[Row], ep: list[Row]) -> MethodSummary:
    of, split, dataset, method = _group(rows[0])
    given = [row for row in rows if not row.failed]
    folds, full = Counter(row.round for row in given), max(Counter(row.round for row in rows).values())
    return MethodSummary(
        setting=of,
        split=split,
        dataset=dataset,
        method=method,
        te=_spread(given, lambda row: row.te, TE_UNIT),
        ntll=_spread(given, lambda row: row.ntll, NTLL_UNIT),
        forecasts=_forecasts(given),
        rounds=len(folds),
        short_rounds=sum(count < full for count in folds.values()),
        failed=Fraction(len(rows) - len(given), len(rows)),
        converged=Fraction(sum(row.converged for row in rows), len(rows)),
        against_ep=compare(pairs(ep, rows)) if method == "qp" and ep else None,
        less_ep=_less_ep(pairs(ep, rows)) if method != "ep" else None,
    )


def _spread(rows: list[Row], score: Callable[[Row], Any], unit: float) -> Spread | None:
    """Mean and standard deviation (dividing by the number of rounds) of each round's mean score, in units."""
    rounds: dict[int, list[float]] = {}
    for row in rows:
        rounds.setdefault(row.round, []).append(score(row))
    means = [float(np.mean(numbers)) for numbers in rounds.values()]
    if not means:
        return None
    known = len(means) > 1 and bool(np.isfinite(means).all())
    return Spread(float(np.mean(means)) / unit, float(np.std(means)) / unit if known else None)


def _forecasts(given: list[Row]) -> dict[str, tuple[Spread | None, Spread | None]]:
    found = {}
    for name in dict.fromkeys(name for row in given for name in row.forecasts):
        rows = [row for row in given if name in row.forecasts]
        found[name] = (
            _spread(rows, lambda row, name=name: row.forecasts[name]["te"], TE_UNIT),
            _spread(rows, lambda row, name=name: row.forecasts[name]["ntll"], NTLL_UNIT),
        )
    return found


def pairs(ep: Iterable[Row], other: Iterable[Row]) -> list[Pair]:
    """EP's and another's rows of the experiments in which both gave numbers; all of one setting, data set and split."""
    of_ep = {(row.round, row.fold): row for row in ep if not row.failed}
    return [(of_ep[at], row) for row in other if not row.failed and (at := (row.round, row.fold)) in of_ep]


def compare(matched: list[Pair]) -> AgainstEP:
    ep, qp = variances(matched, "variance_at_ep")
    ep_ntll, qp_ntll = log_likelihoods(matched)
    return AgainstEP(
        ntll_below=Fraction(int(np.sum(qp_ntll < ep_ntll)), len(matched)),
        variance_at_ep=_not_above(ep, qp),
        variance_own=_not_above(*variances(matched, "variance")),
        largest_ratio=float(np.max(qp / ep)) if len(ep) else None,
    )


def _not_above(ep: np.ndarray, qp: np.ndarray) -> Fraction:
    return Fraction(int(np.sum(qp <= ep)), len(ep))


def log_likelihoods(matched: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    ep, other = (np.array([pair[at].ntll for pair in matched], dtype=np.float64) for at in (0, 1))
    return ep, other


def variances(matched: list[Pair], of_qp: str) -> tuple[np.ndarray, np.ndarray]:
    """EP's latent variances at all test points, and QP's: `variance_at_ep` at EP's hyperparameters, or `variance`."""
    matched = [(ep, qp) for ep, qp in matched if of_qp in qp.test]  # left out where QP did not converge at EP's
    for ep, qp in matched:
        if len(ep.test["variance"]) != len(qp.test[of_qp]):
            raise ValueError(
                f"{qp.dataset}, {qp.variant}, round {qp.round}, fold {qp.fold}: EP and QP have different numbers of "
                "test points, so the rows are from different runs; remove the older ones, or use a new folder"
            )
    ep = [value for row, _ in matched for value in row.test["variance"]]
    qp = [value for _, row in matched for value in row.test[of_qp]]
    return np.array(ep), np.array(qp)


def _less_ep(matched: list[Pair]) -> Difference | None:
    of_ep, own = log_likelihoods(matched)
    if len(own) < 2 or not np.isfinite([of_ep, own]).all():
        return None
    return difference(own / NTLL_UNIT, of_ep / NTLL_UNIT, TEST_TO_TRAIN[matched[0][0].split])


def difference(scores: Float[np.ndarray, " n"], others: Float[np.ndarray, " n"], test_to_train: float) -> Difference:
    """The scores minus the others', one pair per division; `test_to_train` is the ratio of test to training rows.

    >>> found = difference(np.array([0.3, 0.5, 0.4]), np.array([0.2, 0.2, 0.2]), test_to_train=1 / 9)
    >>> round(found.mean, 3), round(found.standard_error, 4), round(found.p_value, 3)
    (0.2, 0.0667, 0.095)
    """
    n = len(scores)
    if n < 2 or n != len(others):
        raise ValueError(f"two or more scores and as many others are needed; got {n} and {len(others)}")
    differences = scores - others
    variance = np.var(differences, ddof=1) * (1.0 / n + test_to_train)  # Nadeau and Bengio (2003), section 4
    return Difference(float(differences.mean()), float(np.sqrt(variance)), n)
