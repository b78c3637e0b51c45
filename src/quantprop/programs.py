"""Compiled programs: `jax.jit`, with the choice of XLA's code generator that suits programs like these."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import jax

from quantprop.memory import explained

P = ParamSpec("P")
R = TypeVar("R")

# XLA's newer generator for fused loops takes about twice as long over programs of many small scalar formulas, and what
# it makes is no faster: at n = 200, 2.4 s against 1.3 s to compile probit EP.
OLDER_GENERATOR = {"xla_cpu_use_fusion_emitters": False}


def program(function: Callable[P, R], static_argnames: str | None = None) -> Callable[P, R]:
    """The function, compiled once for every shape and structure of its arguments, and value of the static ones."""

    @cache
    def compiled() -> Callable[P, R]:
        chosen = _compiler_options() if jax.default_backend() == "cpu" else None
        return jax.jit(function, static_argnames=static_argnames, compiler_options=chosen)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with explained((args, kwargs)):
            return compiled()(*args, **kwargs)

    return call


@cache
def _compiler_options() -> dict[str, bool]:
    """The older generator, where this XLA still has it."""
    try:
        jax.jit(lambda x: x, compiler_options=OLDER_GENERATOR).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:  # an XLA with one generator only
        return {}
    return OLDER_GENERATOR
