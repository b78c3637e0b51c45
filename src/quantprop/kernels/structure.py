"""The parts of a kernel: the terms of a sum, and the columns of each part."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from quantprop.core.records import changed
from quantprop.kernels.additive import Additive
from quantprop.kernels.base import Column, Columns, Kernel, Sum, Transformed
from quantprop.kernels.categories import CODED, Coregion, NewLevelWarning
from quantprop.kernels.simple import Constant, Linear, Lines, White
from quantprop.kernels.standardised import RankNormal
from quantprop.runtime.precision import float64

Seen = tuple[Column, ...] | None  # columns that a part sees; None: all of them


def summands(kernel: Kernel) -> list[Kernel]:
    """Split a sum into its terms, from left to right; a sum on some columns gives each term on these columns.

    Args:
        kernel: A kernel.

    Returns:
        The terms.

    >>> from quantprop import kernels
    >>> len(kernels.summands(kernels.Linear() + kernels.White() + kernels.Constant()))
    3
    """
    if isinstance(kernel, Sum):
        return [*summands(kernel.left), *summands(kernel.right)]
    if isinstance(kernel, Columns) and len(parts := summands(kernel.kernel)) > 1:
        return [Columns(part, kernel.columns, kernel.names) for part in parts]
    return [kernel]


def inside(kernel: Columns, seen: Seen, called: bool = False) -> tuple[Column, ...]:
    """The columns that the kernel inside of it sees, if those are the ones that it sees itself."""
    own = kernel.names if called and kernel.names else kernel.columns
    return own if seen is None else tuple(seen[c] if isinstance(c, int) else c for c in own)


def leaves(kernel: Kernel, seen: Seen = None, called: bool = False) -> Iterator[tuple[Kernel, Seen]]:
    """The kernels that are made of no others, with the columns each sees: by name, where `called` and it has some."""
    if isinstance(kernel, Columns):
        yield from leaves(kernel.kernel, inside(kernel, seen, called), called)
    elif kernel.inner_kernels:
        for part in kernel.inner_kernels.values():
            yield from leaves(part, seen, called)
    else:
        yield kernel, None if isinstance(kernel, (Constant, White)) else seen


def with_leaves(kernel: Any, change: Callable[[Any, Seen], Kernel], seen: Seen = None) -> Any:
    """A kernel whose leaves are those that `change` returns for each and the columns that it sees."""
    if isinstance(kernel, Columns):
        seen = inside(kernel, seen)
    return (
        kernel.rebuilt(lambda part: with_leaves(part, change, seen)) if kernel.inner_kernels else change(kernel, seen)
    )


def columns_of(kernel: Kernel, called: bool = False) -> tuple[Column, ...]:
    """List the columns that parts of a kernel act on, in order of first mention.

    Args:
        kernel: A kernel.
        called: If True, columns are given by name where the kernel knows it.

    Returns:
        Positions, or names.

    >>> from quantprop import kernels
    >>> kernels.columns_of(kernels.Linear().on([2]) + kernels.Matern12().on([0, 2]))
    (2, 0)
    """
    return tuple(dict.fromkeys(c for _, seen in leaves(kernel, called=called) for c in seen or ()))


def groups_of(kernel: Kernel, called: bool = False) -> tuple[Column, ...]:
    """List the columns of categories that a kernel acts on.

    Args:
        kernel: A kernel.
        called: If True, columns are given by name where the kernel knows it.

    Returns:
        Positions, or names.

    >>> from quantprop import kernels
    >>> kernels.groups_of(kernels.Linear().on([2]) + kernels.Categories().on([1]))
    (1,)
    """
    groups = (seen for leaf, seen in leaves(kernel, called=called) if isinstance(leaf, CODED))
    return tuple(dict.fromkeys(c for seen in groups for c in seen or ()))


def bare(kernel: Kernel) -> list[Kernel]:
    """The leaves that see all columns of X, because they were put on none."""
    return [leaf for leaf, seen in leaves(kernel) if seen is None and not isinstance(leaf, (Constant, White))]


def warn_of_levels(kernel: Kernel, x: np.ndarray, counts: np.ndarray) -> None:
    """Name a row that counts and whose level a Coregion has no covariance of."""
    for leaf, seen in leaves(kernel):
        column = seen[0] if seen else None
        if isinstance(leaf, Coregion) and leaf.levels and isinstance(column, int) and column < x.shape[1]:
            wrong = counts & ~np.isin(x[:, column], np.arange(leaf.levels))
            if wrong.any():
                row = int(np.argmax(wrong))
                warnings.warn(
                    f"X[{row}, {column}] = {x[row, column]:g} is not a level of Coregion(levels={leaf.levels}), whose "
                    f"codes go from 0 to {leaf.levels - 1}: such rows are independent of all others",
                    NewLevelWarning, stacklevel=6,
                )  # fmt: skip


def located(kernel: Any, names: Sequence[str]) -> Any:
    """Replace column names in a kernel by positions; the kernel remembers the names.

    Args:
        kernel: A kernel.
        names: Names of the columns of X.

    Returns:
        The kernel with positions.

    >>> from quantprop import kernels
    >>> kernels.located(kernels.Linear().on(["age"]), ("dose", "age")).columns
    (1,)
    """
    if not isinstance(kernel, Columns):
        return kernel.rebuilt(lambda part: located(part, names))
    for column in kernel.columns:
        if isinstance(column, str) and column not in names:
            raise ValueError(f"kernel: X has no column {column!r}; it has {', '.join(map(repr, names))}")
    at = tuple(names.index(c) if isinstance(c, str) else c for c in kernel.columns)
    called = tuple(str(names[i]) if i < len(names) else str(i) for i in at)
    return Columns(located(kernel.kernel, called), at, called)


def centred(kernel: Any, centre: np.ndarray) -> Any:
    """A kernel whose linear parts have the centre of their columns as their zero, where they have none of their own."""

    def change(leaf: Any, seen: Any) -> Kernel:
        if not isinstance(leaf, (Linear, Lines)) or leaf.centre is not None:
            return leaf
        return changed(leaf, centre=centre if seen is None else centre[np.array(seen)])

    return with_leaves(kernel, change)


def with_levels(kernel: Any, levels: dict[int, int]) -> Any:
    """A kernel whose Coregion parts know how many levels their column has; `levels` by position."""

    def change(leaf: Any, seen: Any) -> Kernel:
        known = isinstance(leaf, Coregion) and seen and seen[0] in levels
        return leaf.of_levels(levels[seen[0]]) if known else leaf

    return with_leaves(kernel, change)


@float64
def measured(kernel: Any, x: np.ndarray, counts: np.ndarray | None = None) -> Any:
    """A kernel whose Additive and RankNormal parts have the distributions of their columns in rows x, where they had
    none.
    """
    if isinstance(kernel, (Additive, RankNormal)):
        kernel = kernel.measured(x, counts)
    seen = np.asarray(kernel.of(jnp.asarray(x))) if isinstance(kernel, Transformed) else x
    return kernel.rebuilt(lambda part: measured(part, seen, counts))


def is_measured(kernel: Kernel) -> bool:
    """Return whether all Additive and RankNormal parts of a kernel have the distributions of their columns."""
    if isinstance(kernel, Additive):
        return bool(kernel.kinds)
    own = not isinstance(kernel, RankNormal) or kernel.values is not None
    return own and all(map(is_measured, kernel.inner_kernels.values()))
