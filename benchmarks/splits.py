"""The four data sets of the comparison, divided once and written to a file that every program reads.

A tenth of the rows is held out, drawn with NumPy's legacy generator at seed 0; the rest is standardised on itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

# crabs with its size rank and ionosphere with its constant column, as in the published table; pima without copies
SETS = {"crabs": "paper", "sonar": "paper", "ionosphere": "paper", "pima": "clean"}


def split(name: str, variant: str) -> dict[str, np.ndarray]:
    """Training and held-out rows of one set, standardised on the training rows."""
    from quantprop import datasets

    data = datasets.load(name, variant)
    order = np.random.RandomState(0).permutation(len(data.y))  # a division known from earlier work
    test, train = np.split(order, [len(order) // 10])
    centre, scale = data.X[train].mean(0), data.X[train].std(0)
    x = (data.X - centre) / np.where(scale > 0, scale, 1.0)
    return {"x": x[train], "y": data.y[train], "x_test": x[test], "y_test": data.y[test]}


def write_splits(path: Path) -> None:
    """Write every set to one file, as arrays `crabs.x`, `crabs.y`, ..., and say what is in it."""
    arrays = {}
    for name, variant in SETS.items():
        parts = split(name, variant)
        arrays |= {f"{name}.{key}": value for key, value in parts.items()}
        rows, columns = parts["x"].shape
        seen = int((parts["x"].std(0) > 0).sum())
        print(f"{name} ({variant}): {rows} rows to learn from, {len(parts['y_test'])} held out, {columns} features"
              + (f", {seen} of them not constant" if seen < columns else ""))  # fmt: skip
    np.savez(path, **arrays)
