"""How far the rows of a sweep are from published ones.

    python -m studies.paper.rows_apart published.csv.gz results/rows.jsonl

Both may be of either kind; rows are matched by data set, round, fold and method.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path

import numpy as np

ABOUT = ("dataset", "round", "fold", "method")
SCORES = ("evidence", "ntll")


def scores(path: Path) -> dict[tuple[str, ...], np.ndarray]:
    """Evidence and negative test log-likelihood of every row that has them."""
    if path.suffix == ".gz":
        rows = list(csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines()))
    else:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    whole = [row for row in rows if row["evidence"] not in (None, "")]
    return {tuple(str(row[k]) for k in ABOUT): np.array([float(row[k]) for k in SCORES]) for row in whole}


def main(published: Path, again: Path) -> None:
    """Print the largest differences, by data set and method."""
    old, new = scores(published), scores(again)
    both = old.keys() & new.keys()
    print(f"{len(old)} published, {len(new)} again, {len(both)} in both")
    groups: dict[tuple[str, str], list[np.ndarray]] = {}
    for key in sorted(both):
        apart = np.abs(new[key] - old[key]) / np.array([abs(old[key][0]), 1.0])
        groups.setdefault((key[0], key[3]), []).append(apart)
    for (name, method), each in groups.items():
        evidence, ntll = np.max(each, axis=0)
        over = int(np.sum(np.array(each)[:, 0] > 1e-6))
        print(f"{name:<12} {method:<8} {len(each):>5} rows: evidence within {evidence:.1e} (relative), "
              f"{over} above 1e-6; NTLL within {ntll:.1e}")  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
