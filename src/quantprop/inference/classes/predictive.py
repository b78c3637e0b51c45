"""The distribution of the class at new inputs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.data import bucket, pad
from quantprop.core.gaussian import Normal
from quantprop.likelihoods.encoding import encode
from quantprop.likelihoods.multinomial import ClassLikelihood, MultinomialProbit
from quantprop.numerics.largest import Rule, lattice
from quantprop.runtime.arguments import checked
from quantprop.runtime.batches import chunks, each, per_thread, threads
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

SHIFTS = (0.0, 0.3)  # of the two lattices
TOLERANCE = 1e-5  # of a probability
SUM_WEIGHT = 2 / 3  # of the error of the sum of all probabilities, most of which normalising removes
FEW_CLASSES = 4
MIN_PROBABILITY = 1e-8  # of a class that finer lattices refine
DEVICE_BATCH = 16  # inputs at a time on an accelerator
CHUNK, DEVICE_CHUNK = 8, 1024  # inputs of one call


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
    @float64
    def log_probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Logarithms of the classes' probabilities: the noise of each class, and the correlations of the functions, are
        integrated out, over a lattice; inputs at which TOLERANCE remains, over two finer ones, that are compared.
        """
        whole = self.latent.mean, self.latent.covariance
        found, doubtful = np.zeros_like(whole[0]), np.arange(len(whole[0]))
        for rule in self.likelihood.rules:
            some = found[doubtful], *(part[doubtful] for part in whole)
            found[doubtful], differences = _refined(self.likelihood, rule, *some)
            doubtful = doubtful[differences > TOLERANCE]
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
    """The logarithms as means over lattices, and by how much the probabilities differ, or their sum from 1; only by
    classes of relevant probability: others can change theirs by no more than they have themselves. The sum alone does
    not show errors of few classes, which may cancel: two lattices are always compared for these.
    """
    order, found, differences = np.argsort(-rough, axis=1), rough.copy(), np.zeros(len(rough))
    counts = np.maximum(np.sum(np.exp(rough) > MIN_PROBABILITY, axis=1), 2)
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        kept = order[rows, :count]
        some = mean[rows[:, None], kept], covariance[rows[:, None, None], kept[:, :, None], kept[:, None]]
        shifts = SHIFTS[: rule.lattices if count > FEW_CLASSES else None]
        each = np.stack([_over(likelihood, rule, shift, *some) for shift in shifts])
        total = np.logaddexp.reduce(each, axis=2, keepdims=True)  # 0 except for errors
        found[rows[:, None], kept] = np.logaddexp.reduce(each - total, axis=0) - np.log(len(shifts))
        apart = np.ptp(np.exp(each - total), axis=0).max(axis=1)
        differences[rows] = np.maximum(apart, SUM_WEIGHT * np.abs(total.mean(axis=(0, 2))))
    return found, differences


def _over(
    likelihood: ClassLikelihood, rule: Rule, shift: float, mean: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """The logarithms over one lattice, some inputs at a time: on all cores, or as many as an accelerator is to take."""
    w, n = lattice(rule, mean.shape[1], shift), len(mean)
    size = CHUNK if jax.default_backend() == "cpu" else min(bucket(n), DEVICE_CHUNK)

    @float64
    def some(rows: np.ndarray) -> np.ndarray:
        given = pad((mean[rows], covariance[rows]), size)
        return np.asarray(_log_probabilities(likelihood, w, len(rows), *given))[: len(rows)]

    with ThreadPoolExecutor(threads()) as pool:
        return np.concatenate([mean[:0], *pool.map(some, chunks(n, min(size, per_thread(n))))])


@program
def _log_probabilities(likelihood: ClassLikelihood, w: Any, used: Any, mean: Any, covariance: Any) -> Any:
    """The logarithms at the inputs that are `used`, one after the other, or on an accelerator some at a time."""
    if jax.default_backend() == "cpu":
        return each(lambda m, v: likelihood.log_predictive(m, v, w), used, mean, covariance)
    return jax.lax.map(
        lambda row: likelihood.log_predictive(row[0], row[1], w), (mean, covariance), batch_size=DEVICE_BATCH
    )
