"""Columns that describe the target."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quantprop.tables.encoding import numbers
from quantprop.tables.reading import Table, TableError

RULES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "exposure": (lambda v: v > 0, "positive"),
    "trials": (lambda v: (v >= 1) & (v == np.round(v)), "an integer of at least 1"),
    "weights": (lambda v: v >= 0, "at least 0"),
}


class RoleError(TableError):
    """Error: roles that are incompatible with each other or with the likelihood."""


@dataclass(frozen=True)
class Roles:
    """The columns that describe the target, and how it is read.

    Attributes:
        upper: column with the upper end of an interval whose lower end is the target; an empty cell is an open end.
        event: column that states whether the target was observed (1, true, yes) or is a lower bound (0, false, no).
        observed: the value in that column that means observed, if not one of these.
        exposure: column with the unit of counts: person-years, area, hours.
        trials: column with the number of trials of which the target counts successes.
        weights: column with the number of equal rows that each row represents.
        order: labels of an ordered target, from the lowest; numbers are ordered by value.
        log: True models the logarithm of the target.
    """

    upper: str | None = None
    event: str | None = None
    observed: str | None = None
    exposure: str | None = None
    trials: str | None = None
    weights: str | None = None
    order: tuple[str, ...] = ()
    log: bool = False

    def __repr__(self) -> str:
        """The arguments that differ from their defaults."""
        said = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        return f"Roles({', '.join(f'{name}={value!r}' for name, value in said.items() if value)})"

    @property
    def columns(self) -> dict[str, str]:
        """Columns by their role."""
        given = {name: getattr(self, name) for name in ("upper", "event", "exposure", "trials", "weights")}
        return {name: column for name, column in given.items() if column is not None}

    @property
    def implied(self) -> str | None:
        """The likelihood that the roles alone decide."""
        if self.upper is not None or self.event is not None:
            return "censored"
        return "binomial" if self.trials is not None else "ordinal" if self.order else None

    def check(self, target: str) -> None:
        """Refuse one column in two roles, and two ways to say what was censored."""
        if self.upper is not None and self.event is not None:
            raise RoleError("upper and event both specify the censoring: pass one of them")
        named = [target, *self.columns.values()]
        if twice := [name for name in named if named.count(name) > 1]:
            raise RoleError(f"column {twice[0]!r} has two roles: target, upper, event, exposure, trials and weights "
                             "must be different columns")  # fmt: skip


def scale(table: Table, role: str, column: str) -> np.ndarray:
    """A column of exposures, trials or weights, every row checked."""
    holds, rule = RULES[role]
    found = numbers(table, column)
    check_rows(table, column, found, holds(found), f"{rule}, as {role}")
    return found


def check_rows(table: Table, name: str, values: np.ndarray, good: np.ndarray, rule: str) -> None:
    if not good.all():
        i = int(np.argmin(good))
        raise TableError(f"{table.source}, {table.where(i)}: {values[i]:g} in column {name!r} must be {rule}; remove "
                         "such rows")  # fmt: skip
