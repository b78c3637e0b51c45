"""Mixtures of posteriors: of the latent function's marginals, and of the distributions of new y."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from quantprop.core.data import real_array
from quantprop.core.gaussian import LOG_2PI, Normal
from quantprop.inference.predictive import Predictive, quantiles
from quantprop.numerics.mixtures import Fineness
from quantprop.numerics.quantiles import Axis, QuantileGuess, solve
from quantprop.runtime.arguments import checked
from quantprop.runtime.display import of_mixture, summarised

QUANTILE_TOLERANCE = 1e-9  # error of Φ⁻¹(cdf) at a quantile, before the last step


@summarised(of_mixture)
@dataclass(frozen=True)
class NormalMixture:
    """Mixtures of normal distributions, one for each of n inputs: Σ_k weights_k N(means_k, variances_k).

    Attributes:
        weights: weights of the components; they sum to 1.
        means: one row per component, one column per input.
        variances: one row per component, one column per input.
        covariance: joint covariance of the n inputs, if it was requested.
    """

    weights: Float[np.ndarray, " m"]
    means: Float[np.ndarray, "m n"]
    variances: Float[np.ndarray, "m n"]
    covariance: Float[np.ndarray, "n n"] | None = None

    @property
    def mean(self) -> Float[np.ndarray, " n"]:
        """E[f]."""
        return self.weights @ self.means

    @property
    def variance(self) -> Float[np.ndarray, " n"]:
        """Var[f]: the components' own, and how far they are apart."""
        return self.weights @ (self.variances + (self.means - self.mean) ** 2)

    def cdf(self, f: Float[np.ndarray, " n"] | float) -> Float[np.ndarray, " n"]:
        """P(F ≤ f)."""
        return self.weights @ ndtr(self._standardised(f))

    def log_prob(self, f: Float[np.ndarray, " n"] | float) -> Float[np.ndarray, " n"]:
        """log p(f)."""
        logs = -0.5 * (self._standardised(f) ** 2 + np.log(self.variances) + LOG_2PI)
        return np.logaddexp.reduce(logs + np.log(self.weights)[:, None])

    def quantile(self, q: Float[np.ndarray, "*shape"] | Sequence[float] | float) -> np.ndarray:
        """The f with P(F ≤ f) = q, 0 < q < 1. A scalar q gives one value per input, an array of q one row each."""
        probability = real_array(q, "q")
        if not ((probability > 0) & (probability < 1)).all():
            raise ValueError(f"q must lie between 0 and 1; got {q}")
        n, levels = self.means.shape[1], probability.ravel()
        each, rows = np.repeat(levels, n), np.tile(np.arange(n), len(levels))

        def cdf(some: np.ndarray, f: np.ndarray) -> np.ndarray:
            at = rows[some]
            return self.weights @ ndtr((f - self.means[:, at]) / np.sqrt(self.variances[:, at]))

        with np.errstate(all="ignore"):  # brackets without an end have no width, and no middle
            guess = QuantileGuess(self.mean[rows], np.sqrt(self.variance)[rows])
            return solve(cdf, each, Axis(), guess, QUANTILE_TOLERANCE).y.reshape((*probability.shape, n))

    @checked()
    def sample(self, n: int, seed: int = 0) -> Float[np.ndarray, "draws n"]:
        """n draws at every input, inputs independent of each other (rows: draws)."""
        rng, inputs = np.random.default_rng(seed), np.arange(self.means.shape[1])
        which = rng.choice(len(self.weights), size=(n, len(inputs)), p=self.weights)
        return rng.normal(self.means[which, inputs], np.sqrt(self.variances[which, inputs]))

    def _standardised(self, f: Any) -> Float[np.ndarray, "m n"]:
        return (real_array(f, "f") - self.means) / np.sqrt(self.variances)


@summarised(of_mixture)
@dataclass(frozen=True)
class MixedPredictive:
    """Distributions of y at n inputs, averaged over hyperparameters, with the methods of `Predictive`.

    Attributes:
        weights: weights of the components; they sum to 1.
        components: distributions of y, each with its own likelihood and latent function.
    """

    weights: Float[np.ndarray, " m"]
    components: tuple[Predictive, ...]

    exposure = property(lambda self: self.components[0].exposure, doc="Exposure of the new inputs.")
    trials = property(lambda self: self.components[0].trials, doc="Trials of the new inputs.")

    @property
    def latent(self) -> NormalMixture:
        """The mixture of f."""
        means, variances = zip(*((c.latent.mean, c.latent.variance) for c in self.components), strict=True)
        return NormalMixture(self.weights, np.stack(means), np.stack(variances))

    @property
    def mean(self) -> np.ndarray:
        """E[y]."""
        return self._each(lambda component: component.mean)

    @property
    def variance(self) -> np.ndarray:
        """Var[y]: the components' own, and how far they are apart."""
        means = np.stack([component.mean for component in self.components])
        between = self.weights @ (means - self.weights @ means) ** 2
        return self._each(lambda component: component.variance) + between

    @property
    def median(self) -> np.ndarray:
        """The smallest y with P(Y ≤ y) ≥ ½."""
        return self.quantile(0.5)

    def log_prob(self, y: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """log p(y): of a density for continuous y, of a probability for discrete y."""
        logs = np.stack([component.log_prob(y) for component in self.components])
        return np.logaddexp.reduce(logs + np.log(self.weights)[:, None])

    def cdf(self, y: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """P(Y ≤ y), for any real y, and for ±inf."""
        return self._each(lambda component: component.cdf(y))

    def quantile(self, q: Float[np.ndarray, "*shape"] | Sequence[float] | float) -> np.ndarray:
        """The smallest y with P(Y ≤ y) ≥ q. A scalar q gives one value per input, an array of q one row each."""
        latent, first = self.latent, self.components[int(np.argmax(self.weights))]
        like = Predictive(first.likelihood, Normal(latent.mean, latent.variance), self.exposure, self.trials)

        def cdf_of(rows: np.ndarray, y: np.ndarray, fineness: Fineness) -> np.ndarray:
            return self._each(lambda component: component.cdf_of(rows, y, fineness))

        return quantiles(like, cdf_of, q)

    @checked()
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent draws of y at every input (rows: draws)."""
        return _drawn(self.weights, self.components, n, seed)

    def _each(self, of: Callable[[Predictive], np.ndarray]) -> np.ndarray:
        """The average over components."""
        return sum(w * of(component) for w, component in zip(self.weights, self.components, strict=True))  # type: ignore[return-value]


def _drawn(weights: np.ndarray, components: Sequence[Any], n: int, seed: int) -> np.ndarray:
    """n draws at every input, as many by each component as its weight asks for, in random order."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, weights)
    drawn = [one.sample(k, seed=int(rng.integers(2**31))) for one, k in zip(components, counts, strict=True) if k]
    return rng.permuted(np.concatenate(drawn), axis=0)


@dataclass(frozen=True)
class MixedClasses:
    """Distributions of the class at k inputs, averaged over models.

    Attributes:
        weights: of the components; they sum to 1.
        components: the distributions of the class by each model (`ClassPredictive`).
    """

    weights: Float[np.ndarray, " m"]
    components: tuple[Any, ...]

    @cached_property
    def log_probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Logarithms of the classes' probabilities."""
        logs = np.stack([component.log_probabilities for component in self.components])
        return np.logaddexp.reduce(logs + np.log(self.weights)[:, None, None])

    @property
    def probabilities(self) -> Float[np.ndarray, "k classes"]:
        """Probabilities of the classes."""
        return np.exp(self.log_probabilities)

    def log_prob(self, y: Any) -> Float[np.ndarray, " k"]:
        """log P(class y)."""
        return np.logaddexp.reduce(
            [np.log(w) + c.log_prob(y) for w, c in zip(self.weights, self.components, strict=True)]
        )

    @checked()
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent draws of the class at every input (rows: draws)."""
        return _drawn(self.weights, self.components, n, seed)
