"""Where learning starts for a kernel in the language of terms: from the size of y and the distances of each column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.kernels import Columns, Constant, Kernel, Linear, Sum, Terms
from quantprop.kernels.grammar import parsed
from quantprop.kernels.terms import Place, Start, summed, terms_of
from quantprop.learning.starts import typical_distance, variance_bounds
from quantprop.parameters import LogNormal, Parameter
from quantprop.runtime.jobs import sampled

WIDE = 100.0  # variance of an effect of which nothing is known, in units of that of y (or of 1, where f has no unit)
FLAT = ("linear", "constant")  # such effects
REACH = 1e3  # lengthscales at most, and at least, so many times where they start


@dataclass(frozen=True)
class FromData(Start):
    """Starts from rows x, and from the variance that the terms have to explain together."""

    x: Float[np.ndarray, "n d"] = field(repr=False)
    weights: Float[np.ndarray, " n"] | None = field(repr=False)
    each: float  # of a term
    whole: float
    prior: LogNormal | None

    def variance(self, place: Place) -> Any:
        unit = self._unit(place)
        if place.kind in FLAT and not place.in_product:
            return Parameter(WIDE * self.whole / unit, fixed=True)
        start = self.each / unit
        prior = self.prior and LogNormal(self.prior.median / unit, self.prior.deviation)
        return Parameter(start, bounds=variance_bounds(start), prior=prior)

    def _unit(self, place: Place) -> float:
        """The variance between rows that a linear term of variance 1 gives to f."""
        if place.kind != "linear":
            return 1.0
        spread = float(np.sum(moments(self.x[:, np.array(place.columns)], self.weights)[1]))
        return spread if spread > 0 else 1.0

    def lengthscale(self, place: Place, ard: bool) -> Any:
        columns = [[column] for column in place.columns] if ard else [list(place.columns)]
        lengths = np.array([typical_distance(self.x[:, np.array(group)]) for group in columns])
        ends = lengths / REACH, lengths * REACH
        if not ard:
            return Parameter(float(lengths[0]), bounds=(float(ends[0][0]), float(ends[1][0])))
        return Parameter(lengths, bounds=(tuple(ends[0].tolist()), tuple(ends[1].tolist())))


def moments(
    x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"] | None
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Mean and variance of each column; a row of weight 2 counts as two."""
    rows, counts = sampled(x), sampled(np.ones(len(x)) if weights is None else weights)
    centre = np.average(rows, axis=0, weights=counts)
    return centre, np.average((rows - centre) ** 2, axis=0, weights=counts)


def unknown_mean(
    kind: str, x: Float[np.ndarray, "n d"], names: tuple[str, ...], default: Any
) -> tuple[Kernel | None, Float[np.ndarray, " d"]]:
    """A prior mean that is "constant" or "linear" and not known, as terms with wide priors; None where it is "zero".
    And where slopes are 0: at the mean of x.
    """
    level, (centre, spread) = Constant(Parameter(WIDE * default.variance, fixed=True)), moments(x, default.weights)
    if kind == "linear":
        variance = Parameter(WIDE * default.variance / np.where(spread > 0, spread, 1.0), fixed=True)
        return Sum(Columns(Linear(variance, centre), tuple(range(x.shape[1])), names), level), centre
    return level if kind == "constant" else None, centre


def with_white(kernel: Terms | str | None) -> bool:
    """Whether terms, if it is not a name, hold the noise of y themselves."""
    text = kernel.text if isinstance(kernel, Terms) else kernel or ""
    return "(" in text and any(call.kind == "white" for call in terms_of(parsed(text)))


def started(terms: Terms, x: Float[np.ndarray, "n d"], names: tuple[str, ...], default: Any) -> Kernel:
    """The kernel of some terms; `default` says how much they have to explain."""
    features, called = x.shape[1], names or terms.names
    for call in terms_of(terms.tree):
        for named in call.columns:
            if not called and not (isinstance(named.column, int) and named.column < features):
                raise ValueError(f"kernel: column {named.column!r} is none of the {features} columns of X, which has "
                                 "no names: give positions from 0, or a frame")  # fmt: skip
    learned = [part for part in summed(terms.tree) if not (len(terms_of(part)) == 1 and terms_of(part)[0].kind in FLAT)]
    start = FromData(x, default.weights, default.variance / max(len(learned), 1), default.variance, default.prior)
    return terms.kernel(start, called)
