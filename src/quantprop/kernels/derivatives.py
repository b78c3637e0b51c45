"""Rows of derivatives: the covariance of f and its first and second derivatives, by differentiating a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import field
from quantprop.kernels.base import POSITION, Columns, Kernel, Matrix, Others, Pairs, Point, Points, by_rows
from quantprop.kernels.structure import Seen, inside, is_measured

SHAPES = {"increasing": (1, 1.0), "decreasing": (1, -1.0), "convex": (2, 1.0), "concave": (2, -1.0)}  # order, sign

Functional = tuple[Point, Point, Float[Array, " orders"]]  # x, a direction, and the unit vector of an order


class Derivatives(Kernel):
    """Covariance of f, ∂f/∂x_j and ∂²f/∂x_j² at rows that end with a code for one of them, as `rows` writes it.

    With `likelihoods.ByOutput` values and derivatives have different likelihoods: gradients of a simulator are Gaussian
    observations, a probit observation of a derivative expresses that f increases there. White noise belongs to values
    alone.

    Args:
        kernel: Kernel of f.
        order: Highest derivative of the rows, 1 or 2.
        columns: Positions of the columns in which rows are differentiated; all by default.

    >>> import numpy as np
    >>> from quantprop import Model, infer, kernels, likelihoods
    >>> rows = kernels.Derivatives.rows
    >>> X = np.concatenate([rows([[0.0], [2.0]]), rows([[1.0]], column=0)])
    >>> model = Model(kernels.Derivatives(kernels.SquaredExponential(4.0)), likelihoods.Gaussian(0.01))
    >>> solution = infer(model, X, [0.0, 2.0, 1.0], "ep")
    >>> solution.predict(rows([[1.0]])).mean.round(2).tolist()
    [1.07]
    """

    kernel: Kernel
    order: int = field(default=1, static=True)
    columns: tuple[int, ...] | None = field(default=None, static=True)

    def __check_init__(self) -> None:
        if self.order not in (1, 2):
            raise ValueError(f"Derivatives: order must be 1 or 2; got {self.order!r}")
        if self.columns is not None and not (self.columns and all(map(POSITION.holds, self.columns))):
            raise ValueError(f"Derivatives: columns must be positions from 0, or None for all; got {self.columns!r}")
        if not is_measured(self.kernel):
            raise ValueError("Derivatives: the distributions of the kernel's columns are not set: pass "
                             "kernel.measured(X)")  # fmt: skip
        for part, seen in _parts(self.kernel):
            concerned = seen is None or self.columns is None or set(seen) & set(self.columns)
            if concerned and part.smoothness < self.order:
                raise ValueError(
                    f"Derivatives: functions of {type(part).__name__} have no {('first', 'second')[self.order - 1]} "
                    "derivative that rows could observe: use a smoother kernel, such as Matern52, or set columns= to "
                    "the other columns"
                )

    @staticmethod
    def rows(X: Any, column: int | None = None, order: int = 1) -> Float[np.ndarray, "n d+1"]:
        """Rows X with the code of f, or of its derivative of this order in one column.

        >>> from quantprop import kernels
        >>> kernels.Derivatives.rows([[5.0, 6.0]], column=1).tolist()
        [[5.0, 6.0, 2.0]]
        """
        x = np.asarray(X, dtype=np.float64)
        if column is not None and not (POSITION.holds(column) and column < x.shape[1]):
            raise ValueError(f"column must be a position of X, 0 to {x.shape[1] - 1}, or None for f; got {column!r}")
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2; got {order!r}")
        code = 0.0 if column is None else (column + 1.0) * (1.0 if order == 1 else -1.0)
        return np.column_stack([x, np.full(len(x), code)])

    def _functional(self, row: Point) -> Functional:
        """x, the direction of the derivative and the unit vector of its order; NaN for a code that no row may have."""
        x, code = row[:-1], row[-1]
        column = jnp.abs(code) - 1.0
        among = jnp.arange(len(x)) if self.columns is None else jnp.array(self.columns)
        order = jnp.where(code < 0, 2, jnp.where(code > 0, 1, 0))
        known = (code == 0) | (jnp.any(column == among) & (column < len(x)) & (order <= self.order))
        along = jnp.where(jnp.arange(len(x)) == column, 1.0, 0.0)
        return x, along, jnp.where(known, jnp.where(jnp.arange(self.order + 1) == order, 1.0, 0.0), jnp.nan)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self._of(self._functional(x), self._functional(z))

    def _of(self, left: Functional, right: Functional) -> Float[Array, ""]:
        (x, u, own), (z, v, other) = left, right
        return _combined(lambda s: _combined(lambda t: self.kernel(x + s * u, z + t * v), other), own)

    def cross(self, x: Points, z: Others) -> Matrix:
        return by_rows(self._of, *(jax.vmap(self._functional)(rows) for rows in (x, z)))

    def gram_of(self, pairs: Pairs) -> Matrix:
        return super().gram_of(pairs) + jnp.diag(self.noise(pairs["x"]))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return super().diagonal(x) + self.noise(x)

    def noise(self, x: Points) -> Float[Array, " n"]:
        return jnp.where(x[:, -1] == 0, self.kernel.noise(x[:, :-1]), 0.0)

    def by_column(self, count: int) -> Kernel:
        return super().by_column(count - 1)


def _combined(function: Callable[[Any], Array], weights: Float[Array, " orders"]) -> Array:
    """The weighted sum of a function and its derivatives at 0. Terms are added one by one, since compilers do not merge
    products of short vectors into what surrounds them.
    """
    each = _derivatives(function, len(weights) - 1)(jnp.zeros(()))
    return sum((weight * part for weight, part in zip(weights, each, strict=True)), jnp.zeros(()))


def _derivatives(function: Callable[[Any], Array], order: int) -> Callable[[Any], tuple[Array, ...]]:
    """The function and its derivatives up to an order, as functions of the same number."""
    if order == 0:
        return lambda s: (function(s),)
    lower = _derivatives(function, order - 1)

    def whole(s: Any) -> tuple[Array, ...]:
        values, slopes = jax.jvp(lower, (s,), (jnp.ones(()),))
        return *values, slopes[-1]

    return whole


def _parts(kernel: Kernel, seen: Seen = None) -> Iterator[tuple[Kernel, Seen]]:
    """All kernels inside of a kernel, itself included, with the columns each sees."""
    seen = inside(kernel, seen) if isinstance(kernel, Columns) else seen
    yield kernel, seen
    for part in kernel.inner_kernels.values():
        yield from _parts(part, seen)
