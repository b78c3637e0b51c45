"""Three or more classes: the multinomial probit, whose datum sees a latent function for each of them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp
from jaxtyping import Array, Float

from quantprop.core.gaussian import LOG_2PI
from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.numerics.largest import COARSE, FINE, MIDDLE, SMALL, log_probabilities

NODES = 256  # of a trapezoidal rule, whose error vanishes faster than any power of its step for analytic integrands
FARTHEST = 9.0  # standard deviations of u


class ClassLikelihood(Likelihood):
    """Base of the likelihoods of y = 0, 1, ..., classes − 1 with a latent function for each class. Their number is that
    of `kernels.PerClass`, if that is the model's kernel, or as given; else what y shows.
    """

    classes: int | None = field(default=None, static=True)

    observes = "classes"
    support = "whole numbers 0, 1, ..., classes − 1"
    log_concave = True
    lattice = (0.0, 1.0)
    rules = (SMALL, MIDDLE, COARSE, FINE)  # of probabilities, as far as needed

    def __check_init__(self) -> None:
        if self.classes is not None and (type(self.classes) is not int or self.classes < 2):
            name = type(self).__name__
            raise ValueError(f"{name}: classes must be a whole number, 2 or more; got {self.classes!r}")

    def log_predictive(self, mean: Array, covariance: Array, w: Array) -> Float[Array, " classes"]:
        """log P(y) of all classes when f ~ N(mean, covariance), over points w of a lattice."""
        raise NotImplementedError

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """Inference is that of its factors, which `infer`, `fit` and `fit_many` make of it."""
        raise TypeError(f"{type(self).__name__} has a latent function for each class: infer, fit and fit_many take it, "
                        "and GaussianProcessClassifier(multi_class='joint')")  # fmt: skip

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
    [[0.74, 0.16, 0.1]]
    """

    name = "multinomial-probit"

    def log_prob(self, datum: Datum, f: Float[Array, " classes"]) -> Scalar:
        """log p(y | f) of one class, f being the values of all functions: an average over u."""
        y = jnp.asarray(datum.y, dtype=int)
        apart = f[y] - f
        top = FARTHEST + jnp.maximum(-jnp.min(apart), 0.0)
        u = jnp.linspace(-FARTHEST, top, NODES)
        each = jnp.where(jnp.arange(len(f)) == y, 0.0, log_ndtr(u[:, None] + apart))
        total = logsumexp(jnp.sum(each, axis=1) - 0.5 * u**2)
        return total + jnp.log((top + FARTHEST) / (NODES - 1)) - 0.5 * LOG_2PI

    def log_predictive(self, mean: Array, covariance: Array, w: Array) -> Float[Array, " classes"]:
        """The noise of each class is integrated out with the functions."""
        return log_probabilities(mean, covariance + jnp.eye(len(mean)), w)
