"""One observation, and what is known of it times a Gaussian: the records that likelihoods and methods exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from quantprop.gaussian import Normal, Vector
from quantprop.numerics.quadrature import Landmarks
from quantprop.records import Record

Scalar = Any  # one number: a Python float, or a JAX array of shape ()


class Datum(NamedTuple):
    """One observation (or, stacked, all of them): y, and what scales it."""

    y: Vector
    exposure: Vector
    trials: Vector


class Moments(Record):
    """A Gaussian approximation to a tilted density, relative to its cavity N(m, v), so that nothing cancels.

    The approximation is N(m + shift, ratio · v); shrink is 1 − ratio, computed on its own.
    """

    log_normalizer: Scalar
    shift: Scalar
    ratio: Scalar
    shrink: Scalar


class Split(NamedTuple):
    """p(y | f) N(f | cavity) as exp(constant + rest(f)) N(f | core)."""

    rest: Callable[[Scalar], Scalar]
    core: Normal
    constant: Scalar


@runtime_checkable
class Factor(Protocol):
    """What of a likelihood decides its product with a Gaussian; see `Likelihood`."""

    log_concave: ClassVar[bool]
    continuous: ClassVar[bool]

    @property
    def takes_gaussian_out(self) -> bool: ...

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar: ...

    def landmarks(self, datum: Datum) -> Landmarks: ...

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split: ...
