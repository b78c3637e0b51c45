"""The processes of several classes: one dense covariance a class, or inducing points that all classes share."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import changed, field
from quantprop.kernels import Kernel, Pairs
from quantprop.kernels.combinations import ClassRows, functions_of
from quantprop.likelihoods.classes import SHIFT_VARIANCE
from quantprop.priors.base import Cost, Process
from quantprop.priors.classes.factor import ClassesCross
from quantprop.priors.classes.inducing import ClassesInducingPrior
from quantprop.priors.classes.layout import LAYOUTS
from quantprop.priors.classes.prior import ClassesPrior
from quantprop.priors.dense import Dense
from quantprop.priors.inducing import Inducing, InducingPrior
from quantprop.priors.inducing.rows import Basis, chunk_bytes
from quantprop.runtime.names import check_name

OWN = {"differences": 1.0, "sums": SHIFT_VARIANCE}  # ω


class Prepared(NamedTuple):
    """Quantities independent of hyperparameters: pairs of data or chunks of them, and their labels."""

    x: Any
    labels: Float[Array, " m"]


class OfClasses(Process):
    """Base of processes whose rows are those of `LAYOUTS`, a fixed number for each datum."""

    several_sites: ClassVar[bool] = True

    classes: int = field(static=True)

    @property
    def rows(self) -> str:
        """A field of each, after those of its own: "differences", or "sums", the rows of softmax."""
        raise NotImplementedError

    def __check_init__(self) -> None:
        check_name("Classes: rows", self.rows, LAYOUTS)
        if self._each < 2:
            raise ValueError(f"Classes: classes must be 3 or more (for two use Dense); got {self.classes}")

    @property
    def _each(self) -> int:
        """Rows of a datum."""
        return LAYOUTS[self.rows].each(self.classes)

    def _data(self, x: Float[Array, "n d"]) -> Prepared:
        """The data's inputs and labels, from the first row of each."""
        rows = ClassRows.of(x[:: self._each], self.classes)
        return Prepared(rows.x, jnp.argmax(rows.weights, axis=1).astype(jnp.float64))


class Classes(OfClasses):
    """The exact process of a model with three or more classes: its rows are the differences u_i + f_y(x_i) − f_j(x_i)
    of every datum i, whose C − 1 rows follow each other (`kernels.PerClass`). It needs C n² numbers and O(C n³)
    operations per sweep.

    `infer` and `fit` choose it for `likelihoods.MultinomialProbit`.
    """

    rows: str = field(default="differences", static=True)

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Prepared:
        data, labels = self._data(x)
        pairs: Pairs = {}
        for one in functions_of(kernel):
            pairs = pairs | one.pairs(data)
        return Prepared(pairs, labels)

    def prior(self, kernel: Kernel, mean: Float[Array, " n"], prepared: Prepared) -> ClassesPrior:
        k = jnp.stack([one.gram_of(prepared.x) for one in functions_of(kernel)])
        return ClassesPrior(mean, k, jnp.asarray(OWN[self.rows]), prepared.labels, self.classes, self.rows)

    def cross(self, kernel: Kernel, x: Float[Array, "n d"], new: Float[Array, "k d"]) -> ClassesCross:
        data, ahead = self._data(x).x, ClassRows.of(new, self.classes)
        return ClassesCross(jnp.stack([one.cross(data, ahead.x) for one in functions_of(kernel)]), ahead.weights)

    def cost(self, n: int) -> Cost:
        """The cost of n rows: 6 matrices per class, and one per pair of classes for the gradient of QP."""
        data = -(-n // self._each)
        one, matrices = 8 * data**2, 6 * self.classes + self.classes * (self.classes - 1) // 2
        parts = f"{matrices} matrices of {data} × {data}"
        flops = 3.0 * self.classes * float(data) ** 3
        return Cost(matrices * one, one, flops, f"{self.classes} classes of {data} rows", parts)


class ClassesInducing(OfClasses):
    """The process of a model with three or more classes and inducing points, which all functions share. Its rows are
    those of `Classes`. A sweep takes O(n C² M²) operations and one factor of a C M × C M matrix.

    `infer` and `fit` choose it for `likelihoods.MultinomialProbit` with `process=Inducing(512)`.
    """

    from_data: ClassVar[bool] = True

    functions: Inducing
    rows: str = field(default="differences", static=True)

    def __check_init__(self) -> None:
        if self.functions.message is not None:
            raise ValueError("Inducing: a message of earlier rows is not supported with several classes: pass all rows")

    def settled(self, kernel: Kernel, x: Float[np.ndarray, "n d"]) -> ClassesInducing:
        data = np.asarray(self._data(jnp.asarray(x)).x)
        return ClassesInducing(self.classes, self.functions.settled(functions_of(kernel)[0], data), self.rows)

    def check(self, share: Float[np.ndarray, " n"]) -> None:
        if not np.isin(share, (0.0, 1.0)).all():
            raise ValueError(
                "Inducing: powers other than 1 are not supported with several classes: use EP, QP, VB or Laplace"
            )

    def prepare(self, kernel: Kernel, x: Float[Array, "n d"]) -> Prepared:
        """Data are padded to equal chunks of C M numbers each: those without rows have no sites."""
        data, labels = self._data(x)
        n = len(data)
        chunks = -(-8 * n * self.classes * self.functions.count // chunk_bytes())
        more = -n % chunks
        padded = jnp.concatenate([data, jnp.broadcast_to(data[:1], (more, data.shape[1]))])
        return Prepared(padded.reshape(chunks, -1, data.shape[1]), jnp.pad(labels, (0, more)))

    def _bases(self, kernel: Kernel) -> list[Basis]:
        return [self.functions.basis(one) for one in functions_of(kernel)]

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
        """The cost of n rows: V of every class and 3 copies, 10 matrices of C M, 6 chunks, and some columns."""
        data, m = -(-n // self._each), self.functions.count
        size = self.classes * m
        one = 8 * data * size
        peak = 4 * one + 80 * size**2 + 6 * min(one, chunk_bytes()) + 1280 * n
        parts = f"4 matrices of {size} × {data} and 10 of {size} × {size}"
        flops = 4.0 * data * float(size) ** 2 + 3.0 * float(size) ** 3
        words = f"{self.classes} classes of {data} rows by {m} inducing points"
        return Cost(peak, one, flops, words, parts)


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


def holding_classes(process: Process, classes: int, rows: str) -> Process:
    """The process of the rows (`LAYOUTS`) of a model of several classes."""
    one_difference = rows == "differences" and classes == 2
    if isinstance(process, Inducing):
        return TwoClassesInducing(process) if one_difference else ClassesInducing(classes, process, rows)
    if not isinstance(process, Dense):
        raise ValueError(f"process must be Dense() or Inducing() for several classes; got {process!r}")
    return process if one_difference else Classes(classes, rows)


def holding_functions(process: Process) -> Process:
    """The process of the functions behind one of rows."""
    if isinstance(process, (ClassesInducing, TwoClassesInducing)):
        return process.functions
    return Dense() if isinstance(process, Classes) else process
