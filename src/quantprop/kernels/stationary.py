"""Kernels of the distance between two points."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.parameters import is_parameter, vector
from quantprop.core.records import changed, field
from quantprop.kernels.base import LENGTHSCALE, VARIANCE, Kernel, Matrix, Others, Pairs, Point, Points, bounded
from quantprop.kernels.distances import root, squared_distances, squares

_SQRT3, _SQRT5 = 3.0**0.5, 5.0**0.5


class Stationary(Kernel):
    """variance · profile(r²), r² = |x − z|²/lengthscale²; one lengthscale, or one per feature (ARD)."""

    variance: Any = 1.0
    lengthscale: Any = field(default=1.0, converter=vector)

    bounds = bounded(variance=VARIANCE, lengthscale=LENGTHSCALE)

    def profile(self, square: Any) -> Any:
        """The correlation at squared distance `square`."""
        raise NotImplementedError

    def _checked_lengthscale(self, features: int) -> Array:
        lengthscale = jnp.asarray(self.lengthscale)
        if lengthscale.ndim > 1 or lengthscale.size not in (1, features):
            raise ValueError(
                f"{type(self).__name__}: lengthscale must be one number or one per column of X ({features}); "
                f"got shape {lengthscale.shape}"
            )
        return lengthscale

    def by_column(self, count: int) -> Kernel:
        """The one lengthscale, repeated."""
        given = self.lengthscale
        number = np.asarray(given.value if is_parameter(given) else given, dtype=np.float64)
        if number.size not in (1, count):
            raise ValueError(f"{type(self).__name__}: lengthscale must be one number or one per column ({count}); "
                             f"got {number.size}")  # fmt: skip
        each = np.broadcast_to(number.reshape(-1), (count,)).copy()
        kept = changed(given, value=each) if is_parameter(given) else each
        return changed(self, lengthscale=kept)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        square = jnp.sum(((x - z) / self._checked_lengthscale(len(x))) ** 2)
        return self.variance * self.profile(square)

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * self.profile(squared_distances(x, z, self._checked_lengthscale(x.shape[1])))

    def pairs(self, x: Points) -> Pairs:
        """Distances that one lengthscale only divides; with one per feature they are new at every step."""
        return squares(x) if self._checked_lengthscale(x.shape[1]).size == 1 else {"x": x}

    def gram_of(self, pairs: Pairs) -> Matrix:
        lengthscale = jnp.asarray(self.lengthscale)
        if lengthscale.size > 1:
            return self.cross(pairs["x"], pairs["x"])
        return self.variance * self.profile(pairs["squares"] / jnp.reshape(lengthscale, ()) ** 2)


class SquaredExponential(Stationary):
    """variance · exp(−r²/2): smooth functions.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> x, z = np.zeros(1), np.ones(1)
    >>> round(float(kernels.SquaredExponential(2.0, 0.5)(x, z)), 4)
    0.2707
    """

    def profile(self, square: Any) -> Any:
        return jnp.exp(-0.5 * square)


class Matern12(Stationary):
    """variance · exp(−r): continuous, rough functions.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> x, z = np.zeros(1), np.ones(1)
    >>> round(float(kernels.Matern12(2.0, 0.5)(x, z)), 4)
    0.2707
    """

    def profile(self, square: Any) -> Any:
        return jnp.exp(-root(square))


class Matern32(Stationary):
    """variance · (1 + √3 r) exp(−√3 r): functions with one derivative.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> x, z = np.zeros(1), np.ones(1)
    >>> round(float(kernels.Matern32(2.0, 0.5)(x, z)), 4)
    0.2795
    """

    def profile(self, square: Any) -> Any:
        r = _SQRT3 * root(square)
        return (1.0 + r) * jnp.exp(-r)


class Matern52(Stationary):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r): functions with two derivatives.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> x, z = np.zeros(1), np.ones(1)
    >>> round(float(kernels.Matern52(2.0, 0.5)(x, z)), 4)
    0.2773
    """

    def profile(self, square: Any) -> Any:
        r = _SQRT5 * root(square)
        return (1.0 + r + r * r / 3.0) * jnp.exp(-r)


class RationalQuadratic(Stationary):
    """variance · (1 + r²/(2 mixture))^(−mixture): a mixture of squared exponentials of many lengthscales.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.
        mixture: Smaller values mix more lengthscales; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> x, z = np.zeros(1), np.ones(1)
    >>> round(float(kernels.RationalQuadratic(2.0, 0.5, 1.0)(x, z)), 4)
    0.6667
    """

    mixture: Any = 1.0

    bounds = bounded(**Stationary.bounds, mixture=(1e-5, 1e5))

    def profile(self, square: Any) -> Any:
        return jnp.exp(-self.mixture * jnp.log1p(0.5 * square / self.mixture))


class Periodic(Kernel):
    """variance · exp(−2 sin²(π |x − z|/period)/lengthscale²): functions that repeat exactly.

    Args:
        variance: Prior variance; learned.
        lengthscale: Lengthscale on the circle; learned.
        period: Period; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> x, z = np.zeros(1), np.ones(1)
    >>> round(float(kernels.Periodic(2.0, 1.0, 4.0)(x, z)), 4)
    0.7358
    """

    variance: Any = 1.0
    lengthscale: Any = 1.0
    period: Any = 1.0

    bounds = bounded(variance=VARIANCE, lengthscale=LENGTHSCALE, period=LENGTHSCALE)

    def _profile(self, square: Any) -> Any:
        return jnp.exp(-2.0 * (jnp.sin(jnp.pi * root(square)) / self.lengthscale) ** 2)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * self._profile(jnp.sum(((x - z) / self.period) ** 2))

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * self._profile(squared_distances(x, z, jnp.asarray(self.period)))

    def pairs(self, x: Points) -> Pairs:
        return squares(x)

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.variance * self._profile(pairs["squares"] / self.period**2)
