"""Which row is which difference: rows are data by their other classes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Layout(eqx.Module):
    """Row r belongs to datum r // (C − 1), and of the classes other than its label to number r mod (C − 1).

    The last datum may have fewer rows than the others: padding need not be a multiple of C − 1.
    """

    labels: Float[Array, " m"]
    classes: int = eqx.field(static=True)
    n: int = eqx.field(static=True)  # rows

    @property
    def is_label(self) -> Array:
        """Which class of every datum is its label, classes × data."""
        return jnp.arange(self.classes)[:, None] == self.labels

    def grid(self, rows: Float[Array, " n"], label: Array | float) -> Float[Array, "classes m"]:
        """Numbers of rows by class and datum; `label` where the class is the datum's own, 0 where there is no row."""
        others = self.classes - 1
        table = jnp.pad(rows, (0, len(self.labels) * others - self.n)).reshape(-1, others).T
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

    def rows(self, grid: Float[Array, "classes m"]) -> Float[Array, " n"]:
        """The numbers of the rows."""
        return grid[self.classes_of_rows()]

    def combinations(self) -> tuple[Float[Array, "n classes"], Int[Array, " n"]]:
        """The weights of the functions in every row, 1 for the label and −1 for the other class, and its datum."""
        other, datum = self.classes_of_rows()
        c = jnp.arange(self.classes)
        return jnp.where(c == self.labels[datum][:, None], 1.0, 0.0) - jnp.where(c == other[:, None], 1.0, 0.0), datum


def with_label(layout: Layout, alpha: Float[Array, " n"]) -> Float[Array, "classes m"]:
    """α by class; that of a datum's own class is minus the sum of the others, which the integral over v sees to."""
    grid = layout.grid(alpha, 0.0)
    return layout.set_label(grid, -jnp.sum(grid, axis=0))


def without_datum(
    mean: Float[Array, "classes m"],
    covariance: Float[Array, "m classes classes"],
    d: Float[Array, "classes m"],
    nu: Float[Array, "classes m"],
) -> tuple[Float[Array, "m classes"], Float[Array, "m classes classes"]]:
    """Means and covariances of each datum's functions without its own sites (ν, d) on v − f.

    With v integrated out these are a Gaussian in f of precision P = diag d − d dᵀ/s, s = 1ᵀd, and linear term
    d 1ᵀν/s − ν; the posterior N(μ, V) without it has the covariance (I − V P)⁻¹ V.
    """

    def one(mu: Array, v: Array, d: Array, nu: Array) -> tuple[Array, Array]:
        precision = jnp.diag(d) - d[:, None] * d / jnp.sum(d)
        pull = d * (jnp.sum(nu) / jnp.sum(d)) - nu
        apart = jnp.eye(len(d)) - v @ precision
        rest = jnp.linalg.solve(apart, jnp.concatenate([v, (mu - v @ pull)[:, None]], axis=1))
        return rest[:, -1], rest[:, :-1]

    return jax.vmap(one)(mean.T, covariance, d.T, nu.T)
