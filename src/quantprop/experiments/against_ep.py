"""QP compared with EP in the same experiments: test log-likelihoods and latent variances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from quantprop.experiments.rows import Row

Pair = tuple[Row, Row]  # EP's row of one experiment, and QP's or another method's


@dataclass(frozen=True)
class Fraction:
    """So many of so many."""

    count: int
    total: int

    @property
    def share(self) -> float | None:
        """The fraction as a number; None of nothing."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True)
class AgainstEP:
    """QP against EP, over the experiments in which both gave numbers, and over their test points."""

    ntll_below: Fraction  # experiments in which QP's NTLL is below EP's
    variance_at_ep: Fraction  # test points where QP's latent variance ≤ EP's, both at EP's hyperparameters
    variance_own: Fraction  # the same, each at its own hyperparameters
    largest_ratio: float | None  # of QP's to EP's variance, at EP's hyperparameters

    @property
    def asterisk(self) -> bool:
        """Whether QP's NTLL is below EP's in more than 90 % of experiments."""
        return 10 * self.ntll_below.count > 9 * self.ntll_below.total


def pairs(ep: Iterable[Row], other: Iterable[Row]) -> list[Pair]:
    """EP's and another's rows of the experiments in which both gave numbers; all of one setting, data set and split."""
    of_ep = {(row.round, row.fold): row for row in ep if not row.failed}
    return [(of_ep[at], row) for row in other if not row.failed and (at := (row.round, row.fold)) in of_ep]


def compare(matched: list[Pair]) -> AgainstEP:
    """Everything that is counted about pairs."""
    ep, qp = variances(matched, "variance_at_ep")
    ep_ntll, qp_ntll = log_likelihoods(matched)
    return AgainstEP(
        ntll_below=Fraction(int(np.sum(qp_ntll < ep_ntll)), len(matched)),
        variance_at_ep=_not_above(ep, qp),
        variance_own=_not_above(*variances(matched, "variance")),
        largest_ratio=float(np.max(qp / ep)) if len(ep) else None,
    )


def log_likelihoods(matched: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """EP's and the other's NTLL, one number per pair."""
    ep, other = (np.array([pair[at].ntll for pair in matched], dtype=np.float64) for at in (0, 1))
    return ep, other


def variances(matched: list[Pair], of_qp: str) -> tuple[np.ndarray, np.ndarray]:
    """EP's latent variances at all test points, and QP's: `variance_at_ep` at EP's hyperparameters, or `variance`."""
    matched = [(ep, qp) for ep, qp in matched if of_qp in qp.test]  # left out where QP did not converge at EP's
    for ep, qp in matched:
        if len(ep.test["variance"]) != len(qp.test[of_qp]):
            raise ValueError(
                f"{qp.dataset}, {qp.variant}, round {qp.round}, fold {qp.fold}: EP and QP have different numbers of "
                "test points, so the rows are of different runs; take out the older ones, or use a new folder"
            )
    ep = [value for row, _ in matched for value in row.test["variance"]]
    qp = [value for _, row in matched for value in row.test[of_qp]]
    return np.array(ep), np.array(qp)


def _not_above(ep: np.ndarray, qp: np.ndarray) -> Fraction:
    return Fraction(int(np.sum(qp <= ep)), len(ep))
