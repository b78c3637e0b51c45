"""Numbers that may be learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np


class Parameter(eqx.Module):
    """A number (or vector) of a kernel, likelihood or mean that learning may change.

    `bounds` are in natural units, `prior` is a function of the value that returns a log density, and a `fixed`
    parameter keeps its value. A plain number is a Parameter with the owner's default bounds.

    >>> from quantprop import Parameter, kernels
    >>> kernels.SquaredExponential(variance=Parameter(2.0, bounds=(0.1, 10.0)), lengthscale=1.0).variance.value
    2.0
    """

    value: Any
    bounds: tuple[float, float] | None = eqx.field(default=None, static=True)
    prior: Callable | None = eqx.field(default=None, static=True)
    fixed: bool = eqx.field(default=False, static=True)

    def __check_init__(self) -> None:
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"Parameter: bounds must be (lower, upper) with lower < upper; got {self.bounds}")


def is_parameter(node: Any) -> bool:
    return isinstance(node, Parameter)


def values(tree: Any) -> Any:
    """The tree with every Parameter replaced by its value and every number by a float64 array."""
    plain = jax.tree.map(lambda node: node.value if is_parameter(node) else node, tree, is_leaf=is_parameter)
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), plain)
