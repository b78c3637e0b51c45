"""One observation, and what is known of it times a Gaussian: the records that likelihoods and methods exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from quantprop.core.gaussian import Normal, Vector
from quantprop.core.records import Record

Scalar = Any  # one number: a Python float, or a JAX array of shape ()
Factor = Any  # a Likelihood, which needs what is imported here


class Datum(NamedTuple):
    """One observation (or, stacked, all of them) with its exposure and trials.

    Args:
        y: The observation.
        exposure: Exposure; 1 by default.
        trials: Trials; 1 by default.

    >>> from quantprop.likelihoods import Datum
    >>> Datum(3.0, exposure=2.0, trials=1.0).exposure
    2.0
    """

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
