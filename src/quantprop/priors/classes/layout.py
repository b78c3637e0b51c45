"""Which row is which: the rows of a datum follow each other, one for each class, or one for each but its own."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from quantprop.records import Record, field


class Layout(Record):
    """Rows of data one after the other, each datum's in the order of their classes. The last datum may have fewer rows
    than the others: padding need not be a multiple.
    """

    labels: Float[Array, " m"]
    classes: int = field(static=True)
    n: int = field(static=True)  # rows

    def _table(self, rows: Float[Array, " n"], each: int) -> Float[Array, "each m"]:
        return jnp.pad(rows, (0, len(self.labels) * each - self.n)).reshape(-1, each).T

    def rows(self, grid: Float[Array, "classes m"]) -> Float[Array, " n"]:
        """The numbers of the rows."""
        return grid[self.classes_of_rows()]

    def classes_of_rows(self) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
        """The class that a row is about, and its datum."""
        raise NotImplementedError


class Differences(Layout):
    """v − f_j with v = u + f_y: a row for each class j other than the datum's own, y."""

    sign: ClassVar[float] = 1.0  # of the functions: those of the model are sign · f

    @staticmethod
    def each(classes: int) -> int:
        """Rows of a datum."""
        return classes - 1

    def alone(self, own: Array) -> Array:
        """The precision of v where the functions are left out: u's is tied to f_y."""
        return jnp.zeros_like(own)

    @property
    def is_label(self) -> Array:
        """Which class of every datum is its label, classes × data."""
        return jnp.arange(self.classes)[:, None] == self.labels

    def grid(self, rows: Float[Array, " n"], label: Array | float) -> Float[Array, "classes m"]:
        """Numbers of rows by class and datum; `label` where the class is the datum's own, 0 where there is no row."""
        others = self.classes - 1
        table = self._table(rows, others)
        c = jnp.arange(self.classes)[:, None]
        slot = jnp.clip(c - (c > self.labels), 0, others - 1)
        return self.set_label(jnp.take_along_axis(table, slot, axis=0), label)

    def set_label(self, grid: Float[Array, "classes m"], label: Array | float) -> Float[Array, "classes m"]:
        """The grid with other numbers for the data's own classes."""
        return jnp.where(self.is_label, label, grid)

    def of_label(self, grid: Float[Array, "classes m"]) -> Float[Array, " m"]:
        """The numbers of the data's own classes."""
        return jnp.sum(jnp.where(self.is_label, grid, 0.0), axis=0)

    def classes_of_rows(self) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
        """The other class that a row is about, and its datum."""
        row = jnp.arange(self.n)
        datum, slot = row // (self.classes - 1), row % (self.classes - 1)
        return slot + (slot >= self.labels[datum]), datum

    def sums(self, grid: Float[Array, "classes m"]) -> Float[Array, " n"]:
        """Of every row, the sum of the numbers of its functions."""
        return self.rows(grid + self.of_label(grid))

    def own_share(self, s: Float[Array, "classes m"], total: Array, own: Array) -> Float[Array, " m"]:
        """The share of u, with what belongs to f_y, in the precision of v."""
        return self.of_label(s) / total

    def with_label(self, alpha: Float[Array, " n"]) -> Float[Array, "classes m"]:
        """α by class; that of a datum's own class is minus the sum of the others, which the integral over v sees to."""
        grid = self.grid(alpha, 0.0)
        return self.set_label(grid, -jnp.sum(grid, axis=0))

    def combinations(self) -> tuple[Float[Array, "n classes"], Int[Array, " n"]]:
        """The weights of the functions in every row, 1 for the label and −1 for the other class, and its datum."""
        other, datum = self.classes_of_rows()
        c = jnp.arange(self.classes)
        return jnp.where(c == self.labels[datum][:, None], 1.0, 0.0) - jnp.where(c == other[:, None], 1.0, 0.0), datum


class Sums(Layout):
    """v − f_c with v ~ N(0, ω): a row for each class, the functions being minus those of the model."""

    sign: ClassVar[float] = -1.0

    @staticmethod
    def each(classes: int) -> int:
        """Rows of a datum."""
        return classes

    def alone(self, own: Array) -> Array:
        """The precision of v where the functions are left out."""
        return 1.0 / own

    def grid(self, rows: Float[Array, " n"], label: Array | float) -> Float[Array, "classes m"]:
        """Numbers of rows by class and datum; no class has numbers of another kind."""
        return self._table(rows, self.classes)

    def set_label(self, grid: Float[Array, "classes m"], label: Array | float) -> Float[Array, "classes m"]:
        """The grid: no class has numbers of another kind."""
        return grid

    def of_label(self, grid: Float[Array, "classes m"]) -> Float[Array, " m"]:
        """Nothing."""
        return jnp.zeros(grid.shape[1])

    def classes_of_rows(self) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
        row = jnp.arange(self.n)
        return row % self.classes, row // self.classes

    def sums(self, grid: Float[Array, "classes m"]) -> Float[Array, " n"]:
        """Of every row, the number of its function."""
        return self.rows(grid)

    def own_share(self, s: Float[Array, "classes m"], total: Array, own: Array) -> Float[Array, " m"]:
        """The share of its prior in the precision of v."""
        return 1.0 / (own * total)

    def with_label(self, alpha: Float[Array, " n"]) -> Float[Array, "classes m"]:
        """α by class."""
        return self.grid(alpha, 0.0)

    def combinations(self) -> tuple[Float[Array, "n classes"], Int[Array, " n"]]:
        """The weights of the functions in every row, and its datum."""
        c, datum = self.classes_of_rows()
        return jnp.where(jnp.arange(self.classes) == c[:, None], 1.0, 0.0), datum


LAYOUTS: dict[str, type[Differences] | type[Sums]] = {"differences": Differences, "sums": Sums}


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
