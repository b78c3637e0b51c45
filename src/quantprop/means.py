"""Prior means with numbers of their own. A plain number, a Parameter or any function of X will do as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from quantprop.runtime.display import expression, expression_html

ANY = (-float("inf"), float("inf"))


class Linear(eqx.Module):
    """intercept + X · coefficients: fixed effects, learned together with everything else; of some `columns` of X
    alone, where these are given.

    >>> import numpy as np
    >>> from quantprop import means
    >>> np.asarray(means.Linear(np.array([2.0, 0.0]), 1.0)(np.array([[1.0, 5.0]]))).tolist()
    [3.0]
    """

    coefficients: Any
    intercept: Any = 0.0
    columns: tuple[int, ...] | None = eqx.field(default=None, static=True)

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"coefficients": ANY, "intercept": ANY}

    def __repr__(self) -> str:
        return expression(self)

    def _repr_html_(self) -> str:
        return expression_html(self)

    def __call__(self, x: Any) -> Any:
        return self.intercept + self.of(x) @ jnp.asarray(self.coefficients)

    def of(self, x: Any) -> Any:
        """The columns of X that it sees."""
        return x if self.columns is None else x[:, list(self.columns)]
