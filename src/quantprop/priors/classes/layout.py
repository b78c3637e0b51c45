"""Which row is which: the rows of a datum follow each other, one for each class, or one for each but its own."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from quantprop.core.records import Record, field


class Layout(Record):
    """Rows of data one after the other, each datum's in the order of their classes. The last datum may have fewer rows
    than the others: padding need not be a multiple.
    """

    sign: ClassVar[float]  # of the functions: those of the model are sign · f

    labels: Float[Array, " m"]
    classes: int = field(static=True)
    n: int = field(static=True)  # rows

    @staticmethod
    def each(classes: int) -> int:
        """Rows of a datum."""
        raise NotImplementedError

    @property
    def omitted(self) -> Float[Array, " m"]:
        """The class of every datum that has no row; the number of classes where all have one."""
        raise NotImplementedError

    def alone(self, own: Array) -> Array:
        """The precision of v where the functions are left out."""
        raise NotImplementedError

    @property
    def is_omitted(self) -> Bool[Array, "classes m"]:
        """Which class of every datum has no row."""
        return jnp.arange(self.classes)[:, None] == self.omitted

    def classes_of_rows(self) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
        """The class that a row is about, and its datum."""
        datum, slot = jnp.divmod(jnp.arange(self.n), self.each(self.classes))
        return slot + (slot >= self.omitted[datum]), datum

    def rows(self, grid: Float[Array, "classes m"]) -> Float[Array, " n"]:
        """The numbers of the rows."""
        return grid[self.classes_of_rows()]

    def grid(self, rows: Float[Array, " n"], omitted: Array | float) -> Float[Array, "classes m"]:
        """Numbers of rows by class and datum; `omitted` for classes without a row, 0 for data without."""
        each, c = self.each(self.classes), jnp.arange(self.classes)[:, None]
        table = jnp.pad(rows, (0, len(self.labels) * each - self.n)).reshape(-1, each).T
        slot = jnp.clip(c - (c > self.omitted), 0, each - 1)
        return self.set_omitted(jnp.take_along_axis(table, slot, axis=0), omitted)

    def set_omitted(self, grid: Float[Array, "classes m"], to: Array | float) -> Float[Array, "classes m"]:
        """The grid with other numbers for classes without a row."""
        return jnp.where(self.is_omitted, to, grid)

    def of_omitted(self, grid: Float[Array, "classes m"]) -> Float[Array, " m"]:
        """The numbers of the classes without a row."""
        return jnp.sum(jnp.where(self.is_omitted, grid, 0.0), axis=0)

    def sums(self, grid: Float[Array, "classes m"]) -> Float[Array, " n"]:
        """For every row the sum of its functions' numbers."""
        return self.rows(grid + self.of_omitted(grid))

    def own_share(self, s: Float[Array, "classes m"], total: Array, own: Array) -> Float[Array, " m"]:
        """The share in the precision of v that is not due to rows."""
        return (self.of_omitted(s) + self.alone(own)) / total

    def balanced(self, alpha: Float[Array, " n"]) -> Float[Array, "classes m"]:
        """α by class; that of an omitted class is minus the sum of the others, by the integral over v."""
        grid = self.grid(alpha, 0.0)
        return self.set_omitted(grid, -jnp.sum(grid, axis=0))

    def combinations(self) -> tuple[Float[Array, "n classes"], Int[Array, " n"]]:
        """The weights of the functions in every row, and its datum."""
        c, datum = self.classes_of_rows()
        own = jnp.where(jnp.arange(self.classes) == c[:, None], self.sign, 0.0)
        return jnp.where(self.is_omitted.T[datum], 1.0, 0.0) - own, datum


class Differences(Layout):
    """v − f_j with v = u + f_y: a row for each class j other than the datum's own, y. u's precision is tied to f_y."""

    sign: ClassVar[float] = 1.0

    @staticmethod
    def each(classes: int) -> int:
        return classes - 1

    @property
    def omitted(self) -> Float[Array, " m"]:
        return self.labels

    def alone(self, own: Array) -> Array:
        return jnp.zeros_like(own)


class Sums(Layout):
    """v − f_c with v ~ N(0, ω): a row for each class, the functions being minus those of the model."""

    sign: ClassVar[float] = -1.0

    @staticmethod
    def each(classes: int) -> int:
        return classes

    @property
    def omitted(self) -> Float[Array, " m"]:
        return jnp.full_like(self.labels, self.classes)

    def alone(self, own: Array) -> Array:
        return 1.0 / own


LAYOUTS: dict[str, type[Layout]] = {"differences": Differences, "sums": Sums}


def without_datum(
    mean: Float[Array, "classes m"],
    covariance: Float[Array, "m classes classes"],
    d: Float[Array, "classes m"],
    nu: Float[Array, "classes m"],
    alone: Array,
) -> tuple[Float[Array, "m classes"], Float[Array, "m classes classes"]]:
    """Means and covariances of each datum's functions without its own sites (ν, d) on v − f, v having the precision
    `alone` besides.

    With v integrated out these are a Gaussian in f of precision P = diag d − d dᵀ/s, s = 1ᵀd + alone, and linear term
    d 1ᵀν/s − ν; the posterior N(μ, V) without it has the covariance (I − V P)⁻¹ V.
    """

    def one(mu: Array, v: Array, d: Array, nu: Array) -> tuple[Array, Array]:
        total = jnp.sum(d) + alone
        precision = jnp.diag(d) - d[:, None] * d / total
        pull = d * (jnp.sum(nu) / total) - nu
        apart = jnp.eye(len(d)) - v @ precision
        rest = jnp.linalg.solve(apart, jnp.concatenate([v, (mu - v @ pull)[:, None]], axis=1))
        return rest[:, -1], rest[:, :-1]

    return jax.vmap(one)(mean.T, covariance, d.T, nu.T)
