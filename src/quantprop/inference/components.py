"""The components of f: the level, main effects and interactions of variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.gaussian import Normal
from quantprop.core.records import changed, field
from quantprop.inference.terms import Parts, terms_of
from quantprop.kernels import (
    Additive,
    Columns,
    Constant,
    Kernel,
    Matrix,
    Points,
    Product,
    Sum,
    White,
    columns_of,
    summands,
)
from quantprop.kernels.base import Others, Pairs, Transformed
from quantprop.kernels.effects import Covariances, EffectForm, Variables, effect_form, symmetric
from quantprop.runtime.precision import float64

LEVEL = "level"  # the component of order 0
Solution = Any  # of `solution`, which imports this


class Summand(NamedTuple):
    """A function that f is the sum of: its kernel, which may be within maps of columns, its effects, and other factors
    of its kernel.
    """

    kernel: Kernel
    form: EffectForm
    others: tuple[Kernel, ...]


class Decomposition(NamedTuple):
    """Functions with effects of the same variables: columns and name of each variable. Main effects and interactions
    are sums over all functions.
    """

    summands: tuple[Summand, ...]
    variables: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    @staticmethod
    def of_term(term: Kernel, features: int) -> Decomposition | None:
        """The decomposition of an additive term, also times other kernels; None if it is not additive."""
        others = list(_multiplied(term))
        for i, part in enumerate(others):
            own = part.kernel if isinstance(part, Columns) else part
            if isinstance(own, Additive):
                columns = tuple(map(int, part.columns)) if isinstance(part, Columns) else tuple(range(features))
                called = (part.names if isinstance(part, Columns) else ()) or columns
                names = tuple(variable([str(called[c]) for c in factor]) for factor in own.varying)
                form = EffectForm(own, *own.points(), np.eye(own.count), own.order)
                variables = tuple(tuple(columns[c] for c in factor) for factor in own.varying)
                return Decomposition((Summand(part, form, (*others[:i], *others[i + 1 :])),), variables, names)
        return None

    @staticmethod
    @float64
    def of(solution: Solution) -> Decomposition | None:
        """The decomposition of a kernel that is a sum of additive, linear, squared exponential and constant kernels,
        for the variables of X and their distributions; None if it is another one.
        """
        found, variables = [], Variables.of(solution.X, solution.weights)
        for kernel, others in _addends(solution.model.plain_kernel):
            if not isinstance(kernel, White):
                leaf, points = within(kernel, jnp.asarray(variables.points))
                seen = tuple(map(int, columns_of(kernel) or range(solution.X.shape[1])))
                if (form := effect_form(leaf, seen, points, variables)) is None:
                    return None
                found.append(Summand(kernel, form, others))
        names = tuple(variable(list(map(str, columns))) for columns in variables.columns)
        return Decomposition(tuple(found), variables.columns, names)

    @property
    def order(self) -> int:
        """The largest number of variables in one component."""
        return max(own.form.order for own in self.summands)

    def name(self, some: tuple[int, ...]) -> str:
        """The name of a component: its variables, as in age:dose."""
        return ":".join(self.names[i] for i in some) if some else LEVEL

    def sets(self, order: int) -> list[tuple[int, ...]]:
        """The variables of each component of one order."""
        return list(combinations(range(len(self.names)), order))

    def components(self, sets: Sequence[tuple[int, ...]]) -> Kernel:
        """The kernel of components of the same order, side by side."""
        places = np.array(sets, dtype=int).reshape(len(sets), -1)
        own = [each for each in self.summands if each.form.order >= places.shape[1]]
        return reduce(add, [Components(*each, places) for each in own])

    def parts(self, order: int) -> Parts:
        """The components up to an order, and all of a higher order as one."""
        each = [self.sets(q) for q in range(min(order, self.order) + 1)]
        names = [self.name(some) for sets in each for some in sets]
        kernels = [self.components(sets) for sets in each if sets]
        if order < self.order:
            names.append(f"order > {order}")
            kernels.append(reduce(add, [Remainder(*own, order) for own in self.summands if own.form.order > order]))
        return Parts(tuple(names), tuple(kernels))


def _multiplied(term: Kernel) -> Iterator[Kernel]:
    if isinstance(term, Product):
        yield from (*_multiplied(term.left), *_multiplied(term.right))
    else:
        yield term


def _addends(kernel: Any, others: tuple[Kernel, ...] = (), around: tuple[Any, ...] = ()) -> Iterator[Any]:
    """The leaves of sums of kernels, each within its maps of columns, and the constants that multiply it."""
    if isinstance(kernel, Sum):
        yield from (*_addends(kernel.left, others, around), *_addends(kernel.right, others, around))
    elif isinstance(kernel, Transformed):
        yield from _addends(kernel.kernel, others, (*around, kernel))
    elif isinstance(kernel, Product) and isinstance(kernel.left, Constant):
        yield from _addends(kernel.right, (*others, kernel.left), around)
    else:
        yield reduce(lambda inner, outer: changed(outer, kernel=inner), around[::-1], kernel), others


def within(kernel: Any, x: Any) -> tuple[Kernel, Any]:
    """The kernel within maps of columns, and points as it sees them."""
    while isinstance(kernel, Transformed):
        kernel, x = kernel.kernel, kernel.of(x)
    return kernel, x


def variable(names: Sequence[str]) -> str:
    """The name of a factor by those of its columns: one column's own, or colour for colour=red and colour=blue."""
    words = {name.rpartition("=")[0] for name in names}
    return names[0] if len(names) == 1 else words.pop() if len(words) == 1 and all(words) else "+".join(names)


class Part(Kernel):
    """Base of kernels of parts of f: `cross` ties f at x to the parts at z."""

    kernel: Kernel
    form: EffectForm
    others: tuple[Kernel, ...]

    def _covariances(self, x: Points, z: Others) -> tuple[Covariances, Matrix]:
        """Return the covariances of the form, and the product of the other factors."""
        outside = reduce(jnp.multiply, [other.cross(x, z) for other in self.others], jnp.ones((len(x), len(z))))
        return self.form(within(self.kernel, x)[1], within(self.kernel, z)[1]), outside

    def own(self, x: Points) -> Float[Array, "parts n n"]:
        """The covariance of each part."""
        raise NotImplementedError

    def diagonal(self, x: Points) -> Float[Array, " parts_n"]:
        return jax.vmap(lambda row: self.own(row[None])[:, 0, 0], out_axes=1)(x).ravel()

    def gram_of(self, pairs: Pairs) -> Matrix:
        if not isinstance(self.form.kernel, Additive | Constant):
            raise ValueError("joint posteriors of components need an additive kernel, kernels.Additive(order=2): "
                             "effects of other kernels are correlated before data are seen")  # fmt: skip
        return jax.scipy.linalg.block_diag(*self.own(pairs["x"]))


class Components(Part):
    """Components of one order, side by side: `cross` has a column for each set and each point.

    `sets` has one row for each component: the places of its variables.
    """

    sets: Any

    def _products(self, outside: Matrix, each: Float[Array, "count n k"]) -> Float[Array, "sets n k"]:
        found = outside[None]
        for place in jnp.asarray(self.sets).T:  # one after the other: no array of all orders is formed
            found = found * each[place]
        return found

    def cross(self, x: Points, z: Others) -> Matrix:
        found, outside = self._covariances(x, z)
        products = self._products(found.outside[np.shape(self.sets)[1], :, None] * outside, found.each)
        return jnp.moveaxis(products, 0, 1).reshape(len(x), -1)

    def own(self, x: Points) -> Float[Array, "parts n n"]:
        found, outside = self._covariances(x, x)
        return self._products(found.inside[np.shape(self.sets)[1]] * outside, found.own)


class Remainder(Part):
    """All components above an order, as one."""

    order: int = field(static=True)

    def cross(self, x: Points, z: Others) -> Matrix:
        found, outside = self._covariances(x, z)
        low = found.outside[: self.order + 1, :, None] * symmetric(found.each, self.order)
        return outside * (self.kernel.cross(x, z) - jnp.sum(low, axis=0))

    def own(self, x: Points) -> Float[Array, "parts n n"]:
        tied, (found, outside) = self.cross(x, x), self._covariances(x, x)
        return (tied + tied.T - outside * (self.kernel.cross(x, x) - found.low(self.order)))[None]


def components_of(solution: Solution, order: int) -> Parts:
    """The components of additive terms, those of a higher order as one, and the other terms of a kernel as they are;
    without additive terms those of the whole kernel.
    """
    features, terms = solution.X.shape[1], terms_of(solution.model.plain_kernel)
    found = {name: Decomposition.of_term(term, features) for name, term in terms.items()}
    if all(own is None for own in found.values()):
        return effects_of(solution, order)
    each = [Parts((name,), (terms[name],)) if own is None else own.parts(order) for name, own in found.items()]
    names = [name for parts in each for name in parts.names]
    same = [names[:i].count(name) for i, name in enumerate(names)]  # of two additive terms
    names = [f"{name} ({k + 1})" if k else name for name, k in zip(names, same, strict=True)]
    return Parts(tuple(names), tuple(kernel for parts in each for kernel in parts.kernels))


def effects_of(solution: Solution, order: int) -> Parts:
    """The components of a whole kernel, and its noise."""
    parts, kernel = whole_of(solution).parts(order), solution.model.plain_kernel
    white = {name: term for name, term in terms_of(kernel).items() if isinstance(term, White)}
    return Parts((*parts.names, *white), (*parts.kernels, *white.values()))


def whole_of(solution: Solution) -> Decomposition:
    """All of f; an error if it has no components."""
    if (own := Decomposition.of(solution)) is None:
        raise ValueError(
            "components: the kernel must be a sum of additive, linear, squared exponential and constant kernels: "
            "use kernels.Additive(order=2), or solution.terms(X) for the terms of a sum"
        )
    return own


def additive_term(solution: Solution) -> Decomposition | None:
    """The additive term of a kernel, alone or times constants, if there is one of them."""
    terms = [Decomposition.of_term(term, solution.X.shape[1]) for term in summands(solution.model.plain_kernel)]
    found = [own for own in terms if own is not None]
    others = [other for own in found for other in own.summands[0].others]
    return found[0] if len(found) == 1 and all(isinstance(other, Constant) for other in others) else None


def averaged(weights: Float[np.ndarray, " m"], each: Sequence[Mapping[str, Normal]]) -> dict[str, Normal]:
    """Mean and variance of each component under a mixture of posteriors; one without a component has 0 there."""
    found = {}
    for name in dict.fromkeys(name for one in each for name in one):
        own = [one.get(name) for one in each]
        blank = np.zeros_like(next(part for part in own if part is not None).mean)
        means, variances = (np.array([blank if part is None else getattr(part, of) for part in own])
                            for of in ("mean", "variance"))  # fmt: skip
        mean = weights @ means
        found[name] = Normal(mean, weights @ (variances + (means - mean) ** 2))
    return found
