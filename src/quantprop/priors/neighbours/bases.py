"""Values that explain others before neighbours see the rest: a few for simple terms, inducing points for the others.

A linear term has as many independent values as columns, a constant one, and an effect per level one per level: with
points at these, V explains the term, whatever its hyperparameters.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import Record, changed
from quantprop.kernels import Categories, Constant, Coregion, Factor, Kernel, Linear, White, summands
from quantprop.kernels.structure import leaves
from quantprop.priors.inducing.rows import ROUNDINGS, Basis, chunks_of, in_turn, independent, still
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program

LEVELS = 2048  # most values of a term that are explained exactly
SAMPLED = 256  # rows that show how many values a term with more of them has
EXPLAINED = Linear, Constant, Categories, Factor, Coregion

_independent = program(lambda term, x: independent(term.cross(x, x), ROUNDINGS * len(x) * float(jnp.finfo(x).eps)))


class Bases(Record):
    """Points for some terms of a kernel each, then for the sum of the others. Terms are told apart by their form."""

    kernel: Kernel
    exact: tuple[Basis, ...]
    points: Basis | None  # for the sum of the others
    scale: Float[Array, ""]  # of the covariance

    @property
    def rest(self) -> Kernel:
        """The sum of the terms that are not explained exactly; the kernel, if all are."""
        others = self.shares(self.kernel)[-1]
        return self.kernel if others is None else others

    @property
    def width(self) -> int:
        """The number of values that explain."""
        return sum(len(part.z) for part in self.parts)

    @property
    def parts(self) -> tuple[Basis, ...]:
        """All of them: the exact ones, then the points for the sum of the others."""
        return self.exact if self.points is None else (*self.exact, self.points)

    def shares(self, kernel: Kernel) -> list[Kernel | None]:
        """The terms of `kernel` that each exact basis explains, and the sum of its others; None where there is none."""
        terms = {jax.tree.structure(term): term for term in summands(kernel)}
        forms = [jax.tree.structure(basis.kernel) for basis in self.exact]
        others = [term for term in summands(kernel) if jax.tree.structure(term) not in forms]
        return [*(terms.get(form) for form in forms), reduce(add, others) if others else None]

    def still(self, moving: bool) -> Bases:
        """The bases, with derivatives in the inducing points if they are learned, and in no others."""
        points = None if self.points is None else still(self.points, moving)
        return changed(self, exact=tuple(still(basis, False) for basis in self.exact), points=points)

    def whitened(self, kernel: Kernel, x: Float[Array, "n d"]) -> Float[Array, "n M"]:
        """V of values with covariances `kernel` with the process, one row each."""
        shares = self.shares(kernel)[: len(self.parts)]
        each = [_whitened(basis, share, x) for basis, share in zip(self.parts, shares, strict=True)]
        return jnp.sqrt(self.scale) * jnp.concatenate([jnp.zeros((len(x), 0)), *each], axis=1)


def _whitened(basis: Basis, kernel: Kernel | None, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
    m = len(basis.z)
    if kernel is None:
        return jnp.zeros((len(x), m))
    by, pieces = basis.whitening(), chunks_of(len(x), m)

    def one(carry, some):
        return carry, (by @ kernel.cross(basis.z, some)).T

    return in_turn(one, None, x.reshape(pieces, -1, x.shape[1]))[1].reshape(len(x), m)


def exact_points(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "k d"], ...]:
    """Points that explain each term exactly: none of terms with many values, of a kernel that is one term, and of terms
    of one form.
    """
    terms = summands(kernel)
    forms = [jax.tree.structure(term) for term in terms]
    alone = [len(terms) > 1 and forms.count(form) == 1 for form in forms]
    return tuple(_points_of(term, x) if one else x[:0] for term, one in zip(terms, alone, strict=True))


def _points_of(term: Kernel, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "k d"]:
    if not all(isinstance(leaf, EXPLAINED) for leaf, _ in leaves(term)):
        return x[:0]
    rows = np.unique(seen_by(term, x), axis=0)
    few = len(rows) <= LEVELS
    rows = rows if few else rows[np.linspace(0, len(rows) - 1, SAMPLED).astype(int)]
    rows = rows[to_numpy(_independent(term, rows)) > 0]
    return rows if few or len(rows) <= x.shape[1] else x[:0]


def seen_by(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """x, with 0 in columns that the kernel does not see."""
    columns: set[Any] = set()
    for leaf, seen in leaves(kernel):
        columns |= set() if isinstance(leaf, (Constant, White)) else set(range(x.shape[1]) if seen is None else seen)
    return np.where([column in columns for column in range(x.shape[1])], x, 0.0)
