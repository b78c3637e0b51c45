"""Prior means with numbers of their own. A plain number, a Parameter or any function of X will do as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp

from quantprop.core.records import Record, field

ANY = (-float("inf"), float("inf"))


class Linear(Record):
    """intercept + X · coefficients: fixed effects, learned together with everything else; of some `columns` of X
    alone, where these are given. Predictions take them as known; `kernels.Linear` and `kernels.Constant` with large
    variances are integrated over instead.

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
    """One mean for each class: numbers, Parameters (learned) or functions of X such as `Linear`.

    For the kernel `kernels.PerClass`, whose rows hold the weights of the classes: it returns Σ_c w_c m_c(x).
    """

    means: tuple[Any, ...] = field(converter=tuple)

    def __call__(self, rows: Any) -> Any:
        classes = len(self.means)
        x, weights = rows[:, : -classes - 1], rows[:, -classes - 1 : -1]
        each = [mean(x) if callable(mean) else mean for mean in self.means]
        return sum((weights[:, c] * mean for c, mean in enumerate(each)), jnp.zeros(len(rows)))
