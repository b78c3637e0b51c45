"""Kernels from elsewhere: any JAX function of two points, with a pytree of numbers that are learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.parameters import Parameter, is_parameter
from quantprop.core.records import field, is_record
from quantprop.kernels.base import Kernel, Point
from quantprop.kernels.size import check_size
from quantprop.runtime.display import Form, expression

RELATIVE_BOUNDS = (1e-5, 1e5)  # positive parameter / its starting value


class _Frame(NamedTuple):
    """A pytree without its numbers: where they go (by name), and all else; hashable, so that programs are shared."""

    structure: Any
    leaves: tuple

    def filled(self, numbers: dict[str, Any]) -> Any:
        """The pytree with these numbers in their places."""
        return jax.tree.unflatten(self.structure, [numbers[e.name] if type(e) is _Place else e for e in self.leaves])


class _Place(NamedTuple):
    name: str


class Pairwise(Kernel):
    """k(x, z) = function(parameters, x, z) for two points x and z, written in JAX.

    Floating-point parameters are learned: positive ones on a log scale within 1e-5 to 1e5 times their value, others
    without bounds, unless a Parameter specifies otherwise. Integers and everything else are fixed. The function must be
    a covariance, symmetric and positive semi-definite, for all values of its parameters.

    Args:
        function: Covariance of two points.
        parameters: Any pytree (a number, a dict, a module) of numbers, arrays and Parameters, passed to the function.

    >>> import jax.numpy as jnp
    >>> from quantprop import kernels
    >>> def rbf(p, x, z):
    ...     return p["variance"] * jnp.exp(-0.5 * jnp.sum((x - z) ** 2) / p["lengthscale"] ** 2)
    >>> kernel = kernels.Pairwise(rbf, {"variance": 2.0, "lengthscale": 0.5}) + kernels.White(0.1)
    """

    function: Callable = field(static=True)
    parameters: dict[str, Any]  # by the place of each number in the pytree
    frame: _Frame = field(static=True)

    stored = False
    trees = frozenset({"parameters"})  # fields whose leaves are Parameters already

    def __init__(self, function: Callable[[Any, Any, Any], Any], parameters: Any = None) -> None:
        if not callable(function):
            raise TypeError(f"Pairwise: function must be a function of (parameters, x, z); got {function!r}")
        places, structure = jax.tree_util.tree_flatten_with_path(parameters, is_leaf=is_parameter)
        numbers, leaves = {}, []
        for path, leaf in places:
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "value"
            numbers |= {name: _learned(leaf)} if _is_number(leaf) else {}
            leaves.append(_Place(name) if _is_number(leaf) else _fixed(leaf, name))
        self.function, self.parameters, self.frame = function, numbers, _Frame(structure, tuple(leaves))

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return jnp.asarray(self.function(self.frame.filled(self.parameters), x, z))

    def _expression(self, form: Form) -> str:
        numbers = ", ".join(f"{name!r}: {expression(value, form)}" for name, value in self.parameters.items())
        return f"Pairwise({getattr(self.function, '__name__', self.function)}, {{{numbers}}})"


def _is_number(leaf: Any) -> bool:
    return is_parameter(leaf) or (not isinstance(leaf, (bool, int)) and np.asarray(leaf).dtype.kind == "f")


def _learned(leaf: Any) -> Parameter:
    """A number as a Parameter: on a log scale where it is positive."""
    if is_parameter(leaf):
        return leaf
    value = np.asarray(leaf, dtype=np.float64)
    if not np.isfinite(value).all():
        raise ValueError(f"Pairwise: parameters must be finite numbers; got {value}")
    low, high = float(value.min(initial=np.inf)), float(value.max(initial=-np.inf))
    return Parameter(value, bounds=(RELATIVE_BOUNDS[0] * low, RELATIVE_BOUNDS[1] * high) if low > 0 else None)


def _fixed(leaf: Any, name: str) -> Any:
    """A leaf that is not learned: it must be hashable, since compiled programs depend on it."""
    try:
        hash(leaf)
    except TypeError:
        kind = f"an array of {leaf.dtype}" if hasattr(leaf, "dtype") else repr(leaf)
        raise TypeError(
            f"Pairwise: {name} is {kind}, which is neither learned nor hashable: put it into the function (a closure "
            "or functools.partial), or pass numbers as floats"
        ) from None
    return leaf


def _evaluated(kernel: Any, x: Point, z: Point) -> Any:
    return kernel.evaluate(x, z)


def from_tinygp(kernel: Any) -> Pairwise:
    """Wrap a kernel of tinygp, whose floating-point values are learned. Importing this does not need tinygp.

    Points are rows of X, so a kernel of one feature receives points of shape (1,). Sums, products and transforms are
    kept.

    Args:
        kernel: A kernel of tinygp.

    Returns:
        A `Pairwise` kernel.

    >>> import tinygp
    >>> from quantprop import kernels
    >>> kernel = kernels.from_tinygp(1.5 * tinygp.kernels.Matern32(2.0)) + kernels.White(0.1)
    """
    if not (is_record(kernel) and hasattr(kernel, "evaluate")):
        raise TypeError(f"from_tinygp: kernel must be a tinygp.kernels.Kernel; got {kernel!r}")
    check_size(kernel, lambda part: hasattr(part, "evaluate"))
    return Pairwise(_evaluated, kernel)
