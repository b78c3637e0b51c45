"""Formulas of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from quantprop.core.parameters import is_parameter
from quantprop.kernels.additive import Additive
from quantprop.kernels.base import Column, Columns, Kernel, Power, Product, Sum
from quantprop.kernels.building import KINDS
from quantprop.kernels.categories import CentredFactor
from quantprop.kernels.grammar import quoted

NAMES = {**{kind.make: name for name, kind in KINDS.items()}, CentredFactor: "factor"}


def written(kernel: Kernel, digits: int | None = 4, names: Sequence[str] = ()) -> str:
    """Write a kernel as a formula.

    Args:
        kernel: A kernel.
        digits: Significant digits of parameters; None omits them.
        names: Names of the columns of X, if the kernel does not know them.

    Returns:
        The formula, which `Terms` reads.

    >>> from quantprop import kernels
    >>> kernels.written(kernels.Categories(0.5).on("school") * kernels.Linear().on("age"))
    'group(school, variance=0.5) * linear(age, variance=1)'
    """
    return _written(kernel, digits, tuple(names), 0)


def _written(kernel: Kernel, digits: int | None, seen: tuple[Column, ...], strength: int) -> str:
    if isinstance(kernel, Columns):
        own = kernel.names or tuple(seen[c] if isinstance(c, int) and c < len(seen) else c for c in kernel.columns)
        return _written(kernel.kernel, digits, own, strength)
    if isinstance(kernel, (Sum, Product)):
        symbol, own = kernel._operator
        text = f" {symbol} ".join(_written(part, digits, seen, own) for part in (kernel.left, kernel.right))
        return f"({text})" if own < strength else text
    if isinstance(kernel, Power):
        return f"{_written(kernel.base, digits, seen, 3)} ** {kernel.exponent:g}"
    if type(kernel) not in NAMES:
        raise TypeError(f"{type(kernel).__name__} cannot be written as a formula")
    name = NAMES[type(kernel)]
    columns = [quoted(column) for column in seen] if 1 in KINDS[name].columns else []
    columns = ["*"] if isinstance(kernel, Additive) and not seen else columns
    return f"{name}({', '.join([*columns, *_options(kernel, name, digits)])})"


def _options(kernel: Any, name: str, digits: int | None) -> list[str]:
    """The parameters of a term; without digits, those that say what it is."""
    wanted = KINDS[name].parameters
    if digits is None:
        wanted = [parameter for parameter in wanted if parameter in ("rank", "period", "order")]
    if sums := isinstance(kernel, CentredFactor):
        wanted = [parameter for parameter in wanted if parameter == "variance"]
    given = ((option, getattr(kernel, option)) for option in wanted if option != "coding")
    given = ((option, value) for option, value in given if option != "centre" or is_parameter(value))
    there = ((option, value) for option, value in given if value is not None and np.size(jax.tree.leaves(value)))
    return [*(f"{option}={_number(value, digits)}" for option, value in there), *["coding=sum"] * sums]


def _number(value: Any, digits: int | None) -> str:
    numbers = np.asarray(value.value if is_parameter(value) else value, dtype=np.float64)
    short = 4 if digits is None else digits
    every = [repr(float(entry)) if short >= 17 else f"{entry:.{short}g}" for entry in numbers.ravel()]
    entries = [entry.removesuffix(".0") for entry in every]
    return f"[{', '.join(entries)}]" if numbers.ndim else entries[0]
