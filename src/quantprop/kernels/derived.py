"""Columns that formulas derive from others, as in `log(dose)`: a function by name, applied to the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

import numpy as np
from jaxtyping import Float

FUNCTIONS = {"log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "exp": np.exp,
             "missing": lambda values: np.isnan(values).astype(float)}  # fmt: skip


class Derived(NamedTuple):
    """A column: its source in the data, and the name of the function that is applied to it; none if it is empty."""

    source: str
    function: str = ""

    @staticmethod
    def of(column: Any, there: Iterable[Any] = ()) -> Derived:
        """A column by its name, such as "log(dose)"; `there` are the columns of the data, which come first."""
        function, bracket, rest = str(column).partition("(")
        is_derived = bracket and function in FUNCTIONS and rest.endswith(")") and column not in there
        return Derived(rest[:-1], function) if is_derived else Derived(str(column))

    def applied(self, values: Float[np.ndarray, " n"], fail: Callable[[int, str], NoReturn]) -> Float[np.ndarray, " n"]:
        """The column from its source; `fail` receives the first row without a finite value, and what is wrong."""
        if not self.function:
            return values
        with np.errstate(all="ignore"):
            found = FUNCTIONS[self.function](values)
        if not (good := np.isfinite(found)).all():
            row = int(np.argmin(good))
            fail(row, f"{self.function}({values[row]:g}) is not a finite number: correct or leave out the row, or use "
                      f"{self.source} itself in the kernel")  # fmt: skip
        return found


def with_derived(names: tuple[Any, ...], columns: Iterable[Any]) -> tuple[Any, ...]:
    """Names of the columns of data, and after them those of `columns` that are derived from one of them."""
    found = {c: Derived.of(c, names) for c in columns}
    return (*names, *(c for c, each in found.items() if each.function and each.source in names))
