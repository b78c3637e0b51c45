"""The orthogonal additive kernel (Lu, Boukouvalas and Hensman 2022): a sum of functions of one, two and three columns.

Each factor is a kernel of one column whose functions integrate to 0 over the distribution of this column in the data:
k̃(x, z) = k(x, z) − a(x) a(z)/c with a(x) = Σ_m w_m k(x, z_m) and c = Σ_m w_m a(z_m). So a main effect contains no
constant, an interaction no main effect, and every component of f is identified.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.parameters import LogNormal, Parameter, values, vector
from quantprop.core.records import changed, field
from quantprop.kernels.base import VARIANCE, Bounds, Kernel, Matrix, Others, Pairs, Point, Points, bounded
from quantprop.kernels.stationary import SquaredExponential, Stationary
from quantprop.kernels.variables import CONSTANT, CURVE, LEVELS, MAX_COLUMN_NODES, distribution, variables
from quantprop.runtime.display import Form, expression

MAX_ORDER = 3  # Newton's identities lose digits beyond: 1e-13 at order 3 and 60 columns
TILE = 32  # rows and columns whose factors are computed together: they stay in the cache
TILES = 64  # computed at a time on an accelerator
LENGTHSCALE: Bounds = (1e-3, 1e3)  # in standard deviations of a column; beyond, k̃ keeps fewer than ten digits
START = 2.0  # lengthscale, in standard deviations
PRIOR = LogNormal(START, 1.0)
RELEVANCE: Bounds = (1e-6, 1e2)  # of columns without a lengthscale, which multiplies their factor
RELEVANCE_PRIOR = LogNormal(0.4, 2.0)  # what PRIOR says of a column of two equally frequent values
ORDER_PRIOR = LogNormal(1.0, 2.0)  # variance / its starting value
_ONE = Parameter(1.0, fixed=True)


def _shape(base: Any) -> Any:
    """A stationary kernel of variance and lengthscale 1."""
    if not isinstance(base, Stationary):
        raise TypeError(f"Additive: base must be a stationary kernel such as kernels.Matern52(); got {base!r}")
    return changed(base, variance=_ONE, lengthscale=_ONE)


class Additive(Kernel):
    """Σ_q variance_q e_q(k̃_1, ..., k̃_D)/C(D, q) for q = 0, ..., order, where e_q sums the products of q factors.

    What is not given `fit` chooses from the rows that count, with bounds and priors; `measured` does the same.

    Args:
        order: Largest number of columns in one component, 0 to 3.
        base: Stationary kernel whose correlation each column has.
        variance: Variance of the components of each order, from 0; learned.
        lengthscale: One for each column of more than two values, in standard deviations of the column; learned.
        relevance: One for each factor of levels, which it multiplies: columns of two values, and the 0-1 columns of the
            levels of one variable; learned.
        factors: Columns of each factor; by default each column is one, and so are the 0-1 columns of the levels of
            one variable if they are next to each other and one of them is high in every row.
        kinds: Kind of each factor, "constant", "levels" or "curve"; from the data.
        nodes: Nodes of the distribution of each factor; from the data.
        weights: Weights of these nodes; from the data.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> kernel = kernels.Additive(order=1, variance=[0.5, 1.0], relevance=[1.0])
    >>> found = kernel.measured(np.array([[0.0], [1.0], [1.0]])).gram(np.array([[0.0], [1.0]]))
    >>> np.asarray(found, dtype=float).round(2).tolist()
    [[1.3, 0.1], [0.1, 0.7]]
    """

    order: int = field(default=2, static=True)
    base: Stationary = field(default=SquaredExponential(), converter=_shape)
    variance: Any = field(default=None, converter=vector)
    lengthscale: Any = field(default=None, converter=vector)
    relevance: Any = field(default=None, converter=vector)
    factors: tuple[tuple[int, ...], ...] | None = field(default=None, static=True)
    kinds: tuple[str, ...] = field(default=(), static=True)
    nodes: Any = None
    weights: Any = None

    bounds = bounded(variance=VARIANCE, lengthscale=LENGTHSCALE, relevance=RELEVANCE)
    smoothness: ClassVar[Any] = property(lambda self: self.base.smoothness)

    def __check_init__(self) -> None:
        if self.order not in range(MAX_ORDER + 1):
            raise ValueError(f"Additive: order must be 0, 1, 2 or 3; got {self.order!r}")
        if self.variance is not None and np.shape(values(self.variance)) != (self.order + 1,):
            raise ValueError(f"Additive: variance must have one entry for each order from 0 to {self.order}; "
                             f"got shape {np.shape(values(self.variance))}")  # fmt: skip
        for name, kind in (("lengthscale", CURVE), ("relevance", LEVELS)) if self.kinds else ():
            found, wanted = np.shape(values(getattr(self, name))), (self.kinds.count(kind),)
            if found not in ((), wanted):
                raise ValueError(f"Additive: {name} must be one number or have shape {wanted}; got {found}")
        columns = [column for factor in self.factors or () for column in factor]
        if len(set(columns)) < len(columns):
            raise ValueError("Additive: each factor needs a different column")
        if self.kinds and self.order > self.count:
            raise ValueError(f"Additive: order={self.order} needs {self.order} columns that vary, and X has "
                             f"{self.count}: use order={self.count}")  # fmt: skip

    @property
    def inner_kernels(self) -> dict[str, Kernel]:
        """None: `base` is a setting, and the kernel one term."""
        return {}

    @property
    def count(self) -> int:
        """The number of factors that vary."""
        return sum(kind != CONSTANT for kind in self.kinds)

    @property
    def varying(self) -> list[tuple[int, ...]]:
        """The columns of each factor that varies."""
        return [factor for factor, kind in zip(self._factors, self.kinds, strict=True) if kind != CONSTANT]

    def _expression(self, form: Form) -> str:
        kind = type(self.base).__name__
        base = "" if kind == "SquaredExponential" else f", base={kind}()"
        words = any(len(factor) > 1 for factor in self.factors or ())
        names = ("variance", "lengthscale", "relevance", *["factors"] * words)
        given = [(name, getattr(self, name)) for name in names]
        more = "".join(f", {name}={expression(value, form)}" for name, value in given if value is not None)
        return f"Additive(order={self.order}{base}{more})"

    def measured(self, x: Any, counts: Any = None) -> Additive:
        """The kernel with the distribution of each factor in rows x, of which row i counts `counts[i]` times; itself if
        it has one. Lengthscales that are not given start at 2 standard deviations, with the prior LogNormal(2, 1), and
        variances at 1, with the prior LogNormal(1, 2).
        """
        if self.kinds:
            return self
        x = np.asarray(x, dtype=np.float64)
        share = np.ones(len(x)) if counts is None else np.asarray(counts, dtype=np.float64)
        factors = variables(x[share > 0]) if self.factors is None else self.factors
        kinds, nodes, weights = zip(*(distribution(x[:, list(one)][share > 0], share[share > 0]) for one in factors),
                                    strict=True)  # fmt: skip
        width = max(MAX_COLUMN_NODES, *map(len, weights))
        curves, flat = kinds.count(CURVE), kinds.count(LEVELS)
        starts = {
            "variance": Parameter(np.ones(self.order + 1), VARIANCE, ORDER_PRIOR),
            "lengthscale": Parameter(np.full(curves, START), LENGTHSCALE, PRIOR, fixed=not curves),
            "relevance": Parameter(np.full(flat, RELEVANCE_PRIOR.median), RELEVANCE, RELEVANCE_PRIOR, fixed=not flat),
            "factors": factors,
            "nodes": np.stack([np.pad(own, (0, width - len(own)), mode="edge") for own in nodes]),
            "weights": np.stack([np.pad(own, (0, width - len(own))) for own in weights]),
        }  # fmt: skip
        given = {name: own for name, own in vars(self).items() if own is not None}
        return Additive(**starts | given | {"kinds": kinds})

    @property
    def _factors(self) -> tuple[tuple[int, ...], ...]:
        if not self.kinds or self.factors is None:
            raise ValueError("Additive: the distribution of its columns is not set: use fit, which estimates it from "
                             "the rows, or kernel.measured(X)")  # fmt: skip
        return self.factors

    def points(self) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "count m"]]:
        """Rows that hold node after node of every factor, and the weights of the nodes for each factor that varies."""
        nodes, weights = np.asarray(self.nodes), np.asarray(self.weights)
        x = np.zeros((nodes.shape[1], 1 + max(column for factor in self._factors for column in factor)))
        for factor, kind, own in zip(self._factors, self.kinds, nodes, strict=True):
            for i, column in enumerate(factor):
                x[:, column] = own if kind != LEVELS else own[i] + np.where(np.arange(len(x)) == i + 1, 1.0, -1.0)
        return x, weights[[kind != CONSTANT for kind in self.kinds]]

    def _of(self, kind: str) -> list[int]:
        return [i for i, (_, own) in enumerate(zip(self._factors, self.kinds, strict=True)) if own == kind]

    def _levels(self, x: Points) -> Iterator[tuple[np.ndarray, Array, Array]]:
        """For factors of equally many levels: which they are, 1 at the level of each row (n × factors × levels)
        and relevance · (δ − w wᵀ/Σw²) of two levels. Level 0 is that of rows low in all columns.
        """
        levels = self._of(LEVELS)
        for width in sorted({len(self._factors[i]) for i in levels}):
            own = np.array([i for i in levels if len(self._factors[i]) == width])
            high = x[:, np.array([self._factors[i] for i in own])] > jnp.asarray(self.nodes)[own, :width]
            level = jnp.where(jnp.any(high, axis=2), 1 + jnp.argmax(high, axis=2), 0)
            w = jnp.asarray(self.weights)[own, : width + 1]
            tables = jnp.eye(width + 1) - w[:, :, None] * w[:, None] / jnp.sum(w**2, axis=1)[:, None, None]
            relevance = jnp.broadcast_to(jnp.asarray(self.relevance), (len(levels),))[np.searchsorted(levels, own)]
            yield own, jax.nn.one_hot(level, width + 1, dtype=tables.dtype), relevance[:, None, None] * tables

    def _curves(self, x: Points) -> tuple[Float[Array, "curves n"], Float[Array, "curves n"]]:
        """The columns of the curves, and a(x)/√c of each."""
        nodes, w = self._of_curves(self.nodes), self._of_curves(self.weights)
        x = x[:, [self._factors[i][0] for i in self._of(CURVE)]].T
        among = jnp.einsum("cm,cmk,ck->c", w, self._correlations(nodes, nodes), w)
        return x, jnp.einsum("cnm,cm->cn", self._correlations(x, nodes), w) / jnp.sqrt(among)[:, None]

    def _of_curves(self, stored: Any) -> Float[Array, "curves m"]:
        return jnp.asarray(stored)[self._of(CURVE), :]

    def _correlations(self, x: Float[Array, "curves n"], z: Float[Array, "curves k"]) -> Float[Array, "curves n k"]:
        nodes, w = self._of_curves(self.nodes), self._of_curves(self.weights)
        variance = jnp.sum(w * (nodes - jnp.sum(w * nodes, axis=1, keepdims=True)) ** 2, axis=1)
        rates = 1.0 / (jnp.sqrt(variance) * jnp.asarray(self.lengthscale))
        return self.base.profile(((x[:, :, None] - z[:, None]) * rates[:, None, None]) ** 2)

    def _curve_factors(self, left: Any, right: Any) -> Float[Array, "curves n k"]:
        (x, a), (z, b) = left, right
        return self._correlations(x, z) - a[:, :, None] * b[:, None]

    def each(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        """k̃(x_i, z_j) of all factors that vary, in their order."""
        found = {}
        for (own, left, tables), (_, right, _) in zip(self._levels(x), self._levels(z), strict=True):
            found |= zip(own, jnp.einsum("nfl,flm,kfm->fnk", left, tables, right), strict=True)
        if CURVE in self.kinds:
            found |= zip(self._of(CURVE), self._curve_factors(self._curves(x), self._curves(z)), strict=True)
        return jnp.stack([found[i] for i in sorted(found)])

    def amplitudes(self) -> list[Any]:
        """The variance of each component, by its order."""
        variance = jnp.asarray(self.variance)
        return [variance[q] / comb(self.count, q) for q in range(self.order + 1)]

    def _total(self, sums: Float[Array, "order ..."]) -> Float[Array, "..."]:
        """The kernel from the power sums p_s = Σ_d k̃_d^s: q e_q = Σ_s (−1)^(s−1) e_{q−s} p_s (Newton and Girard)."""
        e: list[Any] = [jnp.ones(sums.shape[1:])]
        for q in range(1, self.order + 1):
            e.append(sum((-1) ** (s - 1) * e[q - s] * sums[s - 1] for s in range(1, q + 1)) / q)
        return jnp.asarray(sum(amplitude * own for amplitude, own in zip(self.amplitudes(), e, strict=True)))

    def cross(self, x: Points, z: Others) -> Matrix:
        return self._total(self._level_sums(x, z) + self._curve_sums(x, z))

    def gram_of(self, pairs: Pairs) -> Matrix:
        x = pairs["x"]
        return self._total(self._level_sums(x, x) + self._curve_sums(x))

    def _level_sums(self, x: Points, z: Others) -> Float[Array, "order n k"]:
        """Power sums of the factors of levels: one product of matrices for each power."""
        found = jnp.zeros((self.order, len(x), len(z)))
        for (_, left, tables), (_, right, _) in zip(self._levels(x), self._levels(z), strict=True):
            each = [jnp.einsum("nfl,flm->nfm", left, tables**s) for s in range(1, self.order + 1)]
            rows = jnp.reshape(jnp.array(each), (self.order, len(x), left[0].size))
            found = found + rows @ right.reshape(len(z), -1).T
        return found

    def _curve_sums(self, x: Points, z: Others | None = None) -> Float[Array, "order n k"]:
        """Power sums of the curves; of x and x itself, if there is no z, by the upper triangle.

        All factors of one tile stay in the cache. The derivative computes them again, so that no n × k × D array is
        formed.
        """
        if CURVE not in self.kinds or not self.order:
            return jnp.zeros((self.order, 1, 1))

        @jax.checkpoint
        def tile(given: Any) -> Array:
            k = self._curve_factors(*given)
            return jnp.array([jnp.sum(k**s, axis=0) for s in range(1, self.order + 1)])

        left = jnp.array(self._curves(x))
        right = left if z is None else jnp.array(self._curves(z))
        if max(left.shape[2], right.shape[2]) <= TILE:
            return tile((left, right))
        left, right = _tiles(left), _tiles(right)
        grid = len(left), len(right)
        i, j = np.triu_indices(len(left)) if z is None else np.indices(grid).reshape(2, -1)
        own = jax.lax.map(tile, (left[i], right[j]), batch_size=1 if jax.default_backend() == "cpu" else TILES)
        found = jnp.zeros((*grid, *own.shape[1:]))
        found = found.at[j, i].set(own.swapaxes(2, 3)) if z is None else found
        whole = found.at[i, j].set(own).transpose(2, 0, 3, 1, 4).reshape(self.order, grid[0] * TILE, grid[1] * TILE)
        return whole[:, : len(x), : len(x if z is None else z)]

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        own = [jnp.einsum("nfl,flm,nfm->fn", rows, tables, rows) for _, rows, tables in self._levels(x)]
        own += [1.0 - self._curves(x)[1] ** 2] if CURVE in self.kinds else []
        sums = [sum(jnp.sum(k**s, axis=0) for k in own) for s in range(1, self.order + 1)]
        return self._total(jnp.reshape(jnp.array(sums), (self.order, len(x))))

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self._total(jnp.array([jnp.sum(self.each(x[None], z[None]) ** s) for s in range(1, self.order + 1)]))


def _tiles(rows: Float[Array, "2 curves n"]) -> Float[Array, "tiles 2 curves TILE"]:
    """The rows in tiles, the last one padded by copies of the last row."""
    padded = jnp.pad(rows, ((0, 0), (0, 0), (0, -rows.shape[2] % TILE)), mode="edge")
    return jnp.moveaxis(padded.reshape(*rows.shape[:2], -1, TILE), 2, 0)
