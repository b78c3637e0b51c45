"""Hyperparameters, and the vector θ of those that learning moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import Record, changed, field, is_record
from quantprop.runtime.arguments import BOOLEAN
from quantprop.runtime.display import Form, expression, full


def vector(given: Any) -> Any:
    """A sequence of numbers as one array (one leaf), anything else as it is: a converter for fields."""
    return np.asarray(given, dtype=np.float64) if isinstance(given, (list, tuple)) else given


class Parameter(Record):
    """A number or vector of a kernel, likelihood or mean, with instructions for learning.

    A plain number behaves as a Parameter with the bounds that its owner declares (class attribute `bounds`), and is
    fixed if there are none. If its lower bound is positive, a parameter is learned on a log scale.

    Args:
        value: The value, or the starting value if it is learned.
        bounds: (lower, upper) in natural units, each one value or one per entry.
        prior: Log density of the value, a function in jax.numpy.
        fixed: If True, the value is not learned.
        ordered: If True, the entries increase, as cutpoints do; learned by the first entry and the logarithms of the
            gaps.

    >>> from quantprop import Parameter, kernels
    >>> kernels.SquaredExponential(variance=Parameter(2.0, bounds=(0.1, 10.0)), lengthscale=1.0).variance.value
    2.0
    """

    value: Any = field(converter=vector)
    bounds: Any = field(default=None, static=True)  # (lower, upper), each a number or a tuple of one per entry
    prior: Callable | None = field(default=None, static=True)
    fixed: bool = field(default=False, static=True)
    ordered: bool = field(default=False, static=True)

    def _expression(self, form: Form) -> str:
        """A number is what people look for; Python needs the rest too."""
        if form is not full:
            return expression(self.value, form) + " fixed" * self.fixed
        named = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self)[1:])
        more = [
            f"{name}={expression(value, form)}" for name, value in named if value is not None and value is not False
        ]
        return f"Parameter({', '.join([expression(self.value, form), *more])})"

    def __check_init__(self) -> None:
        for name in ("fixed", "ordered"):
            BOOLEAN.check(f"Parameter: {name}", getattr(self, name))
        if isinstance(self.value, (str, complex)):
            raise TypeError(f"Parameter: value must be a real number or a vector of them; got {self.value!r}")
        if self.bounds is not None and not np.all(np.less(*self.bounds)):
            raise ValueError(f"Parameter: bounds must be (lower, upper) with lower < upper; got {self.bounds}")


def bounded(**bounds: tuple[float, float]) -> Mapping[str, tuple[float, float]]:
    """The class attribute `bounds` of a kernel or likelihood: what learning may change, and how far."""
    return bounds


@dataclasses.dataclass(frozen=True)
class LogNormal:
    """Prior of a positive parameter: log value ~ N(log median, deviation²).

    Called with a value, it returns the density of the logarithm up to a constant: 0 at the median.

    Args:
        median: Median of the value.
        deviation: Standard deviation of its logarithm.

    >>> from quantprop import LogNormal, Parameter, kernels
    >>> kernel = kernels.SquaredExponential(variance=Parameter(1.0, prior=LogNormal(1.0, 3.0)))
    """

    median: float
    deviation: float

    def __post_init__(self) -> None:
        if not (0 < self.median < np.inf and 0 < self.deviation < np.inf):
            raise ValueError(f"LogNormal: median and deviation must be positive; got {self.median}, {self.deviation}")

    def __call__(self, value: Any) -> Any:
        return -0.5 * (jnp.log(value / self.median) / self.deviation) ** 2


def is_parameter(node: Any) -> TypeGuard[Parameter]:
    return isinstance(node, Parameter)


def map_parameters(function: Callable[[Parameter], Any], tree: Any) -> Any:
    return jax.tree.map(lambda node: function(node) if is_parameter(node) else node, tree, is_leaf=is_parameter)


def values(tree: Any) -> Any:
    """The tree with every Parameter replaced by its value and every number by a float64 array."""
    return jax.tree.map(_float64, map_parameters(lambda parameter: parameter.value, tree))


def declared(node: Any) -> Any:
    """The tree with a Parameter, bounds and all, instead of every number."""
    if not is_record(node):
        return node
    numbers = {f.name: getattr(node, f.name) for f in dataclasses.fields(node) if not f.metadata.get("static")}
    given = {name: child for name, child in numbers.items() if child is not None}
    return changed(node, **{name: _declared_child(node, name, child) for name, child in given.items()})


def as_fixed(node: Any) -> Any:
    """A number, Parameter or record with all of its numbers declared fixed."""
    return map_parameters(lambda p: changed(p, fixed=True), node if is_parameter(node) else declared(node))


def _declared_child(owner: Any, name: str, child: Any) -> Any:
    if name in getattr(owner, "trees", ()):  # of Parameters, as its owner made it
        return child
    if is_record(child) and not is_parameter(child):
        return declared(child)
    if isinstance(child, tuple):
        return tuple(_declared_child(owner, name, part) for part in child)
    bounds = getattr(owner, "bounds", {}).get(name)
    ordered = name in getattr(owner, "ordered", ())
    if not is_parameter(child):
        return child if callable(child) else Parameter(_float64(child), bounds, None, bounds is None, ordered)
    bounds = child.bounds if child.bounds is not None else bounds
    return Parameter(_float64(child.value), bounds, child.prior, child.fixed, child.ordered or ordered)


def _float64(value: Any) -> np.ndarray:
    return np.asarray(value, dtype=np.float64)


# --- the vector that learning moves ----------------------------------------------------------------------------------


def free(tree: Any) -> list[Parameter]:
    """The parameters of a declared tree that learning moves, in order."""
    found = jax.tree.leaves(tree, is_leaf=is_parameter)
    return [node for node in found if is_parameter(node) and not node.fixed]


def logarithmic(parameter: Parameter) -> bool:
    """Return whether learning moves its logarithm."""
    return parameter.bounds is not None and bool(np.all(np.greater(parameter.bounds[0], 0))) and not parameter.ordered


def packed(tree: Any) -> Float[np.ndarray, " theta"]:
    """The vector θ of a declared tree: logarithms of positive parameters, others as they are."""
    return np.concatenate([np.zeros(0), *(_coordinates(p) for p in free(tree))])


def _coordinates(parameter: Parameter) -> np.ndarray:
    value = np.asarray(parameter.value, dtype=np.float64)
    if parameter.ordered:
        return np.concatenate([value[:1], np.log(np.diff(value))])
    return np.log(value).ravel() if logarithmic(parameter) else value.ravel()


def unpacked(tree: Any, theta: Any) -> Any:
    """The plain tree at θ: numbers instead of all parameters. Differentiable."""
    pieces = _pieces(tree, theta)
    return map_parameters(lambda parameter: _plain(parameter, pieces), tree)


def _pieces(tree: Any, theta: Any) -> Iterator[Any]:
    """θ split into one piece per free parameter."""
    start = 0
    for parameter in free(tree):
        size = int(np.size(parameter.value))
        yield theta[start : start + size]
        start += size


def _plain(parameter: Parameter, pieces: Iterator[Array]) -> Any:
    if parameter.fixed:
        return parameter.value
    piece = next(pieces)
    xp = np if isinstance(piece, np.ndarray) else jnp  # plain numbers need no compiled operations
    if parameter.ordered:
        return piece[0] + xp.concatenate([xp.zeros(1), xp.cumsum(xp.exp(piece[1:]))])
    return xp.reshape(xp.exp(piece) if logarithmic(parameter) else piece, np.shape(parameter.value))


def without_bounds(tree: Any) -> Any:
    """A declared tree whose bounds only imply the same scales, so that one compiled program serves all bounds."""
    return map_parameters(lambda p: changed(p, bounds=(1.0, 2.0) if logarithmic(p) else None), tree)


def at(tree: Any, theta: Float[np.ndarray, " theta"]) -> Any:
    """A declared tree with the values of its free parameters at θ."""
    pieces = _pieces(tree, _float64(theta))
    return map_parameters(lambda parameter: changed(parameter, value=np.asarray(_plain(parameter, pieces))), tree)


def box(tree: Any) -> Float[np.ndarray, "theta 2"]:
    """Bounds of θ; infinite where a parameter has none."""
    rows = [np.zeros((0, 2))]
    for parameter in free(tree):
        size = int(np.size(parameter.value))
        lower, upper = parameter.bounds if parameter.bounds is not None else (-np.inf, np.inf)
        ends = np.stack([np.broadcast_to(end, (size,)) for end in (lower, upper)], axis=1)
        if parameter.ordered:
            rows.append(np.array([[-np.inf, np.inf], *[[np.log(1e-6), np.log(1e6)]] * (size - 1)]))
        else:
            rows.append(np.log(ends) if logarithmic(parameter) else ends)
    return np.concatenate(rows)


def log_prior(tree: Any, theta: Float[Array, " theta"]) -> Any:
    """Σ log densities that parameters were given, at θ."""
    pieces, total = _pieces(tree, theta), jnp.zeros(())
    for parameter in free(tree):
        value = _plain(parameter, pieces)
        if parameter.prior is not None:
            total = total + jnp.sum(parameter.prior(value))
    return total


def named(tree: Any) -> Iterator[tuple[str, Parameter]]:
    """Every parameter of a declared tree with its path, such as kernel.left.lengthscale."""
    for path, node in jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_parameter)[0]:
        if is_parameter(node):
            yield jax.tree_util.keystr(path).lstrip("."), node


def logarithms(tree: Any) -> list[bool]:
    """For each entry of θ, whether it is a parameter's logarithm; not so of an ordered vector, whose gaps are."""
    return [logarithmic(node) for node in free(tree) for _ in range(np.size(node.value))]


def labels(tree: Any) -> list[str]:
    """A name for every entry of θ; entries of a vector with their index."""
    found: list[str] = []
    for name, node in named(tree):
        if not node.fixed:
            several = np.ndim(node.value) > 0 and np.size(node.value) > 1
            found += [f"{name}[{i}]" for i in range(np.size(node.value))] if several else [name]
    return found
