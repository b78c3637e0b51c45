"""Noise that is added to f: y = f + scale · ε."""

from __future__ import annotations

import numpy as np

from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Normal, Places, Scalar, bounded, landmarks, places


class Additive(Likelihood):
    """Base of likelihoods y = f + scale · ε, with ε of one distribution, around 0, for all f."""

    bounds = bounded(scale=(1e-5, 1e5))
    noise_name = "scale"
    support = "real numbers"
    observes = "real"

    @property
    def scale(self) -> Scalar:
        """A field of each, after those of its own."""
        raise NotImplementedError

    def width(self, datum: Datum) -> Scalar:
        """The scale of y about f, of an array in NumPy or JAX."""
        return self.scale

    def landmarks(self, datum: Datum) -> Landmarks:
        return landmarks((datum.y, self.width(datum)))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return f

    def cdf_places(self, datum: Datum) -> Places:
        return places((datum.y, self.width(datum)))

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return self.mean(datum, latent.mean), latent.variance + self.variance(datum, latent.mean)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)
