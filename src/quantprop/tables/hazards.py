"""Survival times as counts: rows split into periods of constant hazard, and survival curves of models of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from quantprop.core.gaussian import Normal
from quantprop.inference.predictive import Predictive
from quantprop.inference.solution import Solution
from quantprop.runtime.arguments import SEQUENCE
from quantprop.runtime.listing import Listing
from quantprop.runtime.names import check_name
from quantprop.tables.encoding import numbers
from quantprop.tables.models import TableModel
from quantprop.tables.reading import Table, TableError, as_table
from quantprop.tables.roles import Roles, check_rows
from quantprop.tables.targets import events

EXPOSURE = "exposure"
CURVE_DRAWS = 4_000
ENDS = (0.025, 0.975)
HAZARD_NODES = 100  # where hazards are one unknown
EIGENVALUE_ROUNDING = 1e-9  # relative to the largest


def periods(
    table: Table | Any,
    time: str,
    event: str,
    observed: str | None = None,
    entry: str | None = None,
    cuts: int | str | Sequence[float] = 10,
) -> Table:
    """Split rows of survival times at cuts: a row for each period under observation.

    A Poisson likelihood of the events, with the time under observation as exposure, is the likelihood of the times
    under hazards that are constant in each period (Holford 1980, Biometrics 36). With `factor(time)` and a cut at the
    time of each event, coefficients are close to those of a Cox model, and equal if nobody enters or leaves in between;
    with `se(time)` the hazard is smooth.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.
        time: Column of times of events, or of the end of observation.
        event: Column that states whether a time is that of an event (1, true, yes) or not (0, false, no).
        observed: The value in that column that means an event, if not one of these.
        entry: Column of the times from which rows were under observation (left truncation); 0 by default.
        cuts: Times that separate periods, a number of periods with about equally many events, or "events" for a cut at
            the time of each.

    Returns:
        The table of periods: `time` is their start, `event` 1 or 0, `exposure` the time under observation.

    >>> from quantprop import tables
    >>> table = tables.from_columns({"days": [2.0, 5.0], "died": [1, 0], "age": [60, 50]}, "a list")
    >>> tables.periods(table, "days", "died", cuts=[3.0]).rows
    (('0', '1', '60', '2'), ('0', '0', '50', '3'), ('3', '0', '50', '2'))
    """
    table = as_table(table)
    if EXPOSURE in table.names:
        raise TableError(f"{table.source} has a column {EXPOSURE!r}, which periods adds: rename it")
    ends = numbers(table, time)
    check_rows(table, time, ends, ends > 0, "positive, as times are")
    died = events(table, Roles(event=event, observed=observed))
    starts = np.zeros(len(ends)) if entry is None else numbers(table, entry)
    if entry is not None:
        check_rows(table, entry, starts, (starts >= 0) & (starts < ends), f"at least 0, and less than {time}")
    edges = np.array([0.0, *_edges(cuts, ends[died]), np.inf])
    lower, upper = np.maximum(starts[:, None], edges[:-1]), np.minimum(ends[:, None], edges[1:])
    row, period = np.nonzero(lower < upper)
    new = {
        time: [f"{start:.12g}" for start in edges[period]],
        event: [str(int(one)) for one in died[row] & (upper[row, period] == ends[row])],
        EXPOSURE: [f"{length:.12g}" for length in (upper - lower)[row, period]],
    }
    names = [name for name in (*table.names, EXPOSURE) if name != entry]
    columns = (new[name] if name in new else [table.column(name)[i] for i in row] for name in names)
    lines = tuple(table.lines[i] for i in row)
    return dataclasses.replace(table, names=tuple(names), rows=tuple(zip(*columns, strict=True)), lines=lines)


def _edges(cuts: int | str | Sequence[float], times: Float[np.ndarray, " events"]) -> Float[np.ndarray, " cuts"]:
    """The times between periods."""
    if not len(times):
        raise TableError("no row has an event: there is no hazard to learn")
    if isinstance(cuts, str) and cuts == "events":
        return np.unique(times)
    if isinstance(cuts, (int, np.integer)) and cuts > 0:
        return np.unique(np.quantile(times, np.arange(1, cuts) / cuts))
    found = np.asarray(cuts, dtype=np.float64) if SEQUENCE.holds(cuts) else np.zeros(1)
    if not ((found > 0) & np.isfinite(found)).all() or (np.diff(found) <= 0).any():
        raise ValueError(f"cuts must be a number of periods, increasing positive times, or 'events'; got {cuts!r}")
    return found


def survival(model: TableModel, table: Table | Any, time: str, at: Sequence[float], seed: int = 0) -> Listing:
    """Survival curves of new rows: the probability of no event by each time.

    Of a model of times (Weibull, log-logistic) they are exact, and so they are of a model of `periods` up to its first
    cut, and wherever all hazards reached are one unknown; otherwise they are averages of joint draws.

    Args:
        model: A model of times, or of the events in a table of periods with the exposure.
        table: The new rows, without time.
        time: The column of times.
        at: Times of the curves.
        seed: Seed of the 4,000 joint draws of the hazards.

    Returns:
        A table with the columns row, time, survival, lower and upper, the limits of 95 % intervals of the probability.
        If nobody was observed from time 0, probabilities are those given no event until observation began, NaN before.

    >>> from quantprop import tables
    >>> table = tables.from_columns({"days": [2, 5, 3, 9, 4, 8], "died": [1, 0, 1, 1, 0, 1]}, "a list")
    >>> model = tables.fit(tables.periods(table, "days", "died", cuts=[3.0]), "died", "poisson", "ep",
    ...                    "factor(days)", tables.Roles(exposure="exposure"))
    >>> curve = tables.survival(model, tables.from_columns({"x": [0]}, "a row"), "days", [0.0, 5.0])
    >>> curve["survival"][0], 0.2 < curve["survival"][1] < 0.9
    (1.0, True)
    """
    likelihood = model.fits[0].model.likelihood
    of_times = likelihood.observes == "times"
    if not of_times and (likelihood.name != "poisson" or "exposure" not in model.scales):
        raise ValueError("model must be of times (weibull, log-logistic), or a poisson model of a table of periods "
                         "with their exposure (--exposure, in Python Roles(exposure=...))")  # fmt: skip
    if of_times:
        check_name("time", time, [model.target])
    table, times = as_table(table), np.asarray(at, dtype=np.float64)
    if times.ndim != 1 or not ((times >= 0) & np.isfinite(times)).all():
        raise ValueError(f"at must be finite times from 0; got {list(at)}")
    starts = np.zeros(1) if of_times else _starts(model, time)
    given = f", given none by {starts[0]:g}, when observation began" if starts[0] > 0.0 else ""
    length = np.clip(times - starts[:, None], 0.0, np.append(np.diff(starts), np.inf)[:, None])  # periods × times
    found: dict[str, list] = {name: [] for name in ("row", "time", "survival", "lower", "upper")}
    for i in range(len(table.rows)):
        if of_times:
            columns = _beyond(model, model.encoding.matrix(table.only([i])), times)
        else:
            x = model.encoding.matrix(_at_starts(table.only([i] * len(starts)), time, starts))
            columns = np.where(times < starts[0], np.nan, _alive(model, x, length, seed))
        for name, column in zip(found, ([table.lines[i]] * len(times), times, *columns), strict=True):
            found[name] += np.asarray(column).tolist()
    return Listing(f"probability of no event by each time{given} (95 % interval)", found)


def _beyond(model: TableModel, x: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, ...]:
    """P(Y > t) of one row under a model of times, and at the ends of the 95 % interval of f."""
    y = model.units.inward(times)
    found: Any = model.estimator.posterior_.predict_y(np.repeat(x, len(times), axis=0))
    f = model.estimator.posterior_.predict(x)
    ends = (f.mean + np.sqrt(f.variance) * ndtri(end) for end in ENDS)
    likelihood = model.fits[0].model.plain_likelihood
    known = (Predictive(likelihood, Normal(np.repeat(end, len(times)), np.zeros(len(times))),
                        np.ones(len(times)), np.ones(len(times))) for end in ends)  # fmt: skip
    return tuple(1.0 - one.cdf(y) for one in (found, *known))


def _alive(model: TableModel, x: np.ndarray, length: np.ndarray, seed: int) -> np.ndarray:
    """E exp(−Σ_k length_k exp f_k) over the periods k of rows x, at each time, and the ends of its 95 % interval."""
    posterior: Any = model.estimator.posterior_
    drawn = np.exp(-np.exp(posterior.sample(x, CURVE_DRAWS, seed)) @ length)
    found = np.array([drawn.mean(axis=0), *np.quantile(drawn, ENDS, axis=0)])
    if not isinstance(posterior, Solution):
        return found
    f, (nodes, weights) = posterior.predict(x, full_cov=True), np.polynomial.hermite_e.hermegauss(HAZARD_NODES)
    for k, reached in enumerate(length.T > 0.0):
        values, vectors = np.linalg.eigh(f.covariance[np.ix_(reached, reached)])
        if (
            reached.any() and values[:-1].max(initial=0.0) <= EIGENVALUE_ROUNDING * values[-1]
        ):  # all hazards are one unknown
            at = np.append(nodes, ndtri(ENDS))[:, None] * np.sqrt(values[-1]) * vectors[:, -1]
            alive = np.exp(-np.exp(f.mean[reached] + at) @ length[reached, k])
            found[:, k] = weights @ alive[:HAZARD_NODES] / weights.sum(), *np.sort(alive[HAZARD_NODES:])
    return found


def _starts(model: TableModel, time: str) -> Float[np.ndarray, " periods"]:
    """The starts of the periods that a model was learned from."""
    encoding = model.encoding
    check_name("time", time, model.features)
    at, (column,) = model.features.index(time), [c for c in encoding.columns if c.name == time]
    values = encoding.centre[at] + encoding.scale[at] * np.unique(model.fits[0].solution.X[:, at])
    return np.sort([float(level) for level in column.levels] or values)


def _at_starts(table: Table, time: str, starts: np.ndarray) -> Table:
    """Equal rows with the start of each period as time."""
    rest, cells = table.without([time]), [f"{start:.12g}" for start in starts]
    rows = tuple((*row, cell) for row, cell in zip(rest.rows, cells, strict=True))
    return dataclasses.replace(rest, names=(*rest.names, time), rows=rows)
