"""A Gaussian process by each row's nearest rows, beside inducing points or alone: `Neighbours`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.parameters import values
from quantprop.core.records import field
from quantprop.kernels import Kernel, summands
from quantprop.priors.base import Cost, Process
from quantprop.priors.inducing.exact import exact_points, seen_by
from quantprop.priors.inducing.process import Inducing
from quantprop.priors.inducing.rows import Basis
from quantprop.priors.neighbours.bases import Bases
from quantprop.priors.neighbours.conditionals import Residual
from quantprop.priors.neighbours.prior import NeighboursPrior, Tie
from quantprop.priors.neighbours.sets import NONE, around, earlier, nearest, scaled
from quantprop.runtime.arguments import whole
from quantprop.runtime.display import Form, expression


class Neighbours(Process):
    """The process through each row's m nearest rows, for many rows where f varies on a short scale: O(n m³) operations
    per sweep.

    `Inducing(512, neighbours=32)` puts inducing points for what is smooth beside them. With m = n − 1 it is exact.

    Args:
        count: Number of neighbours, m.
        seed: Seed of the order of rows.
        points: Inducing points beside them, as `Inducing` sets them; not to be set by users.
        exact: Points that explain terms exactly, chosen from X; not to be set by users.
        earlier: Neighbours among the rows before each row, chosen from X; not to be set by users.
        around: Neighbours among all rows, chosen from X; not to be set by users.
        near: Neighbours of new inputs, chosen from them; not to be set by users.

    >>> import numpy as np
    >>> from quantprop import Model, Neighbours, infer, kernels, likelihoods
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> model = Model(kernels.Matern32(), likelihoods.Probit(), process=Neighbours(8))
    >>> infer(model, X, np.sign(np.sin(2 * X[:, 0])), "ep").converged
    True
    """

    from_data: ClassVar[bool] = True
    follows_kernel: ClassVar[bool] = True

    count: int = field(default=32, static=True)
    seed: int = field(default=0, static=True)
    points: Inducing | None = None
    exact: tuple[Any, ...] = ()  # points of each term
    earlier: Float[Array, "n m"] | None = None  # the sets, once they are chosen
    around: Float[Array, "n m"] | None = None
    near: Float[Array, "k m"] | None = None  # of new inputs

    def __check_init__(self) -> None:
        whole(1).check("Neighbours: count", self.count)
        whole(0).check("Neighbours: seed", self.seed)

    def _expression(self, form: Form) -> str:
        """As it is written, without the sets."""
        if self.points is None:
            return f"Neighbours({self.count}{f', seed={self.seed}' if self.seed else ''})"
        return f"{expression(self.points, form)[:-1]}, neighbours={self.count})"

    def settled(self, kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Neighbours:
        """Points and sets of neighbours, chosen from the rows of x under the kernel's hyperparameters."""
        exact = exact_points(kernel, x)
        bases = _bases(None, exact, kernel)
        points = None if self.points is None else self.points.settled(bases.rest, seen_by(bases.rest, x))
        bases = _bases(values(points), exact, kernel)
        _, places = scaled(bases.rest, x)
        before = earlier(bases, x, places, self.count, self.seed)
        sides = around(bases, x, places, self.count)
        return Neighbours(self.count, self.seed, points, exact, before.astype(float), sides.astype(float))

    def facing(self, kernel: Kernel, x: Float[np.ndarray, "n d"], new: Float[np.ndarray, "k d"]) -> Neighbours:
        found = nearest(_bases(self.points, self.exact, kernel), x, new, self.count)
        return replace(self, near=found.astype(float))

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Any:
        return x, _padded(self.earlier, len(x)), _padded(self.around, len(x))

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Any) -> NeighboursPrior:
        x, before, sides = prepared
        moving = self.points is not None and self.points.learn
        return NeighboursPrior(mean, _bases(self.points, self.exact, kernel), x, before, sides, None, moving)

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Tie:
        return self.cross_of(kernel, kernel, x, new)

    def cross_of(self, kernel: Kernel, term: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Tie:
        bases = _bases(self.points, self.exact, kernel)
        v, own_v = bases.whitened(kernel, x), bases.whitened(term, new)
        residual = Residual(bases, term, x, v)
        return Tie(((residual, residual.rows(new, own_v, _padded(self.near, len(new)))),))

    def cross_terms(
        self, kernel: Kernel, terms: tuple[Kernel, ...], x: Float[Array, "n d"], new: Float[Array, "k d"]
    ) -> Tie:
        return Tie(tuple(part for term in terms for part in self.cross_of(kernel, term, x, new).parts))

    def cost(self, n: int) -> Cost:
        m, points = min(self.count, n), 0 if self.points is None else self.points.count
        held = 8 * n * (2 * m * (m + 2) + 2 * points)
        words = f"a prior by {m} neighbours and {points} inducing points over {n} rows"
        return Cost(3 * held, held, n * (m**3 + 4.0 * m * points + 4.0 * points**2), words,
                    f"{n} × {m} × {m} covariances")  # fmt: skip


def with_neighbours(process: Any) -> Any:
    """The process, and of inducing points with neighbours the one that has both."""
    if not (isinstance(process, Inducing) and process.neighbours):
        return process
    return Neighbours(process.neighbours, process.seed, replace(process, neighbours=0))


def _bases(points: Inducing | None, exact: tuple[np.ndarray, ...], kernel: Kernel) -> Bases:
    """The bases of exact terms, whose points are given term by term, and of inducing points for the others."""
    each = [Basis(term, jnp.asarray(z), jnp.ones(()), 0.0) for term, z in zip(summands(kernel), exact, strict=True)]
    bases = Bases(kernel, tuple(basis for basis in each if len(basis.z)), None, jnp.ones(()))
    return bases if points is None else replace(bases, points=points.basis(bases.rest))


def _padded(sets: Any, size: int) -> Float[Array, "n m"]:
    """The sets with padded rows, which have no neighbours."""
    return jnp.pad(jnp.asarray(sets), ((0, size - len(sets)), (0, 0)), constant_values=NONE)
