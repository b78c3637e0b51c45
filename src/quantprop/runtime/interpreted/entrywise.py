"""JAX's primitives that act entry by entry, in NumPy and SciPy. NumPy makes shapes equal, so that arguments may be of
length one along an axis.

Every entry of a table takes the parameters of an equation and returns a function of arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]
Made = Callable[..., Function]


class Unknown(Exception):
    """A primitive, or a use of one, that has no equivalent here."""


def _plain(function: Function) -> Made:
    return lambda **_: function


def _special(name: str) -> Made:
    """A function of SciPy, which is imported when one is needed."""

    def made(**_: Any) -> Function:
        import scipy.special

        return getattr(scipy.special, name)

    return made


def _product(out_dtype: Any = None, **_: Any) -> Function:
    if out_dtype is not None:
        raise Unknown("mul")
    return np.multiply


def _integer_power(y: int, **_: Any) -> Function:
    """By repeated squares, as XLA does."""

    def power(x: Any) -> Any:
        whole, square, left = None, x, abs(y)
        while left:
            if left & 1:
                whole = square if whole is None else whole * square
            left >>= 1
            square = square * square if left else square
        whole = np.ones_like(x) if whole is None else whole
        return 1.0 / whole if y < 0 else whole

    return np.square if y == 2 else power


def _rounded(rounding_method: Any, **_: Any) -> Function:
    if int(rounding_method) == 1:
        return np.rint  # halves to even
    return lambda x: np.trunc(x + np.copysign(np.nextafter(0.5, 0.0), x))  # halves away from zero


def _converted(new_dtype: Any, **_: Any) -> Function:
    kind = np.dtype(new_dtype)
    if not np.issubdtype(kind, np.integer):
        return lambda x: np.asarray(x, dtype=kind)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max

    def whole(x: Any) -> Any:
        if not np.issubdtype(x.dtype, np.floating):
            return np.asarray(x, dtype=kind)
        inside = np.where((x > low) & (x < high), x, 0.0).astype(kind)  # NaN becomes 0
        return np.where(x >= high, kind.type(high), np.where(x <= low, kind.type(low), inside))

    return whole


def _selected(which: Any, no: Any, yes: Any) -> Any:
    return np.where(which, yes, no)


def _selected_by_number(which: Any, *cases: Any) -> Any:
    chosen = cases[-1]
    for place in reversed(range(len(cases) - 1)):
        chosen = np.where(which <= place, cases[place], chosen)
    return chosen


def _quotient_of_integers(x: Any, y: Any) -> Any:
    """Towards 0; by 0 it is -1, as XLA has it."""
    safe = np.where(y == 0, 1, y)
    quotient = x // safe + ((x % safe != 0) & ((x < 0) != (safe < 0)))
    return np.where(y == 0, np.array(-1).astype(x.dtype), quotient).astype(x.dtype)


def _remainder(x: Any, y: Any) -> Any:
    if np.issubdtype(x.dtype, np.floating):
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _log_gamma(**_: Any) -> Function:
    import scipy.special

    return lambda x: np.where(np.isneginf(x), np.inf, scipy.special.gammaln(x))


def _before(x: Any, y: Any) -> Any:
    """Whether x comes before y in the order of all floats, in which -0 comes before 0, and NaN last."""
    if not np.issubdtype(x.dtype, np.floating):
        return x < y
    x, y = (np.asarray(each, dtype=np.float64).view(np.int64) for each in (x, y))
    return (x ^ (x >> 63 & np.int64(2**63 - 1))) < (y ^ (y >> 63 & np.int64(2**63 - 1)))


def _itself(x: Any) -> Any:
    return x


ENTRYWISE: dict[str, Made] = {
    name: _plain(function)
    for name, function in {
        "add": np.add, "add_any": np.add, "sub": np.subtract, "div": np.divide, "rem": _remainder, "neg": np.negative,
        "sign": np.sign, "abs": np.abs, "square": np.square, "sqrt": np.sqrt, "cbrt": np.cbrt, "pow": np.power,
        "rsqrt": lambda x: 1.0 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log,
        "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
        "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
        "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "max": np.maximum,
        "min": np.minimum, "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high), "eq": np.equal,
        "ne": np.not_equal, "lt": np.less, "lt_to": _before, "le": np.less_equal, "gt": np.greater,
        "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
        "is_finite": np.isfinite, "nextafter": np.nextafter, "select_n": _selected,
        "integer quotient": _quotient_of_integers, "selection by number": _selected_by_number, "copy": _itself,
        "stop_gradient": _itself,
    }.items()
}  # fmt: skip
ENTRYWISE |= {
    "mul": _product,
    "integer_pow": _integer_power,
    "round": _rounded,
    "convert_element_type": _converted,
}
SPECIAL: dict[str, Made] = {
    name: _special(scipys)
    for name, scipys in {
        "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "digamma": "digamma", 
        "logistic": "expit", "igamma": "gammainc", "igammac": "gammaincc", "regularized_incomplete_beta": "betainc",
        "bessel_i0e": "i0e", "bessel_i1e": "i1e", "polygamma": "polygamma",
    }.items()
}  # fmt: skip
SPECIAL |= {"lgamma": _log_gamma}
