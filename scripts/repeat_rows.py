"""Some rows of a sweep once more, at their own hyperparameters, on this machine: how far are scores and evidence apart?

    python scripts/repeat_rows.py results/rows.jsonl [how many]

Rows that another machine computed, say on a GPU, are so compared with this one's processor: inference and forecasts,
without the search for hyperparameters.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from quantprop import infer
from quantprop.experiments.experiment import forecasts
from quantprop.experiments.learning import model_at
from quantprop.experiments.protocol import Experiment, model_of, split
from quantprop.experiments.rows import Row, read

TOL = 1e-8


def apart(row: Row) -> tuple[float, float]:
    """|ΔNTLL|, and the relative difference of the evidence."""
    experiment = Experiment(row.dataset, row.variant, row.kernel, row.objective, row.split, row.round, row.fold)
    parts = split(experiment)
    model = model_at(model_of(experiment, row.method, parts.x.shape[1]), row.hyperparameters)
    solution = infer(model, parts.x, parts.y, row.method, tol=TOL)
    chosen = next(iter(forecasts(experiment, solution.predict_y(parts.x_test), parts.y_test).values()))
    ntll = float(-np.mean(chosen.log_prob))
    return abs(ntll - row.ntll), abs(solution.log_evidence / row.evidence - 1.0)


def main(path: Path, count: int) -> None:
    """Print the largest differences, data set by data set."""
    rows = [row for row in read(path.parent) if not row.failed]
    chosen = np.random.default_rng(0).choice(len(rows), size=count, replace=False)
    found: dict[str, list[tuple[float, float]]] = {}
    for i in sorted(chosen, key=lambda i: (rows[i].dataset, rows[i].method)):
        found.setdefault(f"{rows[i].dataset} {rows[i].method}", []).append(apart(rows[i]))
    for name, pairs in found.items():
        ntll, evidence = np.max(pairs, axis=0)
        print(f"{name:<16} {len(pairs):>3} rows: NTLL within {ntll:.1e}, evidence within {evidence:.1e} (relative)")
    worst = np.max([pair for pairs in found.values() for pair in pairs], axis=0)
    print(f"{'all':<16} {count:>3} rows: NTLL within {worst[0]:.1e}, evidence within {worst[1]:.1e} (relative)")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100)
