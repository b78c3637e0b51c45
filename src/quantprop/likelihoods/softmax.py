"""Classes by softmax, and the scalar factors that it is made of."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax
from jaxtyping import Array, Float

from quantprop.core.gaussian import LOG_2PI
from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Normal, Scalar, landmarks
from quantprop.likelihoods.multinomial import ClassLikelihood
from quantprop.numerics.largest import FINE, log_mean_softmax

FLAT = 1e12  # the variance of v; that of a flat prior would be infinite, and differs by v²/FLAT
LOST = 1.0 - 0.5 * LOG_2PI  # log ∫ eᵛ exp(−eᵛ) dv, which is 0, less what a Gaussian makes of it, by mode or as a bound
CONSTANT = 0.5 * (LOG_2PI + np.log(FLAT)) + LOST


class Softmax(ClassLikelihood):
    """p(y | f) = exp f_y/Σ_c exp f_c, for y = 0, 1, ..., classes − 1: by `Laplace` and `VB`.

    EP and QP do not exist for it; `MultinomialProbit` is the likelihood of classes for them. Its factors are those of
    p(y | f) = ∫ Π_c Poisson([y = c] | exp(f_c + v)) dv: Laplace is that of softmax, and VB's q is a Gaussian in (v, f),
    which is a bound too.

    Args:
        classes: Number of classes; by default taken from y or the kernel.

    >>> import numpy as np
    >>> from quantprop import Model, infer, kernels, likelihoods
    >>> X, y = np.array([[-2.0], [-1.5], [0.0], [0.3], [2.0], [2.2]]), np.array([0, 0, 1, 1, 2, 2])
    >>> solution = infer(Model(kernels.SquaredExponential(4.0), likelihoods.Softmax()), X, y, "laplace")
    >>> solution.predict_y([[-1.8]]).probabilities.round(2).tolist()
    [[0.68, 0.17, 0.15]]
    """

    name = "softmax"
    rules = (FINE._replace(first=1),)

    def log_prob(self, datum: Datum, f: Float[Array, " classes"]) -> Scalar:
        """log p(y | f) of one class, f being the values of all functions."""
        return log_softmax(f)[jnp.asarray(datum.y, dtype=int)]

    def log_predictive(self, mean: Array, covariance: Array, w: Array) -> Float[Array, " classes"]:
        return log_mean_softmax(mean, covariance, w)


class SoftmaxFactor(Likelihood):
    """exp(y h − exp h) of h = f_c + v, y being 1 for the datum's class and 0 for the others. With a flat prior of v the
    integral of a datum's C factors over v is softmax (Baker 1994); the constant of that prior, and what every Gaussian
    of v loses whatever f is, are put right here.
    """

    name = "softmax"
    support = "0 or 1"
    log_concave = True
    smooth = True
    projectable = False

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return datum.y * (f + CONSTANT) - jnp.exp(f)

    def landmarks(self, datum: Datum) -> Landmarks:
        y = jnp.maximum(datum.y, 0.5)  # for y = 0: where it falls off
        return landmarks((jnp.log(y), 1.0 / jnp.sqrt(y)))

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        rate = jnp.exp(marginal.mean + 0.5 * marginal.variance)
        return self.log_prob(datum, marginal.mean) + jnp.exp(marginal.mean) - rate, datum.y - rate, -0.5 * rate

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """Laplace's site at the mode; half a count stands in for none."""
        y = jnp.maximum(datum.y, 0.5)
        return y * jnp.log(y), y

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return (y == 0) | (y == 1)
