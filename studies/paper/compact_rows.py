"""The numbers of a sweep's rows as one file: python -m studies.paper.compact_rows results/rows.jsonl rows.csv.gz"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path

NUMBERS = {"te": ".6g", "ntll": ".10g", "evidence": ".10g"}
HYPERPARAMETERS = {"variance": "kernel.variance", "lengthscale": "kernel.lengthscale"}
ABOUT = ("dataset", "round", "fold", "method")
EFFORT = ("evaluations", "sweeps")


def compact(source: Path, target: Path) -> int:
    """Write one line a row, in the order of their keys; return how many."""
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    rows.sort(key=lambda row: tuple(row[name] for name in ABOUT))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*ABOUT, *NUMBERS, *HYPERPARAMETERS, *EFFORT, "converged"])
    for row in rows:
        learned = [_text(row["hyperparameters"].get(name), ".10g") for name in HYPERPARAMETERS.values()]
        scores = [_text(row[name], style) for name, style in NUMBERS.items()]
        effort = [row[name] for name in EFFORT]
        writer.writerow([*(row[name] for name in ABOUT), *scores, *learned, *effort, int(row["converged"])])
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(text.getvalue().encode("utf-8"))
    return len(rows)


def _text(number: float | None, style: str) -> str:
    """A number, or nothing where a fit failed."""
    return "" if number is None else format(number, style)


if __name__ == "__main__":
    print(compact(Path(sys.argv[1]), Path(sys.argv[2])), "rows")
