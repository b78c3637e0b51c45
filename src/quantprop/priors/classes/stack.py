"""V of several functions at data, in chunks, and the C M × C M matrices that are made of them.

The values at the M points of all C functions, whitened, are one vector of C M numbers: w = (w_1, ..., w_C). A datum
sees g_c = V_cᵀ w_c, so it is C blocks of M numbers. Where all functions share a kernel there is one V.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.gaussian import Normal
from quantprop.core.records import Record, field
from quantprop.priors.base import Predictor
from quantprop.priors.classes.factor import ClassesCross
from quantprop.priors.inducing.rows import in_turn

Grid = Float[Array, "classes n"]
Square = Float[Array, "cm cm"]


class Stack(Record):
    """V in k chunks of c data: `v` has one M × c matrix for all functions, or one each."""

    v: Float[Array, "k s m c"]
    classes: int = field(static=True)

    @property
    def size(self) -> int:
        """C M."""
        return self.classes * self.v.shape[2]

    def blocks(self, part: Square) -> Float[Array, "classes m m"]:
        """The blocks of one function each."""
        c = jnp.arange(self.classes)
        return part.reshape(self.classes, -1, self.classes, part.shape[0] // self.classes)[c, :, c, :]

    def over(self, step: Callable, carry: Any, *grids: Grid) -> tuple[Any, Any]:
        """step(sum, V, columns) → (sum, grids) for one chunk after the other; the grids of all data in one."""
        carry, out = self._over(step, carry, grids)
        return carry, jax.tree.map(lambda part: jnp.moveaxis(part, 0, 1).reshape(part.shape[1], -1), out)

    def every(self, function: Callable, *grids: Grid) -> Float[Array, "k s m c"]:
        """function(V, columns) of every chunk, in the form of V."""
        return self._over(lambda carry, *some: (carry, function(*some)), None, grids)[1]

    def _over(self, step: Callable, carry: Any, grids: tuple[Grid, ...]) -> tuple[Any, Any]:
        split = [jnp.moveaxis(grid.reshape(len(grid), len(self.v), -1), 1, 0) for grid in grids]
        return in_turn(lambda carry, given: step(carry, given[0], *given[1]), carry, (self.v, split))

    def mixed(self, v: Float[Array, "s m c"], by: Float[Array, "classes c"]) -> Float[Array, "cm c"]:
        """Σ_c by_c e_c ⊗ V_c of a chunk."""
        return (by[:, None] * v).reshape(self.size, -1)

    def sent(self, by: Grid) -> Float[Array, " cm"]:
        """Σ of all data's mixtures."""

        def one(total: Array, v: Array, by: Array) -> tuple[Array, None]:
            return total + jnp.sum(self.mixed(v, by), axis=1), None

        return self.over(one, jnp.zeros(self.size), by)[0]

    def received(self, w: Float[Array, " cm"]) -> Grid:
        """g_c = V_cᵀ w_c."""
        return self.over(lambda carry, v: (carry, self.along(v, w)), None)[1]

    def along(self, v: Float[Array, "s m c"], w: Float[Array, "cm ..."]) -> Float[Array, "classes c"]:
        """V_cᵀ w_c of a chunk; w may differ between its data."""
        return jnp.sum(v * w.reshape(self.classes, v.shape[1], -1), axis=1)

    def gram(self, s: Grid, weights: Grid) -> Square:
        """Σ of blocks V_c diag(s_c) V_cᵀ, less Σ M Mᵀ of the mixtures M by these weights."""

        def one(total: Any, v: Array, s: Array, weights: Array) -> tuple[Any, None]:
            blocks, mixed = jnp.matmul(s[:, None] * v, jnp.swapaxes(v, 1, 2)), self.mixed(v, weights)
            return (total[0] + blocks, total[1] - mixed @ mixed.T), None

        c, m, size = jnp.arange(self.classes), self.v.shape[2], self.size
        zero = (jnp.zeros((self.classes, m, m)), jnp.zeros((size, size)))
        (blocks, mixtures), _ = self.over(one, zero, s, weights)
        whole = mixtures.reshape(self.classes, m, self.classes, m).at[c, :, c, :].add(blocks)
        return whole.reshape(size, size)

    def forms(self, by: Square, weights: Grid) -> tuple[Grid, Grid]:
        """V_cᵀ P_cc V_c and V_cᵀ (P A)_c of all data, for a symmetric P and the mixtures A = Σ_c w_c e_c ⊗ V_c."""
        blocks = self.blocks(by)

        def one(carry: None, v: Array, weights: Array) -> tuple[None, tuple[Array, Array]]:
            own = jnp.sum(v * jnp.matmul(blocks, v), axis=1)
            return carry, (own, self.along(v, by @ self.mixed(v, weights)))

        return self.over(one, None, weights)[1]

    def covariances(self, by: Square) -> Float[Array, "n classes classes"]:
        """V_cᵀ P_cd V_d of all data."""

        def chunk(v: Array) -> Array:
            def one(c: Any) -> Array:
                column = jax.lax.dynamic_slice_in_dim(by, c * v.shape[1], v.shape[1], axis=1)
                return self.along(v, column @ v[jnp.minimum(c, len(v) - 1)])

            return jnp.moveaxis(jax.lax.map(one, jnp.arange(self.classes)), 2, 0)

        return jax.lax.map(chunk, self.v).reshape(-1, self.classes, self.classes)


class StackPredictor(Predictor):
    """The posterior of the whitened values at the points of all classes, N(centre, P); new values are tied by V."""

    covariance: Float[Array, "cm cm"]
    centre: Float[Array, " cm"]

    def functions(
        self, v: Float[Array, "s m k"], own: Float[Array, "classes k"]
    ) -> tuple[Float[Array, "k classes"], Float[Array, "k classes classes"]]:
        """The functions of all classes at k new inputs: means minus prior means, and covariances between classes."""
        stack = Stack(v[None], len(own))
        left = own - jnp.sum(v**2, axis=1)
        return stack.received(self.centre).T, stack.covariances(self.covariance) + jnp.eye(len(own)) * left.T[:, None]

    def at(self, mean: Float[Array, " k"], cross: ClassesCross, own: Float[Array, "..."]) -> Normal:
        v, w = cross
        stack = Stack(v[None], w.shape[1])
        mixed = stack.mixed(v, w.T)
        mean, inner = mean + mixed.T @ self.centre, self.covariance @ mixed
        if own.ndim == 1:
            return Normal(mean, own + jnp.sum(mixed * (inner - mixed), axis=0))
        joint = own + mixed.T @ (inner - mixed)
        return Normal(mean, jnp.diagonal(joint), joint)
