"""The distribution of the class at new inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.data import bucket, encode, pad
from quantprop.gaussian import Normal
from quantprop.likelihoods import MultinomialProbit
from quantprop.numerics.largest import log_probabilities
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program


@dataclass(frozen=True)
class ClassPredictive:
    """Distributions of the class at k inputs, of latent values with means k × C and covariances k × C × C."""

    latent: Normal

    @cached_property
    @float64
    def log_probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Logarithms of the classes' probabilities: the noise of each class, and the correlations of the functions, are
        integrated out.
        """
        k = len(self.latent.mean)
        rows = pad((self.latent.mean, self.latent.covariance), bucket(k))
        return np.asarray(_log_probabilities(*rows))[:k]

    @property
    def probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Of the classes."""
        return np.exp(self.log_probabilities)

    def log_prob(self, y: Any) -> Float[np.ndarray, " k"]:
        """log P(class y)."""
        k, classes = np.shape(self.latent.mean)
        labels = encode(MultinomialProbit(classes), y, (k,)).y.astype(int)
        return self.log_probabilities[np.arange(k), labels]

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent draws of the class at every input (rows: draws)."""
        rng = np.random.default_rng(seed)
        levels = np.cumsum(self.probabilities, axis=1)[:, :-1]
        return np.sum(rng.uniform(size=(n, len(levels), 1)) > levels, axis=2)


_log_probabilities = program(
    lambda mean, covariance: jax.lax.map(
        lambda row: log_probabilities(row[0], row[1] + jnp.eye(len(row[0]))), (mean, covariance)
    )
)
