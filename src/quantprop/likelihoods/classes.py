"""Three or more classes, with a latent function for each: multinomial probit, and softmax with its scalar factors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax
from jax.scipy.special import log_ndtr, logsumexp
from jaxtyping import Array, Float

from quantprop.core.gaussian import LOG_2PI
from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Normal, Scalar, landmarks
from quantprop.numerics.largest import (
    COARSE,
    FINE,
    MIDDLE,
    SMALL,
    TINY,
    Lattices,
    Matrices,
    OverLattices,
    Vectors,
    log_largest,
    log_mean_softmax,
)

TRAPEZOIDAL_NODES = 256  # for analytic integrands the error falls faster than any power of the step
MAX_NOISE = 9.0  # standard deviations of u


class ClassLikelihood(Likelihood):
    """Base of the likelihoods of y = 0, 1, ..., classes − 1 with a latent function for each class. The number of
    classes is taken from y unless it is given, or the model's kernel is `kernels.PerClass`.
    """

    classes: int | None = field(default=None, static=True)

    observes = "classes"
    support = "integers 0, 1, ..., classes − 1"
    log_concave = True
    lattice = (0.0, 1.0)
    rules = (TINY, SMALL, MIDDLE, COARSE, FINE)  # of probabilities, as far as needed

    def __check_init__(self) -> None:
        if self.classes is not None and (type(self.classes) is not int or self.classes < 2):
            name = type(self).__name__
            raise ValueError(f"{name}: classes must be an integer, 2 or more; got {self.classes!r}")

    def log_predictive(self, mean: Vectors, covariance: Matrices, lattices: Lattices) -> OverLattices:
        """log P(y) of all classes at k inputs, where f ~ N(mean, covariance), over the points of each lattice."""
        raise NotImplementedError

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """Inference is that of its factors, which `infer`, `fit` and `fit_many` make of it."""
        raise TypeError(f"{type(self).__name__} has one latent function per class: use infer, fit, fit_many or "
                        "GaussianProcessClassifier(multi_class='joint')")  # fmt: skip

    def in_support(self, y: np.ndarray, trials: Any) -> np.ndarray:
        most = np.inf if self.classes is None else self.classes - 1
        return (y >= 0) & (y <= most) & (y == np.floor(y))


class MultinomialProbit(ClassLikelihood):
    """y is the class whose latent function, with standard normal noise added to each of them, is the largest:
    p(y | f) = E_u Π_{j ≠ y} Φ(u + f_y − f_j), u ~ N(0, 1), for y = 0, 1, ..., classes − 1.

    Two classes are the binary probit model of (f_1 − f_0)/√2, in every method.

    Args:
        classes: Number of classes; by default taken from y or the kernel.

    >>> import numpy as np
    >>> from quantprop import Model, infer, kernels, likelihoods
    >>> X, y = np.array([[-2.0], [-1.5], [0.0], [0.3], [2.0], [2.2]]), np.array([0, 0, 1, 1, 2, 2])
    >>> solution = infer(Model(kernels.SquaredExponential(4.0), likelihoods.MultinomialProbit()), X, y, "ep")
    >>> solution.predict_y([[-1.8]]).probabilities.round(2).tolist()
    [[0.81, 0.1, 0.09]]
    """

    name = "multinomial-probit"

    def log_prob(self, datum: Datum, f: Float[Array, " classes"]) -> Scalar:
        """log p(y | f) of one class, f being the values of all functions: an average over u."""
        y = jnp.asarray(datum.y, dtype=int)
        apart = f[y] - f
        top = MAX_NOISE + jnp.maximum(-jnp.min(apart), 0.0)
        u = jnp.linspace(-MAX_NOISE, top, TRAPEZOIDAL_NODES)
        each = jnp.where(jnp.arange(len(f)) == y, 0.0, log_ndtr(u[:, None] + apart))
        total = logsumexp(jnp.sum(each, axis=1) - 0.5 * u**2)
        return total + jnp.log((top + MAX_NOISE) / (TRAPEZOIDAL_NODES - 1)) - 0.5 * LOG_2PI

    def log_predictive(self, mean: Vectors, covariance: Matrices, lattices: Lattices) -> OverLattices:
        """The noise of each class is integrated out with the functions."""
        return log_largest(mean, covariance + np.eye(mean.shape[1]), lattices)


SHIFT_VARIANCE = 1e12  # prior variance of v; log p differs from a flat prior's by v²/SHIFT_VARIANCE
GAUSSIAN_LOSS = 1.0 - 0.5 * LOG_2PI  # log ∫ eᵛ exp(−eᵛ) dv = 0 minus its Gaussian approximation, by mode or as a bound
CONSTANT = 0.5 * (LOG_2PI + np.log(SHIFT_VARIANCE)) + GAUSSIAN_LOSS


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
    rules = (COARSE, FINE._replace(first=1))

    def log_prob(self, datum: Datum, f: Float[Array, " classes"]) -> Scalar:
        return log_softmax(f)[jnp.asarray(datum.y, dtype=int)]

    def log_predictive(self, mean: Vectors, covariance: Matrices, lattices: Lattices) -> OverLattices:
        return log_mean_softmax(mean, covariance, lattices)


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
