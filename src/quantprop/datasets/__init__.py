"""The data sets of the Quantile Propagation paper, bundled as CSV files.

Each set comes in two variants. ``paper`` is what the published table was computed on, known faults included;
``clean`` is the same set without them. PROVENANCE.md, beside this file, holds sources and licences.
"""

import csv
from dataclasses import dataclass, field
from importlib import resources

import numpy as np

from quantprop.runtime.arguments import checked, choice

__all__ = ["Dataset", "load", "names"]

VARIANTS = ("clean", "paper")


@dataclass(frozen=True, eq=False)
class Dataset:
    """One data set.

    Args:
        name: Its name.
        variant: "paper" or "clean".
        X: Features, n × d, float64.
        y: Outcome, n values, float64.
        feature_names: Names of the columns of X.
        description: Source, and known data issues.
    """

    name: str
    variant: str
    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    description: str = field(repr=False)


@dataclass(frozen=True)
class _Recipe:
    """How one data set is made from its files, and what there is to say about it."""

    files: tuple[str, ...]  # concatenated in this order; rows with an empty field are left out
    about: str  # what a row is
    coding: str  # what y is
    source: str
    note: str = ""  # a property of the source data itself: true of both variants
    fault: str = ""  # what `paper` has and `clean` has not
    paper_files: tuple[str, ...] = ()  # where `paper` reads other files than `clean`
    fault_columns: tuple[str, ...] = ()  # features of `paper` only
    positive_above: float | None = None  # y = +1 where target > this, −1 elsewhere
    pair: tuple[int, int] | None = None  # keep these two classes, as −1 and +1
    paper_targets: tuple[tuple[int, int], ...] = ()  # (value of the first feature, target in `paper`)


_MLBENCH = "UCI Machine Learning Repository (CC BY 4.0), by way of R's mlbench"


def _wine(first: int, second: int) -> _Recipe:
    return _Recipe(
        files=("wine",),
        about=f"chemical analyses of Italian wines of cultivars {first} and {second}",
        coding=f"+1 cultivar {second}, -1 cultivar {first}",
        source="UCI Machine Learning Repository (CC BY 4.0), by way of scikit-learn",
        pair=(first, second),
    )


_RECIPES = {
    "ionosphere": _Recipe(
        files=("ionosphere",),
        about="radar returns from the ionosphere",
        coding="+1 good return, -1 bad return",
        source=_MLBENCH,
        note="Rows 102 and 248 (counted from 0) are identical.",
        fault="the second column, V2, is zero in every row",
        fault_columns=("V2",),
    ),
    "cancer": _Recipe(
        files=("breast_cancer_wisconsin",),
        about="breast tumours, nine cell properties graded 1 to 10; 16 incomplete rows are left out",
        coding="+1 malignant, -1 benign",
        source=_MLBENCH,
        note="449 of the 683 rows are distinct, in the source data itself.",
    ),
    "pima": _Recipe(
        files=("pima_tr", "pima_te"),
        about="Pima women aged 21 or more, tested for diabetes",
        coding="+1 diabetes, -1 none",
        source="R's MASS (Pima.tr, Pima.tr2, Pima.te); no longer distributed by UCI",
        fault="pima_tr, then the complete rows of pima_tr2, which are the 200 of pima_tr once more, then "
        "pima_te: 532 of the 732 rows are distinct, so test rows have exact copies in training",
        paper_files=("pima_tr", "pima_tr2", "pima_te"),
    ),
    "crabs": _Recipe(
        files=("crabs",),
        about="Leptograpsus crabs: species (sp: 1 blue, -1 orange) and five lengths in mm",
        coding="+1 male, -1 female",
        source="R's MASS (crabs)",
        fault="index, the rank by size inside each group of species and sex, is a feature",
        fault_columns=("index",),
    ),
    "sonar": _Recipe(
        files=("sonar",),
        about="sonar echoes, energy in 60 frequency bands",
        coding="+1 rock, -1 metal cylinder (mine)",
        source=_MLBENCH,
    ),
    "glass": _Recipe(
        files=("glass",),
        about="glass fragments: refractive index and content of eight elements",
        coding="+1 types 5, 6, 7 (containers, tableware, headlamps), -1 types 1, 2, 3 (windows)",
        source=_MLBENCH,
        note="Without the id two rows are identical.",
        fault="the row number, Id, is a feature and rows are sorted by type: y is +1 exactly where Id >= 164",
        fault_columns=("Id",),
        positive_above=4,
    ),
    "wine1": _wine(1, 2),
    "wine2": _wine(1, 3),
    "wine3": _wine(2, 3),
    "mining": _Recipe(
        files=("coal_yearly",),
        about="explosions in British coal mines that killed ten or more, by year, 1851 to 1962",
        coding="count of the year, 191 in all",
        source="R's boot (coal), dates counted by year",
        fault="the counts of 1941 and 1942 are 4 and 2 where the published dates give 3 and 3",
        paper_targets=((1941, 4), (1942, 2)),
    ),
}


def names() -> tuple[str, ...]:
    """Return the names that `load` takes.

    Returns:
        The names.

    >>> names()[:3]
    ('ionosphere', 'cancer', 'pima')
    """
    return tuple(_RECIPES)


@checked(name=choice(_RECIPES), variant=choice(VARIANTS))
def load(name: str, variant: str = "clean") -> Dataset:
    """Load a bundled data set, in the row order of its source.

    Classification sets have y = ±1, `mining` has counts.

    Args:
        name: One of `datasets.names()`.
        variant: "paper" is the set behind the published table, with its known data issues, which the description lists;
            "clean" is without them.

    Returns:
        Features, outcome and description.

    >>> crabs = load("crabs")
    >>> crabs.X.shape, crabs.feature_names
    ((200, 6), ('sp', 'FL', 'RW', 'CL', 'CW', 'BD'))
    >>> load("crabs", variant="paper").feature_names[1]
    'index'
    """
    recipe, paper = _RECIPES[name], variant == "paper"
    columns, table = _read(recipe.paper_files if paper and recipe.paper_files else recipe.files)
    features = tuple(c for c in columns[:-1] if paper or c not in recipe.fault_columns)
    X = table[:, [columns.index(c) for c in features]]
    X, y = _outcome(recipe, X, table[:, -1])
    if paper:
        for key, target in recipe.paper_targets:
            y[X[:, 0] == key] = target
    return Dataset(name, variant, X, y, features, _describe(recipe, paper, X))


def _read(files: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """Return the column names and the complete rows of the files, one after the other."""
    columns: list[str] = []
    rows: list[list[float]] = []
    for file in files:
        path = resources.files(__name__) / "data" / f"{file}.csv"
        columns, *lines = csv.reader(path.read_text(encoding="ascii").splitlines())
        rows += [[float(cell) for cell in line] for line in lines if "" not in line]
    return columns, np.array(rows, dtype=np.float64)


def _outcome(recipe: _Recipe, X: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Code the target as the recipe says; return the rows it keeps."""
    if recipe.positive_above is not None:
        return X, np.where(target > recipe.positive_above, 1.0, -1.0)
    if recipe.pair is not None:
        keep = np.isin(target, recipe.pair)
        return X[keep], np.where(target[keep] == recipe.pair[1], 1.0, -1.0)
    return X, target.copy()


def _describe(recipe: _Recipe, paper: bool, X: np.ndarray) -> str:
    columns = "1 column" if X.shape[1] == 1 else f"{X.shape[1]} columns"
    text = f"{X.shape[0]} rows, {columns}: {recipe.about}. y: {recipe.coding}. Source: {recipe.source}."
    if recipe.note:
        text += f" {recipe.note}"
    if recipe.fault:
        text += f" {'Known fault of this variant' if paper else 'Not in this variant, but in `paper`'}: {recipe.fault}."
    return text
