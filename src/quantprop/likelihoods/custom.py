"""A likelihood of the user's own, from one function of (y, f)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Scalar, landmarks
from quantprop.numerics.mixtures import ELEMENTS
from quantprop.runtime.display import Form
from quantprop.runtime.programs import program

_INTERVALS = ((-np.inf, np.inf), (0.0, np.inf), (0.0, 1.0))


class _Functions(NamedTuple):
    """The user's functions; hashable, so that equal likelihoods share compiled programs."""

    log_prob: Callable
    landmarks: Callable | None
    support: Callable | None
    mean: Callable | None
    variance: Callable | None
    cdf: Callable | None
    draw: Callable | None


_pairs = program(lambda likelihood, y, f: jax.vmap(likelihood.given.cdf)(y, f))


class Custom(Likelihood):
    """p(y | f) from a function of your own, written with jax.numpy for one y and one f.

    It must be defined for every real f and may be −inf. The functions mean, variance, cdf and draw allow predictions of
    y.

    Args:
        log_prob: log p(y | f), a function of one y and one f.
        landmarks: Function of y that returns pairs (location, scale) where p(y | ·) is narrow or rough; by default (0,
            1) and (y, 1).
        support: Function of an array of y that returns which entries are possible; by default all finite numbers.
        log_concave: True if log p(y | f) is concave in f.
        continuous: True if it has no jump in f.
        differentiable: True if it has second derivatives in f (for Laplace).
        integrable: True if its expectation under a Gaussian is finite (for VB).
        mean: E[y | f], a function of f.
        variance: Var[y | f], a function of f.
        cdf: P(Y ≤ y | f), a function of y and f.
        draw: Draws of y, a function of a NumPy generator and f.
        lattice: First value and step of a discrete y.
        interval: Range of a continuous y.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from quantprop import likelihoods, project
    >>> cauchy = likelihoods.Custom(lambda y, f: -jnp.log1p((y - f) ** 2) - jnp.log(jnp.pi))
    >>> round(float(project(cauchy, y=3.0, cavity=(0.0, 1.0)).mean), 6)
    0.714861
    """

    given: _Functions = field(static=True)
    log_concave: bool = field(static=True)
    continuous: bool = field(static=True)
    differentiable: bool = field(static=True)
    integrable: bool = field(static=True)
    lattice: tuple[float, float] | None = field(static=True)
    interval: tuple[float, float] = field(static=True)

    name = "custom"
    stored = False
    support = "values that its support function accepts (default: finite numbers)"

    def __init__(
        self,
        log_prob: Callable[[Any, Any], Any],
        landmarks: Callable[[Any], Sequence[tuple]] | None = None,
        support: Callable[[np.ndarray], np.ndarray] | None = None,
        *,
        log_concave: bool = False,
        continuous: bool = True,
        differentiable: bool = True,
        integrable: bool = True,
        mean: Callable | None = None,
        variance: Callable | None = None,
        cdf: Callable | None = None,
        draw: Callable | None = None,
        lattice: tuple[float, float] | None = None,
        interval: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:
        if not callable(log_prob):
            raise TypeError(f"Custom: log_prob must be a function of (y, f); got {log_prob!r}")
        if lattice is None and tuple(interval) not in _INTERVALS:
            allowed = ", ".join(map(str, _INTERVALS))
            raise ValueError(f"Custom: interval must be one of {allowed}; got {interval}")
        self.given = _Functions(log_prob, landmarks, support, mean, variance, cdf, draw)
        self.log_concave, self.continuous = log_concave, continuous
        self.differentiable, self.integrable = differentiable, integrable
        self.lattice, self.interval = lattice, (interval[0], interval[1])

    def _expression(self, form: Form) -> str:
        return f"Custom({getattr(self.given.log_prob, '__name__', self.given.log_prob)})"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.given.log_prob(datum.y, f)

    def landmarks(self, datum: Datum) -> Landmarks:
        if self.given.landmarks is not None:
            return landmarks(*self.given.landmarks(datum.y))
        return landmarks((jnp.zeros_like(datum.y), 1.0), (datum.y, 1.0))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return self._passed("mean", "f")(f)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._passed("variance", "f")(f)

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        """For a fixed number of pairs (y, f) at a time, so that one compiled program does."""
        self._passed("cdf", "y, f")
        y, at = (np.ravel(part) for part in np.broadcast_arrays(datum.y, f))
        size = -(-len(at) // ELEMENTS) * ELEMENTS
        padded = (np.resize(part, (size // ELEMENTS, ELEMENTS)) for part in (y, at))
        parts = [np.asarray(_pairs(self, *pair)) for pair in zip(*padded, strict=True)]
        return np.concatenate(parts)[: len(at)].reshape(np.shape(f))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return self._passed("draw", "rng, f")(rng, f)

    def _passed(self, name: str, arguments: str) -> Callable:
        function = getattr(self.given, name)
        if function is None:
            raise ValueError(
                f"this needs the {name} of y given f: pass {name}=, a function of ({arguments}), to Custom"
            )
        return function

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        possible = np.isfinite(y) if self.given.support is None else self.given.support(y)
        return np.broadcast_to(np.asarray(possible, dtype=bool), np.shape(y))
