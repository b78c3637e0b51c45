"""The components of an additive kernel: main effects and interactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import changed, field
from quantprop.inference.terms import Parts, terms_of
from quantprop.kernels import Additive, Columns, Kernel, Matrix, Points, Product
from quantprop.kernels.base import Others
from quantprop.kernels.structure import with_leaves

LEVEL = "level"  # the component of order 0


class AdditiveTerm(NamedTuple):
    """An additive term of a kernel: the additive kernel, its columns of X, the other factors of a product, and names
    of the factors of the additive kernel.
    """

    kernel: Additive
    columns: tuple[int, ...] | None
    others: tuple[Kernel, ...]
    names: tuple[str, ...]

    @staticmethod
    def of(term: Kernel) -> AdditiveTerm | None:
        """The parts of a term; None if it is not additive."""
        others = list(_multiplied(term))
        for i, part in enumerate(others):
            own = part.kernel if isinstance(part, Columns) else part
            if isinstance(own, Additive):
                columns = tuple(map(int, part.columns)) if isinstance(part, Columns) else None
                called = part.names or columns if isinstance(part, Columns) else None
                names = tuple(variable([str(called[c] if called else c) for c in factor]) for factor in own.varying)
                return AdditiveTerm(own, columns, tuple(others[:i] + others[i + 1 :]), names)
        return None

    def name(self, some: tuple[int, ...]) -> str:
        """The name of a component: its columns, as in age:dose."""
        return ":".join(self.names[i] for i in some) if some else LEVEL


def _multiplied(term: Kernel) -> Iterator[Kernel]:
    if isinstance(term, Product):
        yield from (*_multiplied(term.left), *_multiplied(term.right))
    else:
        yield term


def variable(names: Sequence[str]) -> str:
    """The name of a factor by those of its columns: one column's own, or colour for colour=red and colour=blue."""
    words = {name.rpartition("=")[0] for name in names}
    return names[0] if len(names) == 1 else words.pop() if len(words) == 1 and all(words) else "+".join(names)


class Components(Kernel):
    """Components of one order of an additive term, side by side: `cross` has a column for each set and each point.

    `sets` has one row for each component: the places of its factors.
    """

    kernel: Additive
    others: tuple[Kernel, ...]
    sets: Any
    columns: tuple[int, ...] | None = field(static=True)

    def _products(self, x: Points, z: Others) -> Float[Array, "sets n k"]:
        at = slice(None) if self.columns is None else jnp.array(self.columns)
        outside = self.kernel.amplitudes()[np.shape(self.sets)[1]] * jnp.ones((len(x), len(z)))
        for other in self.others:
            outside = outside * other.cross(x, z)
        each = self.kernel.each(x[:, at], z[:, at])
        found = outside[None]
        for place in jnp.asarray(self.sets).T:  # one after the other: no array of all orders is formed
            found = found * each[place]
        return found

    def cross(self, x: Points, z: Others) -> Matrix:
        return jnp.moveaxis(self._products(x, z), 0, 1).reshape(len(x), -1)

    def diagonal(self, x: Points) -> Float[Array, " sets_n"]:
        return jax.vmap(lambda row: self._products(row[None], row[None])[:, 0, 0], out_axes=1)(x).ravel()

    def gram(self, x: Points) -> Matrix:
        return jax.scipy.linalg.block_diag(*self._products(x, x))


def _beyond(order: int, leaf: Any, seen: Any) -> Kernel:
    """An additive kernel without its components up to an order."""
    if not isinstance(leaf, Additive):
        return leaf
    return changed(leaf, variance=np.where(np.arange(leaf.order + 1) > order, leaf.variance, 0.0))


def components_of(kernel: Kernel, order: int) -> Parts:
    """The components of additive terms, those of a higher order as one, and the other terms of a kernel as they are."""
    names: list[str] = []
    kernels: list[Kernel] = []
    for name, term in terms_of(kernel).items():
        if (own := AdditiveTerm.of(term)) is None:
            names, kernels = [*names, name], [*kernels, term]
            continue
        for q in range(min(order, own.kernel.order) + 1):
            some = list(combinations(range(own.kernel.count), q))
            sets = np.array(some, dtype=int).reshape(len(some), q)
            names += [own.name(each) for each in some]
            kernels.append(Components(own.kernel, own.others, sets, own.columns))
        if order < own.kernel.order:
            names, kernels = [*names, f"order > {order}"], [*kernels, with_leaves(term, partial(_beyond, order))]
    if not any(isinstance(part, Components) for part in kernels):
        raise ValueError("components: the kernel has no additive term: use kernels.Additive(order=2), or "
                         "solution.terms(X) for the terms of a sum")  # fmt: skip
    same = [names[:i].count(name) for i, name in enumerate(names)]  # of two additive terms
    names = [f"{name} ({k + 1})" if k else name for name, k in zip(names, same, strict=True)]
    return Parts(tuple(names), tuple(kernels))
