"""Coordinates in which L-BFGS-B searches: θ in its units, and lengthscales of columns by their inverses where large.

As a column becomes irrelevant the objective approaches a limit like 1/ℓ². In log ℓ every quasi-Newton step of such a
tail is at most about ½ long, and a search takes most of its evaluations for columns that do not matter. In
−log(1/ℓ + 1/L), with L far beyond the column's spread, it is a parabola there, while short lengthscales keep their
logarithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import is_parameter, packed, values
from quantprop.core.records import changed
from quantprop.kernels import Kernel, Stationary
from quantprop.kernels.base import Transformed
from quantprop.runtime.jobs import sampled
from quantprop.runtime.precision import float64

SPREADS = 20.0  # standard deviations of a column in L


class Coordinates(NamedTuple):
    """A strictly increasing function of every entry of θ."""

    unit: Float[np.ndarray, " theta"]
    inverse: Float[np.ndarray, " theta"]  # 1/L; 0 for entries that are only divided by their units

    def of(self, theta: Float[np.ndarray, " theta"]) -> Float[np.ndarray, " theta"]:
        """The coordinates of θ."""
        curved = self.inverse > 0
        return np.where(curved, -np.log(np.exp(-np.where(curved, theta, 0.0)) + self.inverse), theta / self.unit)

    def theta(self, u: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]) -> Any:
        """θ at these coordinates, inside its bounds."""
        curved = self.inverse > 0
        lower, upper = bounds.T
        rest = np.exp(-np.where(curved, u, 0.0)) - self.inverse  # 1/ℓ, which rounding may make negative
        log = -np.log(np.maximum(rest, np.exp(-np.where(curved, upper, 0.0))))
        return np.clip(np.where(curved, log, self.unit * u), lower, upper)

    def stretch(self, theta: Float[np.ndarray, " theta"]) -> Float[np.ndarray, " theta"]:
        """∂θ/∂u."""
        curved = self.inverse > 0
        return np.where(curved, 1.0 + self.inverse * np.exp(np.where(curved, theta, 0.0)), self.unit)


def coordinates(landscape: Any, unit: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]) -> Coordinates:
    """The coordinates of a search, by the spread of the columns that each kernel sees."""
    parts = landscape.parts
    limit = packed(parts._replace(kernel=_with_limits(parts.kernel, sampled(landscape.task.x))))
    curved = (limit != packed(parts)) & np.isfinite(limit) & np.isfinite(bounds).all(axis=1)
    return Coordinates(unit, np.where(curved, np.exp(-np.where(curved, limit, 0.0)), 0.0))


def _with_limits(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Kernel:
    """The kernel with L for each lengthscale of a column of x, the rows that it is called with."""
    if isinstance(kernel, Transformed):
        x = np.asarray(float64(values(kernel).of)(x))
    if kernel.inner_kernels:
        return kernel.rebuilt(lambda part: _with_limits(part, x))
    given, spread = getattr(kernel, "lengthscale", None), SPREADS * x.std(axis=0)
    if not (isinstance(kernel, Stationary) and is_parameter(given) and np.shape(given.value) == np.shape(spread)):
        return kernel
    return changed(kernel, lengthscale=changed(given, value=np.where(spread > 0, spread, np.inf)))
