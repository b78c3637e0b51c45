"""Prior means with numbers of their own. A plain number, a Parameter or any function of X will do as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp

from quantprop.core.records import Record, field

ANY = (-float("inf"), float("inf"))


class Linear(Record):
    """intercept + X · coefficients: fixed effects, learned together with the other parameters.

    Predictions treat them as known. `kernels.Linear` and `kernels.Constant` with large variances are integrated out
    instead.

    Args:
        coefficients: One value per column of X; learned.
        intercept: Mean at X = 0; learned.
        columns: Positions of the columns to use; all by default.

    >>> import numpy as np
    >>> from quantprop import means
    >>> np.asarray(means.Linear(np.array([2.0, 0.0]), 1.0)(np.array([[1.0, 5.0]]))).tolist()
    [3.0]
    """

    coefficients: Any
    intercept: Any = 0.0
    columns: tuple[int, ...] | None = field(default=None, static=True)

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"coefficients": ANY, "intercept": ANY}

    def __call__(self, x: Any) -> Any:
        return self.intercept + self.of(x) @ jnp.asarray(self.coefficients)

    def of(self, x: Any) -> Any:
        """The columns of X that it sees."""
        return x if self.columns is None else x[:, list(self.columns)]


class PerClass(Record):
    """One prior mean per class.

    With `kernels.PerClass`, whose rows hold the weights of the classes, it returns Σ_c w_c m_c(x).

    Args:
        means: One mean per class: a number, a Parameter (learned) or a function of X such as `Linear`.

    >>> from quantprop import Parameter, means
    >>> len(means.PerClass((0.0, Parameter(1.0), 0.5)).means)
    3
    """

    means: tuple[Any, ...] = field(converter=tuple)

    def __call__(self, rows: Any) -> Any:
        classes = len(self.means)
        x, weights = rows[:, : -classes - 1], rows[:, -classes - 1 : -1]
        each = [mean(x) if callable(mean) else mean for mean in self.means]
        return sum((weights[:, c] * mean for c, mean in enumerate(each)), jnp.zeros(len(rows)))


class OfValues(Record):
    """The mean of rows of `kernels.Derivatives`: a number for values of f, 0 for derivatives.

    Args:
        mean: Mean of f: a number, or a Parameter (learned).

    >>> import numpy as np
    >>> from quantprop import kernels, means
    >>> means.OfValues(2.0)(kernels.Derivatives.rows([[5.0]], column=0)).tolist()
    [0.0]
    """

    mean: Any = 0.0

    def __call__(self, rows: Any) -> Any:
        return jnp.where(rows[:, -1] == 0, self.mean, 0.0)
