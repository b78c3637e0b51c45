"""Table 1 of the Quantile Propagation paper (NeurIPS 2020), as printed, and the order and names of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from quantprop.experiments.rows import Row

TE_UNIT, NTLL_UNIT = 1e-2, 1e-3  # what the table's columns are counted in
METHOD_NAMES = {"ep": "EP", "qp": "QP", "vb": "VB", "laplace": "Laplace"}


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over rounds, in the table's units. Without two finite rounds there is no `sd`."""

    mean: float
    sd: float | None


@dataclass(frozen=True)
class Entry:
    """One method on one data set of m rows and n features.

    `te` is the test error (mining: mean absolute error), `ntll` the negative test log-likelihood. The asterisk says
    that QP's NTLL is below EP's in more than 90 % of experiments.
    """

    dataset: str
    m: int
    n: int
    method: str
    te: Spread
    ntll: Spread
    asterisk: bool


_PRINTED = """
ionosphere 351 34    7.9  0.5    7.9  0.5   18.9  6.9    215.9   8.4    215.9   8.5    337.4  70.8
cancer     683  9    3.2  0.2    3.2  0.2    3.1  0.2     88.2   3.1     88.2   3.1     88.9  19.1  *
pima       732  7   20.3  1.0   20.3  1.0   21.9  0.4    424.7  13.0    424.0  13.2    450.3   2.6  *
crabs      200  7    2.7  0.5    2.7  0.5    3.7  0.7     64.4   8.2     64.3   8.4    164.7   7.5
sonar      208 60   14.0  1.1   14.0  1.1   25.7  3.9    306.7  10.8    306.2  10.9    693.1   0.0  *
glass      214 10    1.1  0.4    1.0  0.4    2.6  0.5     29.5   5.4     29.0   5.5     79.5   6.3  *
wine1      130 13    1.5  0.5    1.5  0.5    1.7  0.6     48.0   3.4     47.4   3.4     83.9   5.2  *
wine2      107 13    0.0  0.0    0.0  0.0    0.0  0.0     18.0   1.2     17.8   1.2     26.7   1.9  *
wine3      119 13    2.0  1.0    2.0  1.0    1.2  0.7     52.1   5.6     51.8   5.6     69.4   5.0  *
mining     112  1  118.6 27.0  118.6 27.0  170.3 15.9   1606.8 116.3   1606.5 116.3   2007.3 119.8
"""


def _entries(line: str) -> list[Entry]:
    """The three entries of a line: m, n, then TE and NTLL (mean, sd) of EP, QP and VB."""
    name, m, n, *rest = line.split()
    numbers = [float(cell) for cell in rest if cell != "*"]
    spreads = [Spread(mean, sd) for mean, sd in zip(numbers[::2], numbers[1::2], strict=True)]
    columns = zip(("ep", "qp", "vb"), spreads[:3], spreads[3:], strict=True)
    return [
        Entry(name, int(m), int(n), method, te, ntll, method == "qp" and "*" in rest) for method, te, ntll in columns
    ]


TABLE_1 = tuple(entry for line in _PRINTED.strip().splitlines() for entry in _entries(line))
DATASETS = tuple(dict.fromkeys(entry.dataset for entry in TABLE_1))


def entry(dataset: str, method: str) -> Entry | None:
    """The paper's entry for a method on a data set; None if there is none.

    >>> entry("crabs", "qp").ntll
    Spread(mean=64.3, sd=8.4)
    """
    found = (entry for entry in TABLE_1 if (entry.dataset, entry.method) == (dataset, method))
    return next(found, None)


class Setting(NamedTuple):
    variant: str
    kernel: str
    objective: str


def setting(row: Row) -> Setting:
    return Setting(row.variant, row.kernel, row.objective)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows by setting, data set, split, method, round and fold: in the paper's order, otherwise by name."""
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple:
    known = (
        (row.variant, ("paper", "code", "clean")),
        (row.kernel, ("isotropic", "ard")),
        (row.objective, ("evidence", "loo")),
        (row.dataset, DATASETS),
        (row.split, ("fold", "year", "event")),
        (row.method, tuple(METHOD_NAMES)),
    )
    places = ((names.index(name) if name in names else len(names), name) for name, names in known)
    return (*places, row.round, row.fold)


def label(dataset: str, split: str) -> str:
    """Name of a data set in a table or figure, with the split if there are several.

    >>> label("crabs", "fold"), label("mining", "year")
    ('crabs', 'mining (by year)')
    """
    return dataset if split == "fold" else f"{dataset} (by {split})"


def method_name(method: str) -> str:
    return METHOD_NAMES.get(method, method)
