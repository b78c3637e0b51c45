"""Values that explain others before neighbours see the rest: a few for simple terms, inducing points for the others.

A linear term has as many independent values as columns, a constant one, and an effect per level one per level: with
points at these, V explains the term, whatever its hyperparameters.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.records import Record, changed
from quantprop.kernels import Kernel, summands
from quantprop.priors.inducing.rows import Basis, chunks_of, in_turn, still


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
