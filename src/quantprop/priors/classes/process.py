"""The process of several classes: exact, one dense covariance a class."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels import Kernel, Pairs
from quantprop.kernels.per_class import ClassRows, functions_of
from quantprop.likelihoods.softmax import FLAT
from quantprop.priors.base import Cost, Process
from quantprop.priors.classes.layout import LAYOUTS
from quantprop.priors.classes.prediction import ClassesCross
from quantprop.priors.classes.prior import ClassesPrior
from quantprop.records import field
from quantprop.runtime.names import check_name

OWN = {"differences": 1.0, "sums": FLAT}  # ω


def check_rows(classes: int, rows: str) -> None:
    """Raise where there is no such model."""
    check_name("Classes: rows", rows, LAYOUTS)
    if LAYOUTS[rows].each(classes) < 2:
        raise ValueError(f"Classes: classes must be 3 or more (two are one difference: Dense); got {classes}")


class Prepared(NamedTuple):
    """What no hyperparameter changes: pairs of data, and their labels."""

    pairs: Pairs
    labels: Float[Array, " m"]


class Classes(Process):
    """The exact process of a model with three or more classes: its rows are the differences u_i + f_y(x_i) − f_j(x_i)
    of every datum i, whose C − 1 rows follow each other (`kernels.PerClass`). C n² numbers, C n³ operations a sweep.

    `infer` and `fit` choose it for `likelihoods.MultinomialProbit`.
    """

    several_sites: ClassVar[bool] = True

    classes: int = field(static=True)
    rows: str = field(default="differences", static=True)  # or "sums", those of softmax

    def __check_init__(self) -> None:
        check_rows(self.classes, self.rows)

    def _data(self, x: Float[Array, "n d"]) -> ClassRows:
        """The first row of every datum."""
        return ClassRows.of(x[:: LAYOUTS[self.rows].each(self.classes)], self.classes)

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Prepared:
        data = self._data(x)
        pairs: Pairs = {}
        for one in functions_of(kernel):
            pairs = pairs | one.pairs(data.x)
        return Prepared(pairs, jnp.argmax(data.weights, axis=1).astype(jnp.float64))

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Prepared) -> ClassesPrior:
        k = jnp.stack([one.gram_of(prepared.pairs) for one in functions_of(kernel)])
        return ClassesPrior(mean, k, jnp.asarray(OWN[self.rows]), prepared.labels, self.classes, self.rows)

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> ClassesCross:
        data, ahead = self._data(x), ClassRows.of(new, self.classes)
        return ClassesCross(jnp.stack([one.cross(data.x, ahead.x) for one in functions_of(kernel)]), ahead.weights)

    def cost(self, n: int) -> Cost:
        """Of n rows: 6 matrices a class, and 3 of all rows for the gradient of QP."""
        data = -(-n // LAYOUTS[self.rows].each(self.classes))
        one = 8 * data**2
        parts = f"{6 * self.classes} matrices of {data} × {data} and 3 of {n} × {n}"
        flops = 3.0 * self.classes * float(data) ** 3
        return Cost(6 * self.classes * one + 24 * n**2, one, flops, f"{self.classes} classes of {data} rows", parts)
