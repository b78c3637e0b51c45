"""Dates in cells, as numbers: days since the beginning of 1970, and where a date lies in its year, week and day."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
from jaxtyping import Float

ISO = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?)?")
DOTTED = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}")
SLASHED = re.compile(r"\d{1,4}/\d{1,2}/\d{1,4}( .*)?")  # which of the numbers is the month cannot be known
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86400.0
DATES = ("number", "parts")  # what a column of dates may become
CYCLES = ("year", "week", "day")


def days(cell: str) -> float | None:
    """Days since 1970-01-01 of a cell that holds a date, with or without a time (UTC unless it says otherwise)."""
    when = _moment(cell)
    return None if when is None else (when - EPOCH).total_seconds() / DAY


def _moment(cell: str) -> datetime | None:
    try:
        if ISO.fullmatch(cell):
            when = datetime.fromisoformat(f"{cell}-01" if len(cell) == len("2026-01") else cell)
        elif DOTTED.fullmatch(cell):
            when = datetime.strptime(cell, "%d.%m.%Y")
        else:
            return None
    except ValueError:  # 2026-02-30
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def turns(since: Float[np.ndarray, " n"], cycle: str) -> Float[np.ndarray, " n"]:
    """The fraction of its year, week (from Monday) or day that has passed at each moment."""
    if cycle == "day":
        return since % 1.0
    if cycle == "week":
        return ((since + 3.0) % 7.0) / 7.0  # 1970-01-01 was a Thursday
    moments = np.floor(since).astype("datetime64[D]")
    years = moments.astype("datetime64[Y]")
    first, last = (y.astype("datetime64[D]").astype(float) for y in (years, years + 1))
    return (since - first) / (last - first)


def parts(since: Float[np.ndarray, " n"], cycles: tuple[str, ...]) -> Float[np.ndarray, "n k"]:
    """The days themselves, then sine and cosine of every cycle."""
    angles = [2.0 * np.pi * turns(since, cycle) for cycle in cycles]
    return np.column_stack([since, *(wave(angle) for angle in angles for wave in (np.sin, np.cos))])


def varying(since: Float[np.ndarray, " n"]) -> tuple[str, ...]:
    """The cycles in which these moments lie at different places."""
    return tuple(cycle for cycle in CYCLES if np.ptp(turns(since, cycle)) > 0)
