"""The target of a table: which likelihood it asks for, y as the estimators take it, and the columns that go with it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from quantprop import likelihoods
from quantprop.core.units import Units
from quantprop.likelihoods import Likelihood
from quantprop.runtime.names import check_name
from quantprop.tables.encoding import LARGEST, TRUTH, check_complete, is_dates, levels_of, numbers
from quantprop.tables.guess import Guess, guess, shown
from quantprop.tables.reading import Table, TableError
from quantprop.tables.roles import RULES, RoleError, Roles, check_rows, scale

JOINT = "multinomial-probit"  # one model of all labels; the others of CLASSES have one model per label
NOT_OF_TABLES = ("softmax", *likelihoods.names("other"))
LIKELIHOODS = tuple(name for name in likelihoods.names() if name not in NOT_OF_TABLES)
CLASSES = tuple(name for name in likelihoods.names("classes") if name in LIKELIHOODS)
REAL = likelihoods.names("real")  # y in units of its own standard deviation
FIRST_SCALE = 0.5  # starting value of the noise, in units of y
SCALED = {"exposure": likelihoods.names("counts"), "trials": likelihoods.names("successes")}  # which likelihoods use it
TIMES = likelihoods.names("times")  # positive, and in their own unit: f is of their logarithm
INTERVALS = likelihoods.names("intervals", "times")  # y are rows (lower, upper)
LOGARITHMIC = ("gaussian", "censored")  # y or log y is Gaussian given f: moments of y are known in closed form
NEEDED = "fill them in, or drop these rows with --drop-missing"  # columns that cannot be left out
EXACT = 2.0**53  # whole numbers below this are floating-point numbers
YES, NO = frozenset({"1", "1.0", "true", "yes"}), frozenset({"0", "0.0", "false", "no"})


@dataclass(frozen=True)
class Target:
    """A column that is predicted: its likelihood, why, and what else it could be; y, and what goes with each row.

    `labels` are those of ordered classes, whose y are 0, 1, ...; `rows` holds weights, exposure and trials.
    """

    name: str
    likelihood: str
    why: str
    y: np.ndarray
    others: tuple[tuple[str, str], ...] = ()
    labels: tuple[str, ...] = ()
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    units: Units = Units()

    @property
    def classes(self) -> bool:
        """True if y are labels."""
        return self.likelihood in CLASSES

    @property
    def discrete(self) -> bool:
        """True if y has probabilities, not a density."""
        return self.likelihood in likelihoods.names("classes", "counts", "successes", "ordered")

    def model(self) -> Likelihood | str:
        """The likelihood for the estimators: a name, or a likelihood with initial parameters."""
        if self.likelihood in (*REAL, "censored"):
            kind: Any = likelihoods.by_name(self.likelihood)
            return kind(scale=FIRST_SCALE)
        if self.likelihood != "ordinal":
            return self.likelihood
        shares = np.cumsum(np.bincount(self.y.astype(int)))[:-1] / len(self.y)
        return likelihoods.Ordinal(math.sqrt(2.0) * ndtri(shares))  # f + ε ~ N(0, 2) before learning


def target(table: Table, name: str, likelihood: str | None = None, roles: Roles = Roles()) -> Target:
    """The target of a name, with the likelihood given, implied by the roles of other columns, or guessed."""
    if likelihood is not None:
        check_name("likelihood", likelihood, LIKELIHOODS)
    roles.check(name)
    open_ended = set() if roles.upper is None else {name, roles.upper}
    check_complete(table, [column for column in (name, *roles.columns.values()) if column not in open_ended], NEEDED)
    chosen = likelihood or roles.implied
    found = _interval(table, name, chosen, roles) if chosen in INTERVALS else _column(table, name, chosen, roles)
    _check_roles(found.likelihood, roles)
    largest = np.abs(found.y[np.isfinite(found.y)]).max(initial=0.0) if found.y.dtype.kind == "f" else 0.0
    if 0.0 < largest < 1.0 / LARGEST:
        raise TableError(f"the numbers of column {name!r} are too small, below {1.0 / LARGEST:g}: change its unit")
    if found.likelihood in likelihoods.names("counts", "successes"):
        check_rows(table, name, found.y, found.y < EXACT, f"below {EXACT:g}, from where on not every count is a number")
    rows = {role: scale(table, role, column) for role, column in roles.columns.items() if role in RULES}
    found = dataclasses.replace(found, rows=rows, units=_units(table, found, roles.log))
    if "trials" in found.rows:
        check_rows(table, name, found.y, found.y <= found.rows["trials"], f"at most its trials ({roles.trials})")
    return found


def _column(table: Table, name: str, chosen: str | None, roles: Roles) -> Target:
    cells = table.column(name)
    if is_dates(cells):
        raise TableError(f"column {name!r} of {table.source} holds dates, which cannot be predicted: convert them to "
                         "numbers, such as days since a date")  # fmt: skip
    words = levels_of(table, name)
    labels = _labels(table, name, words)
    kinds = np.unique(labels)
    if len(kinds) < 2:
        raise TableError(f"column {name!r} of {table.source} always holds {kinds[0]}: there is nothing to predict")
    looks = guess(labels)
    if chosen is None and roles.exposure is not None:
        looks = Guess("poisson", f"counts, since they have an exposure ({roles.exposure})", looks.others[:1])
    chosen = chosen or ("gaussian" if roles.log else looks.likelihood)
    if chosen in CLASSES:
        return Target(name, chosen, looks.why, labels, looks.others)
    if chosen == "ordinal":
        return _ordered(table, name, labels, looks, roles.order)
    if words:
        raise TableError(f"the {chosen} likelihood needs numbers, and column {name!r} of {table.source} holds text "
                         f"({', '.join(map(repr, words[:3]))}): choose one of {', '.join(CLASSES)}")  # fmt: skip
    return Target(name, chosen, looks.why, numbers(table, name), looks.others)


def _labels(table: Table, name: str, words: tuple[str, ...]) -> np.ndarray:
    """Labels as written, booleans in lower case, numbers as numbers (whole ones as integers)."""
    if words:
        cells = table.column(name)
        return np.array([cell.casefold() for cell in cells] if words == TRUTH else cells)
    found = numbers(table, name)
    whole = np.all(found == np.round(found)) and np.abs(found).max() < EXACT
    return found.astype(np.int64) if whole else found


def _ordered(table: Table, name: str, labels: np.ndarray, looks: Guess, order: tuple[str, ...]) -> Target:
    """Ordered classes as 0, 1, ...: numbers in their own order, words in the one given."""
    kinds = np.unique(labels)
    there = tuple(map(str, kinds))
    if labels.dtype.kind == "U" and not order:
        raise RoleError(f"column {name!r} of {table.source} holds text: pass the order of its labels from the lowest, "
                        f"such as --order {','.join(there)} (in Python, Roles(order=...))")  # fmt: skip
    if order and sorted(order) != sorted(there):
        raise RoleError(f"the order must name every label of column {name!r} once ({', '.join(there)}); got "
                         f"{', '.join(order)}")  # fmt: skip
    if len(kinds) > 50:
        raise TableError(f"column {name!r} of {table.source} has {len(kinds)} different values, too many for ordered "
                         "classes: choose gaussian, or group them into fewer")  # fmt: skip
    place = {label: i for i, label in enumerate(order or there)}
    coded = np.array([place[str(label)] for label in labels], dtype=np.float64)
    why = f"{len(kinds)} values in order ({shown(np.array(list(place)))})" if order else looks.why
    return Target(name, "ordinal", why, coded, looks.others, tuple(place))


def _interval(table: Table, name: str, likelihood: str, roles: Roles) -> Target:
    """Rows (lower, upper) of what was observed or censored."""
    times = likelihood in TIMES
    if roles.upper is None and roles.event is None:
        if times:
            found = numbers(table, name)
            check_rows(table, name, found, found > 0, "positive, as times are")
            return Target(name, likelihood, "positive numbers, all of them observed", np.stack([found, found], axis=1))
        raise RoleError("the censored likelihood needs a second column: --upper names the upper ends of intervals, or "
                        "--event the column that records whether the target was observed")  # fmt: skip
    lower = numbers(table, name, open_end=(0.0 if times else -np.inf) if roles.upper else None)
    upper = (
        numbers(table, roles.upper, open_end=np.inf) if roles.upper else np.where(events(table, roles), lower, np.inf)
    )
    check_rows(table, name, lower, lower <= upper, f"at most the upper end ({roles.upper})")
    check_rows(table, name, lower, np.isfinite(lower) | np.isfinite(upper), "known on one side at least")
    if times:
        check_rows(table, name, upper, (lower >= 0) & (upper > 0), "positive, as times are")
        check_rows(table, name, lower, (lower > 0) | np.isfinite(upper), "known on one side at least")
    observed = int(np.sum(lower == upper))
    if not observed and np.isinf(np.stack([lower, upper])).any(axis=0).all():
        raise TableError(f"column {name!r} of {table.source}: no row is observed or bounded on both sides, so no scale "
                         "can be learned")  # fmt: skip
    why = f"{observed} of {len(lower)} rows were observed, the others censored"
    return Target(name, likelihood, why, np.stack([lower, upper], axis=1))


def events(table: Table, roles: Roles) -> np.ndarray:
    """Returns whether each row was observed: its cell is the value given, or 1, true, yes."""
    column = str(roles.event)
    cells = [cell.casefold() for cell in table.column(column)]
    if roles.observed is not None:
        if roles.observed.casefold() not in cells:
            raise RoleError(f"no row has {roles.observed!r} in column {column!r}, the value for an observed target: "
                            f"the column holds {shown(np.unique(cells))}")  # fmt: skip
        return np.array([cell == roles.observed.casefold() for cell in cells])
    if unclear := [i for i, cell in enumerate(cells) if cell not in YES | NO]:
        raise TableError(f"{table.cell(unclear[0], column)} is neither observed (1, true, yes) nor censored (0, false, "
                         f"no): name the value for observed, such as --event {column}={max(cells)}")  # fmt: skip
    return np.array([cell in YES for cell in cells])


def _check_roles(likelihood: str, roles: Roles) -> None:
    for role, users in SCALED.items():
        if getattr(roles, role) is not None and likelihood not in users:
            raise RoleError(f"{role} is for the likelihoods {' and '.join(users)}, not {likelihood}: choose one with "
                             "--likelihood, or leave it out")  # fmt: skip
    if likelihood == JOINT and roles.weights is not None:
        raise RoleError(f"weights are not supported with {JOINT}, one model of all labels: choose probit, or repeat "
                         "rows of weight w w times")  # fmt: skip
    if likelihood == "binomial" and roles.trials is None:
        raise RoleError("the binomial likelihood needs the number of trials: --trials names its column")
    if roles.log and likelihood not in LOGARITHMIC:
        raise RoleError(f"log is for the likelihoods {' and '.join(LOGARITHMIC)}, not {likelihood}")
    if (roles.upper or roles.event) and likelihood not in INTERVALS:
        raise RoleError(f"upper and event are for the likelihoods {', '.join(INTERVALS)}, not {likelihood}: choose one "
                         "of them, or leave --likelihood out")  # fmt: skip


def _units(table: Table, found: Target, log: bool) -> Units:
    """The model's units: of a censored y the centre and spread of what is known of it, of times their geometric mean.
    Others are the estimators'.
    """
    if found.likelihood in TIMES and not log:
        known = found.y[np.isfinite(found.y) & (found.y > 0)]
        return Units(0.0, float(np.exp(np.log(known).mean())))
    censored = found.likelihood == "censored"
    if log:
        above = found.y[:, 1] if censored else found.y
        check_rows(table, found.name, above, above > 0, "positive to have a logarithm")
    if not censored:
        return Units(log=log)
    ends = found.y[np.isfinite(found.y) & (not log or found.y > 0)]
    ends = np.log(ends) if log else ends
    return Units(float(ends.mean()), float(ends.std()) or 1.0, log)
