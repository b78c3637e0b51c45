"""Rules for arguments, in one table by name, which public functions check on entry."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from math import inf
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

from quantprop.runtime.names import nearest

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Rule:
    """A condition for an argument or a field, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]
    error: type[Exception] = ValueError
    hint: Callable[[Any], str] = lambda value: ""  # the end of the message

    def check(self, name: str, value: Any) -> None:
        if not self.holds(value):
            raise self.error(f"{name} must be {self.words}; got {value!r:.200}{self.hint(value)}")


def is_number(value: Any) -> bool:
    """Return whether it is one real number; booleans and arrays are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def whole(least: int) -> Rule:
    """The rule for counts and seeds."""
    return Rule(f"an integer and at least {least}",
                lambda value: isinstance(value, Integral) and is_number(value) and int(value) >= least)  # fmt: skip


def choice(names: Iterable[str]) -> Rule:
    """The rule for one of some names."""
    words = f"one of {', '.join(names)}"
    return Rule(
        words, lambda value: isinstance(value, str) and value in names, hint=lambda value: nearest(value, names)
    )


def a(kind: Any, words: str | None = None) -> Rule:
    """The rule for a type."""
    return Rule(words or f"a {kind.__name__}", lambda value: isinstance(value, kind), TypeError)


def several(kind: Any, words: str) -> Rule:
    """The rule for a sequence of one type."""
    return Rule(words, lambda value: SEQUENCE.holds(value) and all(isinstance(one, kind) for one in value), TypeError)


BETWEEN = Rule("a number between 0 and 1", lambda value: is_number(value) and 0 < value < 1)
NUMBER = Rule("a number", is_number)
POSITIVE = Rule("a positive number", lambda value: is_number(value) and 0 < value < inf)
NOT_NEGATIVE = Rule("a number and at least 0", lambda value: is_number(value) and 0 <= value < inf)
BOOLEAN = Rule("True or False", lambda value: isinstance(value, (bool, np.bool_)), TypeError)
SEQUENCE = Rule("a sequence", lambda value: hasattr(value, "__len__") and not isinstance(value, (str, dict)), TypeError)
PATH = a((str, os.PathLike), "a path: text or a Path")
RULES = {
    "coverage": BETWEEN,
    "folder": PATH,
    "ftol": NOT_NEGATIVE,
    "gradient": choice(("exact", "partial")),
    "gtol": POSITIVE,
    "minutes": NOT_NEGATIVE,
    "path": PATH,
    "points": whole(2),
    "report": Rule("a function of two numbers", callable, TypeError),
    "restarts": whole(0),
    "seed": whole(0),
    "step": POSITIVE,
    "tol": POSITIVE,
    **dict.fromkeys(("full_cov", "progress", "return_cov", "return_std"), BOOLEAN),
    **dict.fromkeys(("bins", "horizon", "max_evaluations", "max_points", "max_sweeps", "n", "n_samples"), whole(1)),
}


def checked(**own: Rule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check arguments before a function is entered, by `own` rules or those of RULES. A default value passes."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        rules = {name: rule for name in signature.parameters if (rule := (RULES | own).get(name))}

        @wraps(function)
        def entered(*args: P.args, **kwargs: P.kwargs) -> R:
            given = signature.bind(*args, **kwargs).arguments
            for name in rules.keys() & given.keys():
                if given[name] is not signature.parameters[name].default:
                    rules[name].check(name, given[name])
            return function(*args, **kwargs)

        return entered

    return decorate
