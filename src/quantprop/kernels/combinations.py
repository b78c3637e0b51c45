"""Kernels of combinations of function values: differences of one process, and independent functions, one a class."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.records import field
from quantprop.kernels.base import Combined, Kernel, Matrix, Others, Pairs, Point, Points
from quantprop.kernels.pairs import prefixed, without_prefix

OWN = "differences: "  # before the names of pieces of pairs, which are of both points of every row


class Difference(Kernel):
    """Covariance of f(x) − f(x') at rows [x, x'], the two points side by side.

    With a likelihood for two classes, y = 1 if x won, this is a model of preferences: of two items that were compared,
    the one with the greater utility f tends to win.

    Args:
        kernel: Kernel of f.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> rows = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    >>> np.asarray(kernels.Difference(kernels.Linear()).gram(rows)).tolist()
    [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """

    kernel: Kernel

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        (a, b), (c, d), k = halves(x), halves(z), self.kernel
        return k(a, c) - k(a, d) - k(b, c) + k(b, d)

    def cross(self, x: Points, z: Others) -> Matrix:
        (a, b), (c, d), cross = halves(x), halves(z), self.kernel.cross
        return cross(a, c) - cross(a, d) - cross(b, c) + cross(b, d)

    def pairs(self, x: Points) -> Pairs:
        return prefixed(OWN, self.kernel.pairs(jnp.concatenate(halves(x))))

    def gram_of(self, pairs: Pairs) -> Matrix:
        both = self.kernel.gram_of(without_prefix(OWN, pairs))
        n = len(both) // 2
        # Not four quarters at once: XLA (of jaxlib 0.10.2) miscompiles their gradient on CPUs.
        rows = both[:n] - both[n:]
        return rows[:, :n] - rows[:, n:]

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        a, b = halves(x)
        return self.kernel.diagonal(a) + self.kernel.diagonal(b) - 2.0 * jax.vmap(self.kernel)(a, b)

    def noise(self, x: Points) -> Float[Array, " n"]:
        a, b = halves(x)
        return self.kernel.noise(a) + self.kernel.noise(b)

    def by_column(self, count: int) -> Kernel:
        return super().by_column(count // 2)


class Item(Kernel):
    """Covariance of f at rows [z] with its differences at rows [x, x']; between rows [z] it is f's kernel."""

    kernel: Kernel

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        if len(x) == len(z):
            return self.kernel(x, z)
        a, b = halves(x)
        return self.kernel(a, z) - self.kernel(b, z)

    def cross(self, x: Points, z: Others) -> Matrix:
        a, b = halves(x)
        return self.kernel.cross(a, z) - self.kernel.cross(b, z)

    def gram(self, x: Points) -> Matrix:
        return self.kernel.gram(x)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.diagonal(x)


def halves(x: Any) -> tuple[Any, Any]:
    """x and x' of rows [x, x'], or of one row."""
    columns = jnp.shape(x)[-1]
    if columns % 2:
        raise ValueError(f"Difference takes rows [x, x'], with as many columns for x' as for x; got {columns} columns")
    return x[..., : columns // 2], x[..., columns // 2 :]


WEIGHTS, DATUM = "weights of classes", "datum"  # names of pieces of pairs


class ClassRows(NamedTuple):
    """Columns of the rows of inputs for several classes: x, a weight for each class, and the observation whose own
    standard normal variable is added; −1 for none.
    """

    x: Points
    weights: Float[Array, "n classes"]
    datum: Float[Array, " n"]

    @staticmethod
    def of(rows: Points, classes: int) -> ClassRows:
        """The parts of rows, or of one row."""
        return ClassRows(rows[..., : -classes - 1], rows[..., -classes - 1 : -1], rows[..., -1])

    def written(self) -> Points:
        """The columns side by side."""
        return jnp.concatenate([self.x, self.weights, self.datum[..., None]], axis=-1)


class PerClass(Kernel):
    """One latent function per class, independent of each other a priori.

    As the kernel of a model with `likelihoods.MultinomialProbit` it takes X as all kernels do. Inference works with the
    combinations Σ_c w_c f_c(x) + u_i (`ClassRows`), of which it gives the covariance.

    Args:
        kernels: One kernel per class, or a single one for all.
        classes: Number of classes if a single kernel serves all.

    >>> from quantprop import kernels
    >>> smooth, rough = kernels.SquaredExponential(2.0, 3.0), kernels.Matern12()
    >>> kernels.PerClass((smooth, smooth, rough)).classes
    3
    """

    kernels: tuple[Kernel, ...]
    classes: int = field(static=True)

    def __init__(self, kernels: tuple[Kernel, ...] | list[Kernel], classes: int | None = None) -> None:
        self.kernels = tuple(kernels)
        self.classes = len(self.kernels) if classes is None else int(classes)

    def __check_init__(self) -> None:
        if self.classes < 2 or len(self.kernels) not in (1, self.classes):
            raise ValueError(
                "PerClass: kernels must have one kernel for each of two or more classes, or one for all of them with "
                f"classes=; got {len(self.kernels)} kernels and classes={self.classes}"
            )

    def _summed(self, a: ClassRows, b: ClassRows, covariances: list[Matrix]) -> Matrix:
        """Σ_c w_c w'_c k_c, and 1 for the same datum."""
        if len(covariances) == 1:
            total = (a.weights @ b.weights.T) * covariances[0]
        else:
            total = jnp.zeros((len(a.datum), len(b.datum)))
            for c, k in enumerate(covariances):
                total = total + a.weights[:, c, None] * k * b.weights[:, c]
        return total + jnp.where((a.datum[:, None] == b.datum) & (a.datum[:, None] >= 0), 1.0, 0.0)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.cross(x[None], z[None])[0, 0]

    def cross(self, x: Points, z: Others) -> Matrix:
        a, b = ClassRows.of(x, self.classes), ClassRows.of(z, self.classes)
        return self._summed(a, b, [kernel.cross(a.x, b.x) for kernel in self.kernels])

    def pairs(self, x: Points) -> Pairs:
        rows = ClassRows.of(x, self.classes)
        own: Pairs = {WEIGHTS: rows.weights, DATUM: rows.datum}
        for kernel in self.kernels:
            own = own | kernel.pairs(rows.x)
        return own

    def gram_of(self, pairs: Pairs) -> Matrix:
        rows = ClassRows(pairs[WEIGHTS], pairs[WEIGHTS], pairs[DATUM])  # x is in the kernels' own pieces
        return self._summed(rows, rows, [kernel.gram_of(pairs) for kernel in self.kernels])

    def _along(self, x: Points, of: str) -> tuple[ClassRows, Float[Array, " n"]]:
        """Σ_c w_c² times one number a row of each kernel."""
        rows = ClassRows.of(x, self.classes)
        each = jnp.stack([getattr(kernel, of)(rows.x) for kernel in self.kernels], axis=-1)
        return rows, jnp.sum(rows.weights**2 * each, axis=-1)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        rows, own = self._along(x, "diagonal")
        return own + jnp.where(rows.datum >= 0, 1.0, 0.0)

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self._along(x, "noise")[1]

    def by_column(self, count: int) -> Kernel:
        return PerClass(tuple(kernel.by_column(count) for kernel in self.kernels), self.classes)


class PerParameter(Combined):
    """Two latent functions, independent of each other a priori: f, and one behind a parameter of the likelihood.

    The kernel of a model with `likelihoods.Varying`. Wherever a single kernel is needed, it is that of f.

    Args:
        function: Kernel of f.
        parameter: Kernel of the logarithm, or of the log odds, of the parameter.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> kernels.PerParameter(kernels.Matern32(), kernels.SquaredExponential(0.5)).gram(np.zeros((1, 1))).tolist()
    [[1.0]]
    """

    function: Kernel
    parameter: Kernel

    def combine(self, function: Any, parameter: Any) -> Any:
        return function

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self.function.noise(x)


def functions_of(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels of the classes, or the one that all share."""
    if not isinstance(kernel, PerClass):
        raise TypeError(f"the process of several classes is one of kernels.PerClass; got {type(kernel).__name__}")
    return kernel.kernels


def in_form_of(form: Kernel, kernel: Kernel) -> Kernel:
    """A kernel of one function in the form that joint classes or comparisons have, unless it is in that form."""
    if isinstance(form, PerClass) and not isinstance(kernel, PerClass):
        return PerClass((kernel,), form.classes)
    return Difference(kernel) if isinstance(form, Difference) and not isinstance(kernel, Difference) else kernel


def in_own_form(kernel: Kernel) -> Kernel:
    """The reverse: the kernel of one function, unless classes have a kernel each."""
    if isinstance(kernel, PerClass):
        return kernel.kernels[0] if len(kernel.kernels) == 1 else kernel
    return kernel.kernel if isinstance(kernel, Difference) else kernel
