"""Points that explain the terms of a kernel which have few independent values: effects of levels, lines, a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.kernels import Constant, Kernel, Linear, Lines, White, summands
from quantprop.kernels.categories import CODED
from quantprop.kernels.structure import leaves
from quantprop.priors.inducing.rows import ROUNDINGS, independent
from quantprop.runtime.jobs import gathered
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program

LEVELS = 2048  # most values of a term that are explained exactly
SAMPLED = 256  # rows that show how many values a term with more of them has
EXPLAINED = Linear, Lines, Constant, *CODED

_independent = program(lambda term, x: independent(term.cross(x, x), ROUNDINGS * len(x) * float(jnp.finfo(x).eps)))


def of_levels(term: Kernel) -> bool:
    """Return whether a term has an effect, or a slope, for each level of a column."""
    return has_few_values(term) and any(isinstance(part, CODED) for part, _ in leaves(term))


def has_few_values(term: Kernel) -> bool:
    """Return whether a term is a product of effects of levels, lines and constants."""
    return all(isinstance(part, EXPLAINED) for part, _ in leaves(term))


def exact_points(
    kernel: Kernel, x: Float[np.ndarray, "n d"], which: Callable[[Kernel], bool] = has_few_values
) -> tuple[Float[np.ndarray, "k d"], ...]:
    """Points that explain each such term exactly: none of terms with many values, of a kernel that is one term, and of
    terms of one form.
    """
    terms = summands(kernel)
    forms = [jax.tree.structure(term) for term in terms]
    alone = [len(terms) > 1 and forms.count(form) == 1 for form in forms]
    return tuple(_points_of(term, x) if one and which(term) else x[:0] for term, one in zip(terms, alone, strict=True))


def _points_of(term: Kernel, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "k d"]:
    rows = different(seen_by(term, x))
    few = len(rows) <= LEVELS
    rows = rows if few else rows[np.linspace(0, len(rows) - 1, SAMPLED).astype(int)]
    rows = rows[to_numpy(_independent(term, rows)) > 0]
    return rows if few or len(rows) <= x.shape[1] else x[:0]


def different(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "k d"]:
    """The different rows of x, of all processes."""
    return np.unique(np.concatenate(gathered(np.unique(x, axis=0))), axis=0)


def seen_by(kernel: Kernel, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """x, with 0 in columns that the kernel does not see."""
    columns: set[Any] = set()
    for leaf, seen in leaves(kernel):
        columns |= set() if isinstance(leaf, (Constant, White)) else set(range(x.shape[1]) if seen is None else seen)
    return np.where([column in columns for column in range(x.shape[1])], x, 0.0)
