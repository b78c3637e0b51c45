"""The models behind a classifier, and how two-class models add up to one of several classes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from quantprop.estimators.core import FittedCore, LearnedAttributes
from quantprop.inference.classes import ClassPredictive, ClassSolution


@dataclass
class ClassModel(LearnedAttributes):
    """One learned model of a classifier, of two classes or of all jointly, with scikit-learn's attributes."""

    core: FittedCore

    def _cores(self) -> list[FittedCore]:
        return [self.core]

    @property
    def classes_(self) -> np.ndarray:
        """The codes of its classes: 0, 1, ..."""
        solution = self.solution_
        return np.arange(solution.classes if isinstance(solution, ClassSolution) else 2)

    @property
    def X_train_(self) -> np.ndarray:
        """The inputs that it was learned from."""
        return self.solution_.X

    @property
    def y_train_(self) -> np.ndarray:
        """The codes of the classes that it was learned from."""
        solution, task = self.solution_, self.core.landscape.task
        return solution.y if isinstance(solution, ClassSolution) else (task.data.y[: len(task.x)] > 0).astype(int)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The objective at the learned hyperparameters."""
        return self.core.fitted.objective_value

    def log_proba(self, x: Any) -> Float[np.ndarray, "n classes"]:
        """Log probabilities of its classes."""
        y = self.posterior_.predict_y(x)
        if isinstance(y, ClassPredictive):
            return y.log_probabilities
        return np.stack([y.log_prob(-1.0), y.log_prob(1.0)], axis=1)


@dataclass
class MultiClassModels:
    """The two-class models behind a multi-class classifier."""

    estimators_: list[ClassModel]


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


def votes(models: Sequence[ClassModel], x: np.ndarray, classes: int) -> Float[np.ndarray, "n classes"]:
    """The number of pairs that each class wins; the sum of its probabilities decides between equal numbers."""
    score = np.zeros((len(x), classes))
    for (a, b), model in zip(itertools.combinations(range(classes), 2), models, strict=True):
        positive = np.exp(model.log_proba(x)[:, 1])
        score[:, a] += (positive < 0.5) + 1e-3 * (1.0 - positive) / classes
        score[:, b] += (positive >= 0.5) + 1e-3 * positive / classes
    return score
