"""The distribution of the class at new inputs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Normal
from quantprop.likelihoods.base import encode
from quantprop.likelihoods.classes import ClassLikelihood, MultinomialProbit
from quantprop.numerics.largest import POINTS_IN_MEMORY, Rule, lattice
from quantprop.runtime.arguments import checked
from quantprop.runtime.batches import chunks
from quantprop.runtime.system import cores
from quantprop.runtime.threads import one_blas_thread

LATTICE_SHIFTS = (0.0, 0.3)
FEW_CLASSES = 5  # with so few the smallest lattice saves no time
TOLERANCE_PER_CLASS_PAIR, MAX_TOLERANCE = 1e-6, 5e-5  # error of a probability; a lattice point costs classes²
SUM_ERROR_WEIGHT = 2 / 3  # normalising removes most of the error of the sum of all probabilities
RELIABLE_POINTS = 509  # differences between lattices of fewer points have to be smaller in proportion
MIN_PROBABILITY = 1e-8  # finer lattices refine classes above it
CHUNK = 2**16  # inputs × classes × points of one call


@dataclass(frozen=True)
class ClassPredictive:
    """Distributions of the class at k inputs.

    Args:
        latent: Means k × C and covariances k × C × C of the latent values.
        likelihood: The likelihood.
    """

    latent: Normal
    likelihood: ClassLikelihood = MultinomialProbit()

    @cached_property
    def log_probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Logarithms of the classes' probabilities: the noise of each class, and the correlations of the functions, are
        integrated out, over two lattices that are compared, and over finer ones at inputs where doubt remains.
        """
        whole = self.latent.mean, self.latent.covariance
        classes = whole[0].shape[1]
        tolerance = min(0.5 * classes * (classes - 1) * TOLERANCE_PER_CLASS_PAIR, MAX_TOLERANCE)
        found, doubtful = np.zeros_like(whole[0]), np.arange(len(whole[0]))
        for rule in self.likelihood.rules[int(classes <= FEW_CLASSES) :]:
            some = found[doubtful], *(part[doubtful] for part in whole)
            found[doubtful], differences = _refined(self.likelihood, rule, *some)
            doubtful = doubtful[differences > tolerance * min(1.0, rule.points / RELIABLE_POINTS)]
        return found

    @property
    def probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Probabilities of the classes."""
        return np.exp(self.log_probabilities)

    def log_prob(self, y: Any) -> Float[np.ndarray, " k"]:
        """log P(class y)."""
        k, classes = np.shape(self.latent.mean)
        labels = encode(replace(self.likelihood, classes=classes), y, (k,)).y.astype(int)
        return self.log_probabilities[np.arange(k), labels]

    @checked()
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent draws of the class at every input (rows: draws)."""
        rng = np.random.default_rng(seed)
        levels = np.cumsum(self.probabilities, axis=1)[:, :-1]
        return np.sum(rng.uniform(size=(n, len(levels), 1)) > levels, axis=2)


def _refined(
    likelihood: ClassLikelihood, rule: Rule, rough: np.ndarray, mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The logarithms as means over two lattices, and by how much the probabilities differ, or their sum from 1; only by
    classes of relevant probability: others can change theirs by no more than they have themselves. Neither shows all
    errors: those of single classes may cancel in the sum, and lattices of one generator share some.
    """
    order, found, differences = np.argsort(-rough, axis=1), rough.copy(), np.zeros(len(rough))
    counts = np.maximum(np.sum(np.exp(rough) > MIN_PROBABILITY, axis=1), 2)
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        kept = order[rows, :count]
        some = mean[rows[:, None], kept], covariance[rows[:, None, None], kept[:, :, None], kept[:, None]]
        each = _over(likelihood, rule, *some)
        total = np.logaddexp.reduce(each, axis=2, keepdims=True)  # 0 except for errors
        found[rows[:, None], kept] = np.logaddexp.reduce(each - total, axis=0) - np.log(len(LATTICE_SHIFTS))
        apart = np.ptp(np.exp(each - total), axis=0).max(axis=1)
        differences[rows] = np.maximum(apart, SUM_ERROR_WEIGHT * np.abs(total.mean(axis=(0, 2))))
    return found, differences


def _over(likelihood: ClassLikelihood, rule: Rule, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The logarithms over each of two lattices, some inputs at a time, on all cores."""
    k, classes = mean.shape
    lattices = np.stack([lattice(rule, classes, shift) for shift in LATTICE_SHIFTS])
    size = max(1, CHUNK // (min(rule.points, POINTS_IN_MEMORY) * classes))

    def some(rows: np.ndarray) -> np.ndarray:
        return likelihood.log_predictive(mean[rows], covariance[rows], lattices)

    with one_blas_thread(), ThreadPoolExecutor(cores()) as pool:
        return np.concatenate([np.zeros((len(lattices), 0, classes)), *pool.map(some, chunks(k, size))], axis=1)
