"""Small tables: held-out scores of quantprop's stack and of what people use today.

    python -m studies.tables.data tables.npz
    python -m studies.tables.run fit tables.npz results.jsonl --models auto --processes 16
    python -m studies.tables.run page results.jsonl

`fit` adds a row to the results for each table, fold and model that is not there yet, so that it can be stopped and
continued; files of several machines can be concatenated. `page` prints means and ranks over the folds that all models
have. Peers with packages of their own are catboost, lightgbm, ngboost, interpret-core and statsmodels.

The protocol: 5 folds, shuffled with random_state=3 (of classes stratified). One default_rng(1) a table permutes
training rows, then test rows, fold after fold; they are cut at 800 and 1,000. Columns constant in training are dropped,
the rest standardised on training rows, and so are numbers y. Probabilities are clipped to [1e-4, 1 − 1e-4].
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from studies.tables import scoring
from studies.tables.peers import BY_KIND, peer

MAX_TRAINING, MAX_TEST = 800, 1000
KIND = {"classes": "classes", "rare": "classes", "numbers": "numbers", "counts": "counts"}
OURS = ("isotropic", "ard", "shrunk", "additive", "auto")


class Fold(NamedTuple):
    """Training and test rows of one fold."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Task(NamedTuple):
    """One row of the results to be."""

    table: str
    fold: int
    model: str

    @property
    def kind(self) -> str:
        return KIND[self.table.partition("/")[0]]


def folds(X: np.ndarray, y: np.ndarray, kind: str) -> Iterator[Fold]:
    """The folds of a table."""
    from sklearn.model_selection import KFold, StratifiedKFold

    rng = np.random.default_rng(1)
    split = (StratifiedKFold if kind == "classes" else KFold)(5, shuffle=True, random_state=3)
    for train, test in split.split(X, y):
        a, b = rng.permutation(train)[:MAX_TRAINING], rng.permutation(test)[:MAX_TEST]
        some = X[:, np.ptp(X[a], axis=0) > 0]
        some = (some - some[a].mean(axis=0)) / some[a].std(axis=0)
        own = (y - y[a].mean()) / y[a].std() if kind == "numbers" else y
        yield Fold(some[a], own[a], some[b], own[b])


# --- models ----------------------------------------------------------------------------------------------------------


def ours(name: str, kind: str, fold: Fold) -> dict[str, Any]:
    """The scores of one of quantprop's kernels, and of each member of a stack."""
    from quantprop import GaussianProcessClassifier, GaussianProcessRegressor, likelihoods
    from quantprop.tables.guess import guess

    kernel = None if name == "isotropic" else name
    if kind == "classes":
        model: Any = GaussianProcessClassifier(kernel, method="ep")
    else:
        noise = likelihoods.Gaussian(0.5) if kind == "numbers" else guess(fold.y.astype(int)).likelihood
        model = GaussianProcessRegressor(kernel, likelihood=noise, method="ep")
    model.fit(fold.x, fold.y)
    row = {"loo": float(np.mean(model.loo_))}
    if name != "auto":
        return row | scoring.of(kind, _predicted(kind, model.fitted_.solution, fold.x_test), fold.y_test)
    stack = model.posterior_
    each = {one.name: _predicted(kind, one.fitted.solution, fold.x_test) for one in stack.members}
    mixed = {"stack": stack.weights, "equal": np.full(len(each), 1 / len(each))}
    found = {what: scoring.of(kind, scoring.mixed(kind, list(each.values()), w), fold.y_test)
             for what, w in mixed.items()}  # fmt: skip
    row |= found["stack"] | {"equal": _scores(found["equal"]), "left_out": stack.left_out}
    row["weights"] = {one.name: one.weight for one in stack.members}
    row["members"] = {called: _scores(scoring.of(kind, one, fold.y_test)) for called, one in each.items()}
    return row


def _scores(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the probabilities that pooled calibration needs."""
    return {name: value for name, value in row.items() if name not in ("p", "y")}


def _predicted(kind: str, solution: Any, x: np.ndarray) -> Any:
    """What `scoring` takes: the probability of the second class, a mixture of normal distributions, or log p."""
    predictive = solution.predict_y(x)
    if kind == "classes":
        return np.exp(predictive.log_prob(1.0))
    if kind == "numbers":
        return scoring.Normals(np.ones(1), predictive.mean[None], np.sqrt(predictive.variance)[None])
    return predictive.log_prob


def run(task: Task, fold: Fold) -> dict[str, Any]:
    """One row of the results."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if task.model in OURS:
            row = ours(task.model, task.kind, fold)
        else:
            row = scoring.of(task.kind, peer(task.kind, task.model, *fold[:3]), fold.y_test)
    if not task.table.startswith("rare/") or task.model not in OURS:
        row = _scores(row)
    return {**task._asdict(), "seconds": round(time.process_time() - started, 2), **row}


# --- all of them -----------------------------------------------------------------------------------------------------


def done(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _one_core(cores: list[int]) -> None:
    """A worker has a core for itself, as what uses threads asks the operating system."""
    if hasattr(os, "sched_setaffinity"):
        number = int(multiprocessing.current_process().name.rpartition("-")[2])
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def _attempt(job: tuple[Task, Fold]) -> dict[str, Any]:
    task, fold = job
    try:
        return run(task, fold)
    except Exception as error:  # one failure of hundreds is a row of its own, not in the results
        return {**task._asdict(), "error": f"{type(error).__name__}: {error}"}


def fit(given: argparse.Namespace) -> None:
    """Add what is missing to the results, tables with many columns first."""
    known = {(row["table"], row["fold"], row["model"]) for row in done(given.results)}
    with np.load(given.tables) as file:
        tables = {name.removesuffix("/X"): (file[name], file[name[:-1] + "y"]) for name in file if name.endswith("/X")}
    chosen = [name for name in tables if given.only in name]
    jobs = []
    for name in sorted(chosen, key=lambda name: -tables[name][0].shape[1]):
        kind = KIND[name.partition("/")[0]]
        for k, fold in enumerate(folds(*tables[name], kind)):
            models = [m for m in given.models.split(",") if m in OURS or m in BY_KIND[kind]]
            jobs += [(Task(name, k, model), fold) for model in models
                     if k < given.folds and (name, k, model) not in known]  # fmt: skip
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    context, started = multiprocessing.get_context("spawn"), time.time()
    with context.Pool(given.processes, _one_core, (cores,)) as pool, given.results.open("a") as file:
        for row in pool.imap_unordered(_attempt, jobs):
            shown = {name: round(value, 4) for name, value in row.items() if isinstance(value, float)}
            print(f"{time.time() - started:6.0f} s", row["table"], row["fold"], row["model"], row.get("error", shown),
                  flush=True)  # fmt: skip
            if "error" not in row:
                file.write(json.dumps(row) + "\n")
                file.flush()


def page(results: Path) -> None:
    """Mean scores and ranks of every model over the folds that all of them have, for each set of tables."""
    import pandas as pd

    rows = pd.DataFrame(done(results))
    for called, own in rows.groupby(rows["table"].str.partition("/")[0]):
        models = [name for name in own["model"].unique() if name in OURS or name in BY_KIND[KIND[str(called)]]]
        for measure, sign in scoring.MEASURES[KIND[str(called)]].items():
            table = own.pivot_table(index=["table", "fold"], columns="model", values=measure)[models]
            if called == "classes":
                best = own[own["model"] == "auto"].set_index(["table", "fold"])
                table["equal weights"] = best["equal"].map(lambda one: one["log_loss"])
            table = table.dropna()
            ranks = (sign * table).rank(axis=1)
            folds = table.groupby("table").mean()
            print(f"\n### {called}: {measure}, {len(table)} folds of {len(folds)} tables\n")
            print("| | mean | mean rank | tables on which auto is better |\n|---|---|---|---|")
            for name in (sign * table).mean().sort_values().index:
                wins = int((sign * folds["auto"] < sign * folds[name]).sum()) if "auto" in folds else 0
                print(f"| {name} | {table[name].mean():.4f} | {ranks[name].mean():.2f} | {wins} of {len(folds)} |")
        auto = own[own["model"] == "auto"]
        print(f"\nleave-one-out {auto['loo'].mean():.4f}")
        if called == "classes":
            members = pd.DataFrame([{n: s["log_loss"] for n, s in one.items()} for one in auto["members"]])
            print(f"members: {members.mean().round(4).to_dict()}")
        if called == "numbers":
            print(own.groupby("model")["coverage"].mean().round(3).to_dict())
        if called == "rare":
            for name, some in own.dropna(subset="p").groupby("model"):
                p = np.concatenate([scoring.clipped(one) for one in some["p"]])
                y = np.concatenate([np.asarray(one, bool) for one in some["y"]])
                print(f"{name}: pooled calibration slope {scoring.calibration_slope(logit(p), y):.3f}, mean p "
                      f"{expit(logit(p)).mean():.4f} of {y.mean():.4f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    fitting, printing = commands.add_parser("fit"), commands.add_parser("page")
    fitting.add_argument("tables", type=Path, help="file of studies.tables.data")
    for command in (fitting, printing):
        command.add_argument("results", type=Path)
    every = ",".join(["auto", *dict.fromkeys(name for names in BY_KIND.values() for name in names)])
    fitting.add_argument("--models", default=every, help=f"[{every}]")
    fitting.add_argument("--only", default="", help="a part of the names of tables, such as rare/")
    fitting.add_argument("--folds", type=int, default=3)
    fitting.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    page(given.results) if given.what == "page" else fit(given)


if __name__ == "__main__":
    sys.exit(main())
