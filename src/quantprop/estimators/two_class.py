"""Several classes by two-class models: which problems there are, and the class by their votes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from quantprop.estimators.core import FittedCore


@dataclass
class MultiClassModels:
    """The two-class models behind a multi-class classifier."""

    estimators_: list[FittedCore]


def two_class_problems(
    y: np.ndarray, classes: np.ndarray, multi_class: str
) -> list[tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]]:
    """Which rows take part in each two-class problem, and which of all rows are positive in it."""
    every = np.ones(len(y), dtype=bool)
    if len(classes) == 2:
        return [(every, y == classes[1])]
    if multi_class == "one_vs_rest":
        return [(every, y == label) for label in classes]
    return [((y == a) | (y == b), y == b) for a, b in itertools.combinations(classes, 2)]


def votes(models: Sequence[FittedCore], x: np.ndarray, classes: int) -> Float[np.ndarray, "n classes"]:
    """The number of pairs that each class wins; the sum of its probabilities decides between equal numbers."""
    score = np.zeros((len(x), classes))
    for (a, b), model in zip(itertools.combinations(range(classes), 2), models, strict=True):
        positive = np.exp(model.log_proba(x)[:, 1])
        score[:, a] += (positive < 0.5) + 1e-3 * (1.0 - positive) / classes
        score[:, b] += (positive >= 0.5) + 1e-3 * positive / classes
    return score
