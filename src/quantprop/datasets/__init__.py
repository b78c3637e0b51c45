"""The data sets of the Quantile Propagation paper, bundled as CSV files.

Each set comes in two variants. ``paper`` is what the published table was computed on, known faults included;
``clean`` is the same set without them. PROVENANCE.md, beside this file, holds sources and licences.
"""

import csv
import tomllib
from collections.abc import Sequence
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
    files: Sequence[str]  # concatenated in this order; rows with an empty field are left out
    about: str  # what a row is
    coding: str  # what y is
    source: str
    note: str = ""  # a property of the source data itself: true of both variants
    fault: str = ""  # what `paper` has and `clean` has not
    paper_files: Sequence[str] = ()  # where `paper` reads other files than `clean`
    fault_columns: Sequence[str] = ()  # features of `paper` only
    positive_above: float | None = None  # y = +1 where target > this, −1 elsewhere
    pair: tuple[int, int] | None = None  # only these two classes, as −1 and +1
    paper_targets: Sequence[tuple[int, int]] = ()  # (value of the first feature, target in `paper`)


_TEXT = (resources.files(__name__) / "recipes.toml").read_text(encoding="utf-8")
_RECIPES = {name: _Recipe(**recipe) for name, recipe in tomllib.loads(_TEXT).items()}


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


def _read(files: Sequence[str]) -> tuple[list[str], np.ndarray]:
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
        text += f" {'Known issue of this variant' if paper else 'Not in this variant, but in `paper`'}: {recipe.fault}."
    return text
