"""Weighted posteriors of the same data: what is shared by averages over hyperparameters and over models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Normal
from quantprop.inference.mixed import MixedPredictive, NormalMixture
from quantprop.likelihoods.base import Datum, scales
from quantprop.likelihoods.derived import of_output
from quantprop.runtime.arguments import checked


class Mixture:
    """Predictions of Σ_k weights_k (the posterior of component k)."""

    components: Sequence[Any]
    weights: Float[np.ndarray, " m"]

    def _latents(self, Xnew: Any, full_cov: bool) -> list[Normal]:
        """The posterior of f at new inputs by every component."""
        return [one.predict(Xnew, full_cov) for one in self.components]

    def predict(self, Xnew: Any, full_cov: bool = False) -> NormalMixture:
        """The posterior of f at new inputs; with `full_cov`, their joint covariance too."""
        w, latents = self.weights, self._latents(Xnew, full_cov)
        means, variances = np.stack([f.mean for f in latents]), np.stack([f.variance for f in latents])
        if not full_cov:
            return NormalMixture(w, means, variances)
        within = sum(weight * f.covariance for weight, f in zip(w, latents, strict=True))
        apart = means - w @ means
        return NormalMixture(w, means, variances, within + (w[:, None] * apart).T @ apart)

    def predict_y(
        self, Xnew: Any, *, exposure: Any = None, trials: Any = None, output: int | None = None
    ) -> MixedPredictive:
        """The distribution of y at new inputs: mean, variance, cdf, quantile, log_prob and sample.

        `exposure` (counts, Gaussian) and `trials` (binomial) are those of the new observations; 1 if not given.
        `output` says which one y is, where the likelihood has several (`likelihoods.ByOutput`).
        """
        more = {"exposure": exposure, "trials": trials, "output": output}
        return MixedPredictive(self.weights, tuple(one.predict_y(Xnew, **more) for one in self.components))

    def information(self, Xnew: Any, level: float | None = None, **scales: Any) -> Float[np.ndarray, " k"]:
        """The information of a new y on f at each input as in `Solution.information`, averaged over the components."""
        each = [one.information(Xnew, level, **scales) for one in self.components]
        return np.average(each, axis=0, weights=self.weights)

    @checked()
    def sample(self, Xnew: Any, n: int, seed: int = 0) -> Float[np.ndarray, "n k"]:
        """n joint draws of f at new inputs (rows: draws), each by a component of its own."""
        return self._drawn(n, seed, lambda rng, one, k: self._draws_of_f(rng, one, Xnew, k))

    @checked()
    def sample_y(
        self,
        Xnew: Any,
        n: int,
        seed: int = 0,
        *,
        exposure: Any = None,
        trials: Any = None,
        output: int | None = None,
    ) -> np.ndarray:
        """n draws of y at new inputs (rows: draws), f joint and by a component of its own in each.

        `exposure`, `trials` and `output` are as in `predict_y`.
        """

        def of_component(rng: np.random.Generator, one: Any, k: int) -> np.ndarray:
            likelihood = of_output(one.model.plain_likelihood, output)
            f = self._draws_of_f(rng, one, Xnew, k)
            more = scales(likelihood, f.shape[1:], exposure, trials)
            rows = (np.broadcast_to(more[name], f.shape) for name in ("exposure", "trials"))
            return likelihood.draw(rng, Datum(np.zeros(f.shape), *rows), f)

        return self._drawn(n, seed, of_component)

    def _draws_of_f(self, rng: np.random.Generator, one: Any, Xnew: Any, k: int) -> Float[np.ndarray, "n k"]:
        return one.sample(Xnew, k, seed=int(rng.integers(2**31)))

    def _drawn(self, n: int, seed: int, draw: Callable[[np.random.Generator, Any, int], np.ndarray]) -> np.ndarray:
        """n draws, shuffled, as many of each component as its weight asks for."""
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(n, self.weights)
        drawn = [draw(rng, one, k) for one, k in zip(self.components, counts, strict=True) if k]
        return rng.permutation(np.concatenate(drawn))
