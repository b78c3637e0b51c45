"""The processes of several classes whose functions are held by their values at inducing points."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.kernels import Kernel
from quantprop.kernels.per_class import ClassRows, functions_of
from quantprop.priors.base import Cost, Process
from quantprop.priors.classes.inducing import ClassesInducingPrior
from quantprop.priors.classes.layout import LAYOUTS
from quantprop.priors.classes.prediction import ClassesCross
from quantprop.priors.classes.process import OWN, check_rows
from quantprop.priors.inducing import Inducing, InducingPrior
from quantprop.priors.inducing.rows import Basis, chunk_bytes
from quantprop.records import changed, field


class Prepared(NamedTuple):
    """Data by chunks, and their labels."""

    x: Float[Array, "k c d"]
    labels: Float[Array, " n"]


class ClassesInducing(Process):
    """The process of a model with three or more classes and inducing points, which all functions share: rows are those
    of `Classes`. n C² M² operations a sweep, and one factor of a C M × C M matrix.

    `infer` and `fit` choose it for `likelihoods.MultinomialProbit` with `process=Inducing(512)`.
    """

    several_sites: ClassVar[bool] = True
    from_data: ClassVar[bool] = True

    classes: int = field(static=True)
    functions: Inducing
    rows: str = field(default="differences", static=True)  # or "sums", those of softmax

    def __check_init__(self) -> None:
        check_rows(self.classes, self.rows)
        if self.functions.message is not None:
            raise ValueError("Inducing: a message of earlier rows is not there for several classes: give all rows")

    def _data(self, x: Float[Array, "n d"]) -> ClassRows:
        """The first row of every datum."""
        return ClassRows.of(x[:: LAYOUTS[self.rows].each(self.classes)], self.classes)

    def settled(self, kernel: Kernel, x: Float[np.ndarray, "n d"]) -> ClassesInducing:
        functions = self.functions.settled(functions_of(kernel)[0], np.asarray(self._data(jnp.asarray(x)).x))
        return ClassesInducing(self.classes, functions, self.rows)

    def check(self, share: Float[np.ndarray, " n"]) -> None:
        if not np.isin(share, (0.0, 1.0)).all():
            raise ValueError("Inducing: powers other than 1 are not there for several classes, whose data have several "
                             "sites with one unexplained value: use EP, QP, VB or Laplace")  # fmt: skip

    def chunks(self, n: int) -> int:
        """Into how many chunks n data are divided, C M numbers each."""
        return -(-8 * n * self.classes * self.functions.count // chunk_bytes())

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Prepared:
        """Data are padded to equal chunks: those without rows have no sites."""
        data = self._data(x)
        n = len(data.x)
        k = self.chunks(n)
        more = -(-n // k) * k - n
        labels = jnp.argmax(data.weights, axis=1).astype(jnp.float64)
        padded = jnp.concatenate([data.x, jnp.broadcast_to(data.x[:1], (more, data.x.shape[1]))])
        return Prepared(padded.reshape(k, -1, data.x.shape[1]), jnp.pad(labels, (0, more)))

    def _bases(self, kernel: Kernel) -> list[Basis]:
        points, jitter = jnp.asarray(self.functions.points), self.functions.jitter
        return [Basis(one, points, jnp.ones(()), jitter) for one in functions_of(kernel)]

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Prepared) -> ClassesInducingPrior:
        k, c, _ = prepared.x.shape
        x = prepared.x.reshape(k * c, -1)
        v, d = zip(*(basis.explained(basis.whitening(), x) for basis in self._bases(kernel)), strict=True)
        v = jnp.moveaxis(jnp.stack(v).reshape(len(v), -1, k, c), 2, 0)
        own = jnp.asarray(OWN[self.rows])
        return ClassesInducingPrior(mean, v, jnp.stack(d), own, prepared.labels, jnp.ones(()), self.classes, self.rows)

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> ClassesCross:
        ahead = ClassRows.of(new, self.classes)
        v = [basis.whitening() @ basis.kernel.cross(basis.z, ahead.x) for basis in self._bases(kernel)]
        return ClassesCross(jnp.stack(v), ahead.weights)

    def cost(self, n: int) -> Cost:
        """Of n rows: V of every class and 3 copies, 10 matrices of C M, 6 chunks, and some columns."""
        data, m = -(-n // LAYOUTS[self.rows].each(self.classes)), self.functions.count
        size = self.classes * m
        held = 8 * data * size
        peak = 4 * held + 80 * size**2 + 6 * min(held, chunk_bytes()) + 1280 * n
        parts = f"4 matrices of {size} × {data} and 10 of {size} × {size}"
        flops = 4.0 * data * float(size) ** 2 + 3.0 * float(size) ** 3
        words = f"{self.classes} classes of {data} rows by {m} inducing points"
        return Cost(peak, held, flops, words, parts)


class TwoClassesInducing(Process):
    """The process of two classes with inducing points: those of (f_1 − f_0)/√2, of which every row is one, or minus
    one.
    """

    from_data: ClassVar[bool] = True
    copies_apart: ClassVar[bool] = True

    functions: Inducing

    def settled(self, kernel: Kernel, x: Float[np.ndarray, "n d"]) -> TwoClassesInducing:
        return TwoClassesInducing(self.functions.settled(functions_of(kernel)[0], np.asarray(x)[:, :-3]))

    def _completed(self) -> Inducing:
        points = jnp.asarray(self.functions.points)
        rows = ClassRows(points, jnp.full((len(points), 2), 0.5**0.5) * jnp.array([-1.0, 1.0]), -jnp.ones(len(points)))
        return changed(self.functions, points=rows.written())

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return x

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Float[Array, "n d"]) -> InducingPrior:
        return self._completed().prior(kernel, mean, prepared)

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> Float[Array, "m k"]:
        return self._completed().cross(kernel, x, new)

    def cost(self, n: int) -> Cost:
        return self.functions.cost(n)
