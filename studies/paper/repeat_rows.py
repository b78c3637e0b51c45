"""Some rows of a sweep once more on this machine: how far are scores and evidence apart?

    python -m studies.paper.repeat_rows inferred results/rows.jsonl [how many rows]
    JAX_PLATFORMS=cpu python -m studies.paper.repeat_rows learned results/rows.jsonl [how many folds]

Rows that another machine computed, say one with a GPU, are so compared with a processor's: `inferred` repeats inference
and forecasts at the rows' own hyperparameters, `learned` the search for hyperparameters too, by batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from quantprop import infer
from quantprop.experiments.batched import Batched
from quantprop.experiments.experiment import forecasts
from quantprop.experiments.learning import model_at
from quantprop.experiments.protocol import METHODS, Experiment, model_of, split
from quantprop.experiments.rows import Row, read
from quantprop.experiments.sweep import Unit, key_of

TOL = 1e-8

Apart = tuple[str, float, float]  # data set and method, |ΔNTLL|, and the relative difference of the evidence


def experiment_of(row: Row) -> Experiment:
    return Experiment(row.dataset, row.variant, row.kernel, row.objective, row.split, row.round, row.fold)


def inferred(rows: list[Row], count: int) -> Iterator[Apart]:
    """Inference and forecasts at the hyperparameters of some rows."""
    chosen = np.random.default_rng(0).choice(len(rows), size=count, replace=False)
    for row in (rows[i] for i in chosen):
        experiment = experiment_of(row)
        parts = split(experiment)
        model = model_at(model_of(experiment, row.method, parts.x.shape[1]), row.hyperparameters)
        solution = infer(model, parts.x, parts.y, row.method, tol=TOL)
        every = forecasts(experiment, solution.predict_y(parts.x_test), parts.y_test)
        ntll = float(-np.mean(next(iter(every.values())).log_prob))
        yield f"{row.dataset} {row.method}", abs(ntll - row.ntll), abs(solution.log_evidence / row.evidence - 1.0)


def learned(rows: list[Row], count: int) -> Iterator[Apart]:
    """All methods of some folds, learned again."""
    there = {row.key: row for row in rows}
    folds = sorted({experiment_of(row) for row in rows}, key=lambda fold: key_of(fold, ""))
    chosen = sorted(np.random.default_rng(0).choice(len(folds), size=count, replace=False))
    methods = tuple(method for method in METHODS if any(row.method == method for row in rows))
    for again in Batched().carry_out([Unit(folds[i], methods) for i in chosen]):
        for new in again.rows:
            old = there[new.key]
            yield f"{new.dataset} {new.method}", abs(new.ntll - old.ntll), abs(new.evidence / old.evidence - 1.0)


def main(how: str, path: Path, count: int) -> None:
    """Print the largest differences, data set by data set."""
    rows = [row for row in read(path.parent) if not row.failed]
    found: dict[str, list[tuple[float, float]]] = {}
    for name, ntll, evidence in {"inferred": inferred, "learned": learned}[how](rows, count):
        found.setdefault(name, []).append((ntll, evidence))
    found = dict(sorted(found.items()))
    found["all"] = [pair for pairs in found.values() for pair in pairs]
    for name, pairs in found.items():
        ntll, evidence = np.max(pairs, axis=0)
        print(f"{name:<16} {len(pairs):>3} rows: NTLL within {ntll:.1e}, evidence within {evidence:.1e} (relative)")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 100)
