"""Preferences by EP, QP and Laplace: 500 comparisons of 100 items whose utility is known, on many draws.

    python -m studies.preferences.run --seeds 24 --out preferences.jsonl

One line for every draw and method: Kendall's τ of the items' utilities, the expected log loss of all win probabilities,
the largest of their calibration gaps over ten bins, and how many utilities, centred, lie in their 90 % intervals.
Draws that the file has are left out. At the end, the means and the differences from Laplace, paired draw by draw, with
their standard errors.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from scipy.stats import kendalltau

from quantprop import GaussianProcessRanker

METHODS = ("qp", "ep", "laplace")
SCORES = ("tau", "loss", "gap", "inside")
ITEMS, COMPARISONS = 100, 500


def of_draw(seed: int, method: str) -> dict[str, float | str | int]:
    rng = np.random.default_rng(seed)
    items = rng.uniform(-2.0, 2.0, size=(ITEMS, 2))
    utility = 2.0 * np.sin(1.5 * items[:, 0]) + items[:, 1]
    pairs = np.array([rng.choice(ITEMS, 2, replace=False) for _ in range(COMPARISONS)])
    won = rng.random(COMPARISONS) < ndtr(utility[pairs[:, 0]] - utility[pairs[:, 1]])
    ranker = GaussianProcessRanker(method=method).fit(items, np.where(won[:, None], pairs, pairs[:, ::-1]))
    mean, covariance = ranker.predict(items, return_cov=True)
    one, other = np.triu_indices(ITEMS, 1)
    truth, p = ndtr(utility[one] - utility[other]), ranker.predict_proba(items[one], items[other])
    bins = np.minimum((10 * p).astype(int), 9)
    gaps = [abs(p[bins == b].mean() - truth[bins == b].mean()) for b in range(10) if (bins == b).any()]
    centred = covariance - covariance.mean(axis=0) - covariance.mean(axis=1)[:, None] + covariance.mean()
    away = np.abs(utility - utility.mean() - (mean - mean.mean()))
    return {
        "seed": seed, "method": method, "tau": float(kendalltau(mean, utility).statistic),
        "loss": float(-np.mean(truth * np.log(p) + (1.0 - truth) * np.log1p(-p))), "gap": float(max(gaps)),
        "inside": float(np.mean(away < 1.6449 * np.sqrt(np.diagonal(centred)))),
    }  # fmt: skip


def said(rows: list[dict]) -> None:
    by = {(row["seed"], row["method"]): np.array([row[score] for score in SCORES]) for row in rows}
    seeds = [seed for seed in dict.fromkeys(s for s, _ in by) if all((seed, method) in by for method in METHODS)]
    found = {method: np.array([by[seed, method] for seed in seeds]) for method in METHODS}
    print(
        f"{len(seeds)} draws\n| method | τ | less Laplace's | log loss | less Laplace's | largest gap | inside 90 % |"
    )
    print("|---|---|---|---|---|---|---|")
    for method, scores in found.items():
        less = scores - found["laplace"]
        mean, error = less.mean(axis=0), less.std(axis=0, ddof=1) / np.sqrt(len(seeds))
        apart = [f"{1e3 * mean[i]:+.2f} ± {1e3 * error[i]:.2f} ‰" for i in (0, 1)]
        tau, loss, gap, inside = scores.mean(axis=0)
        print(f"| {method} | {tau:.4f} | {apart[0]} | {loss:.4f} | {apart[1]} | {gap:.3f} | {inside:.3f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=np.inf, help="start nothing after these")
    parser.add_argument("--out", type=Path, required=True)
    given, began = parser.parse_args(), time.perf_counter()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    there = {(row["seed"], row["method"]) for row in rows}
    for seed in range(given.seeds):
        for method in METHODS:
            if (seed, method) not in there and time.perf_counter() - began < given.seconds:
                rows.append(of_draw(seed, method))
                with open(given.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    said(rows)
