"""Rows in the paper's order, and what to call them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from quantprop.experiments.published import DATASETS
from quantprop.experiments.rows import Row

METHODS = {"ep": "EP", "qp": "QP", "vb": "VB", "laplace": "Laplace"}


class Setting(NamedTuple):
    """What one table or one set of figures is about."""

    variant: str
    kernel: str
    objective: str


def setting(row: Row) -> Setting:
    """The setting that a row belongs to."""
    return Setting(row.variant, row.kernel, row.objective)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows by setting, data set, split, method, round and fold: as the paper has them where it says, else by name."""
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple:
    known = (
        (row.variant, ("paper", "code", "clean")),
        (row.kernel, ("isotropic", "ard")),
        (row.objective, ("evidence", "loo")),
        (row.dataset, DATASETS),
        (row.split, ("fold", "year", "event")),
        (row.method, tuple(METHODS)),
    )
    places = ((names.index(name) if name in names else len(names), name) for name, names in known)
    return (*places, row.round, row.fold)


def label(dataset: str, split: str) -> str:
    """What a table or figure calls a data set: with the split where there are several.

    >>> label("crabs", "fold"), label("mining", "year")
    ('crabs', 'mining (by year)')
    """
    return dataset if split == "fold" else f"{dataset} (by {split})"


def method_name(method: str) -> str:
    """What a table or figure calls a method."""
    return METHODS.get(method, method)
