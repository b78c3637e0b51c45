"""Series in time: which seasons they follow, by evidence, and the formula of a model with these."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np

from quantprop import likelihoods
from quantprop.core.parameters import LogNormal, Parameter, values
from quantprop.inference.results import Fitted
from quantprop.kernels import Constant, Matern12, Matern32, Periodic, Sum
from quantprop.kernels.grammar import quoted
from quantprop.kernels.structure import summands
from quantprop.learning.fitting import fit
from quantprop.model import DEFAULT_PROCESS, Model
from quantprop.priors import Inducing
from quantprop.priors.base import Process
from quantprop.runtime.names import check_name
from quantprop.tables.encoding import Column, learned
from quantprop.tables.problems import Problem, problem
from quantprop.tables.reading import Table, TableError, as_table, is_number
from quantprop.tables.roles import Roles
from quantprop.tables.targets import JOINT, REAL

SEASONS = {"day": 1.0, "week": 7.0, "year": 365.25}  # days
MIN_CYCLES, MIN_ROWS_PER_CYCLE = 2.0, 4.0
MIN_GAIN = 3.0  # nats of log evidence: a Bayes factor of 20
MAX_ROWS = 400  # drawn at random, on which seasons are compared
MAX_DENSE_ROWS, POINTS = 2500, 256  # a series of more rows has inducing points
FTOL = 1e-5  # relative gain of a step at which these fits stop
TREND, NEAR, SEASON = LogNormal(0.5, 1.0), LogNormal(0.02, 1.5), LogNormal(1.0, 1.0)  # lengthscales; of times in [0, 1]
VARIANCE = LogNormal(0.3, 1.5)
LEVEL = Constant(Parameter(100.0, fixed=True))


@dataclass(frozen=True)
class Seasons:
    """A model of a series.

    Attributes:
        formula: Kernel formula: trend, variation from row to row, seasons, effects of other columns.
        gains: The nats of log evidence that each season adds to the others, by name.
        periods: Periods of the seasons in the formula, by name, in days or the unit of time.
        rows: Number of rows on which seasons were compared.
    """

    formula: str
    gains: dict[str, float]
    periods: dict[str, float]
    rows: int

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the seasons in the formula."""
        return tuple(self.periods)

    def __str__(self) -> str:
        each = [
            f"{name} ({gain:+.1f}{'' if name in self.chosen else ', omitted'})" for name, gain in self.gains.items()
        ]
        found = ", ".join(each) or "none fits the spacing and the length of the series"
        return f"seasons and the log evidence they add on {self.rows} rows: {found}"


def seasons(
    table: Table | Any, target_name: str, likelihood: str | None = None, roles: Roles = Roles(),
    given: Sequence[str] = (), time: str | None = None,
) -> Seasons:  # fmt: skip
    """Choose the seasons of a series by evidence.

    Candidates are those of day, week and year that recur in the series at least twice, with at least four rows each
    time. Up to 400 rows, drawn at random, are modelled by EP as trend, variation from row to row and all candidates;
    seasons that add less than 3 nats to the log evidence are omitted one by one. The formula has the parameters learned
    from these rows, and effects of the columns besides time.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.
        target_name: Column to predict.
        likelihood: Name of the likelihood; guessed from the column by default.
        roles: Columns that qualify the target (`Roles`).
        given: Seasons to use instead: "day", "week", "year", or periods in the unit of a column of numbers.
        time: Column of times; the only column of dates, or the only column, by default.

    Returns:
        The seasons, and a formula with them.

    >>> import numpy as np
    >>> from quantprop import tables
    >>> days = np.arange("2026-01-01", "2026-03-01", dtype="datetime64[D]")
    >>> sold = np.random.default_rng(0).poisson(np.tile([5, 5, 6, 7, 9, 20, 16], 9)[:59])
    >>> found = tables.seasons({"date": days, "sold": sold}, "sold", "poisson")
    >>> found.chosen, found.formula.count("periodic")
    (('week',), 1)
    """
    table = as_table(table)
    features = learned(table.without({target_name, *roles.columns.values()}))[0].columns
    time = time or _time(table, features)
    one = problem(table, target_name, likelihood, f"matern32({quoted(time)})", roles)
    days = one.raw[:, 0]
    known = np.arange(len(days))
    if one.target.likelihood in REAL:  # a row that occurs twice would prove that there is no noise
        known = np.sort(np.unique(np.column_stack([days, one.target.y]), axis=0, return_index=True)[1])
    rows = np.sort(np.random.default_rng(0).permutation(known)[:MAX_ROWS])
    start, span = days.min(), np.ptp(days)
    periods = _periods(one, given, span, span / max(len(np.unique(days)) - 1, 1))

    @cache
    def fitted(names: frozenset[str]) -> Fitted:
        return _fitted(one, rows, (days[rows] - start) / span, [periods[n] / span for n in periods if n in names])

    gains = _gains(lambda names: fitted(names).solution.log_evidence, tuple(periods), -math.inf if given else MIN_GAIN)
    chosen = {name: periods[name] for name, gain in gains.items() if given or gain >= MIN_GAIN}
    terms = summands(fitted(frozenset(chosen)).model.plain_kernel)[1:]
    formula = _formula(quoted(time), values(terms), span, list(chosen.values()))
    effects = [f" + {'group' if len(f.levels) > 2 else 'linear'}({quoted(f.name)})" for f in features if f.name != time]
    return Seasons(formula + "".join(effects), gains, chosen, len(rows))


def process_for(rows: int) -> Process:
    """The process of a series with seasons: exact, or with inducing points if there are many rows."""
    return DEFAULT_PROCESS if rows <= MAX_DENSE_ROWS else Inducing(POINTS)


def _gains(evidence: Callable[[frozenset[str]], float], names: Sequence[str], least: float) -> dict[str, float]:
    """The gain of each season; the one of the smallest gain is omitted while that is below `least`."""
    left, gains = frozenset(names), {}
    while left:
        each = {name: evidence(left) - evidence(left - {name}) for name in sorted(left)}
        gains |= each
        worst = min(each, key=each.__getitem__)
        if each[worst] >= least:
            break
        left -= {worst}
    return {name: gains[name] for name in names}


def _time(table: Table, features: Sequence[Column]) -> str:
    """The only column of dates, or the only column."""
    found = [column.name for column in features if column.dates] or [column.name for column in features]
    if len(found) != 1:
        raise TableError(f"{table.source} has {len(found)} columns that may be time ({', '.join(map(repr, found))}): "
                         "leave all but one out with --ignore, or pass a kernel with terms of time")  # fmt: skip
    return found[0]


def _periods(one: Problem, given: Sequence[str], span: float, step: float) -> dict[str, float]:
    """The periods of the seasons to compare, in the unit of time."""
    dates = one.encoding.columns[0].dates
    if not given:
        near, far = MIN_ROWS_PER_CYCLE * step, span / MIN_CYCLES
        return {name: period for name, period in SEASONS.items() if dates and near <= period <= far}
    if not dates:
        return {name: _number(name, one) for name in given}
    for name in given:
        check_name("season", name, SEASONS)
    return {name: SEASONS[name] for name in given}


def _number(text: str, one: Problem) -> float:
    if not is_number(text) or not 0.0 < float(text) < math.inf:
        raise TableError(f"column {one.encoding.columns[0].name!r} holds numbers, not dates: pass each season as its "
                         f"period in their unit, such as 12; got {text!r}")  # fmt: skip
    return float(text)


def _fitted(one: Problem, rows: np.ndarray, x: np.ndarray, periods: Sequence[float]) -> Fitted:
    """The model with seasons of these periods, learned from some rows."""
    y, likelihood = one.target.units.inward(one.target.y), one.target.model()
    if one.target.likelihood in REAL:
        y = (y - y.mean()) / y.std()
    if one.target.classes:
        if len(np.unique(y)) > 2:
            raise TableError(f"column {one.target.name!r} has more than two classes: seasons are chosen for one "
                             "function of time; pass a kernel with terms of time")  # fmt: skip
        y = np.where(y == np.unique(y)[-1], 1.0, -1.0)
    if isinstance(likelihood, str):
        likelihood = likelihoods.by_name("probit" if likelihood == JOINT else likelihood)()
    smooth = (Matern32(_start(VARIANCE), _start(TREND)), Matern12(_start(VARIANCE), _start(NEAR)))
    periodic = (Periodic(_start(VARIANCE), _start(SEASON), Parameter(period, fixed=True)) for period in periods)
    kernel = reduce(Sum, (LEVEL, *smooth, *periodic))
    more: dict[str, Any] = {name: each[rows] for name, each in one.target.rows.items()}
    return fit(Model(kernel, likelihood), x[:, None], y[rows], "ep", ftol=FTOL, **more)


def _start(prior: LogNormal) -> Parameter:
    return Parameter(prior.median, prior=prior)


def _formula(time: str, terms: Sequence[Any], span: float, periods: Sequence[float]) -> str:
    """Terms as a formula of a column."""
    smooth = [("matern32", span, ""), ("matern12", span, "")]
    kinds = smooth + [("periodic", 1.0, f", period={period:.10g}") for period in periods]
    return " + ".join(
        f"{kind}({time}, variance={term.variance:.3g}, lengthscale={unit * term.lengthscale:.3g}{more})"
        for (kind, unit, more), term in zip(kinds, terms, strict=True)
    )
