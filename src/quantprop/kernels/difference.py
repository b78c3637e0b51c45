"""The difference of a process at two points: what a comparison sees of a utility."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels.base import Kernel, Matrix, Others, Pairs, Point, Points, prefixed, without_prefix

OWN = "differences: "  # before the names of pieces of pairs, which are of both points of every row


class Difference(Kernel):
    """Covariance of f(x) − f(x') at rows [x, x'], the two points side by side.

    With a likelihood for two classes, y = 1 if x won, this is a model of preferences: of two items that were compared,
    the one with the greater utility f tends to win.

    Args:
        kernel: Kernel of f.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> rows = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    >>> np.asarray(kernels.Difference(kernels.Linear()).gram(rows)).tolist()
    [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """

    kernel: Kernel

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        (a, b), (c, d), k = halves(x), halves(z), self.kernel
        return k(a, c) - k(a, d) - k(b, c) + k(b, d)

    def cross(self, x: Points, z: Others) -> Matrix:
        (a, b), (c, d), cross = halves(x), halves(z), self.kernel.cross
        return cross(a, c) - cross(a, d) - cross(b, c) + cross(b, d)

    def pairs(self, x: Points) -> Pairs:
        return prefixed(OWN, self.kernel.pairs(jnp.concatenate(halves(x))))

    def gram_of(self, pairs: Pairs) -> Matrix:
        both = self.kernel.gram_of(without_prefix(OWN, pairs))
        n = len(both) // 2
        # Not four quarters at once: XLA (of jaxlib 0.10.2) miscompiles their gradient on CPUs.
        rows = both[:n] - both[n:]
        return rows[:, :n] - rows[:, n:]

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        a, b = halves(x)
        return self.kernel.diagonal(a) + self.kernel.diagonal(b) - 2.0 * jax.vmap(self.kernel)(a, b)

    def noise(self, x: Points) -> Float[Array, " n"]:
        a, b = halves(x)
        return self.kernel.noise(a) + self.kernel.noise(b)

    def by_column(self, count: int) -> Kernel:
        return super().by_column(count // 2)


class Item(Kernel):
    """What ties f at rows [z] to its differences at rows [x, x']; between rows [z] alone it is the kernel of f."""

    kernel: Kernel

    def cross(self, x: Points, z: Others) -> Matrix:
        a, b = halves(x)
        return self.kernel.cross(a, z) - self.kernel.cross(b, z)

    def gram(self, x: Points) -> Matrix:
        return self.kernel.gram(x)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.diagonal(x)


def halves(x: Any) -> tuple[Any, Any]:
    """x and x' of rows [x, x'], or of one row."""
    columns = jnp.shape(x)[-1]
    if columns % 2:
        raise ValueError(f"Difference sees rows [x, x'], with as many columns for x' as for x; got {columns} columns")
    return x[..., : columns // 2], x[..., columns // 2 :]
