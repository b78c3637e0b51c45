"""Compiled programs: `jax.jit`, with the choice of XLA's code generator that suits programs like these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from quantprop.garbage import uncollected
from quantprop.memory import explained

P = ParamSpec("P")
R = TypeVar("R")

# XLA's newer generator for fused loops takes about twice as long over programs of many small scalar formulas, and what
# it makes is no faster: at n = 200, 2.4 s against 1.3 s to compile probit EP.
OLDER_GENERATOR = {"xla_cpu_use_fusion_emitters": False}
# LLVM's level 3 takes a quarter longer than level 1, and fits are 2 to 3 % faster with it: loops over data are short,
# and matrices are BLAS's.
LOWER_LEVEL = {"xla_backend_optimization_level": 1}


class Program(Generic[P, R]):
    """A function, compiled once for every shape and structure of its arguments, and value of the static ones."""

    def __init__(self, function: Callable[P, R], static_argnames: str | None) -> None:
        self.function, self.static_argnames = function, static_argnames
        update_wrapper(self, function)

    @cached_property
    def jitted(self) -> Any:
        """The function as JAX compiles it; asked for only when it is called, since it asks for a device."""
        chosen = _compiler_options() if jax.default_backend() == "cpu" else None
        return jax.jit(self.function, static_argnames=self.static_argnames, compiler_options=chosen)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with explained((args, kwargs)):
            return self.jitted(*args, **kwargs)

    def shapes(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What it would return, shapes and types in place of numbers."""
        return self.jitted.eval_shape(*args, **kwargs)

    def lowered(self, *args: Any, **kwargs: Any) -> Any:
        """What XLA compiles for arguments of these shapes; once it has, a call with such arguments finds it."""
        return self.jitted.lower(*args, **kwargs)


def program(function: Callable[P, R], static_argnames: str | None = None) -> Program[P, R]:
    """The function as a program."""
    return Program(function, static_argnames)


@contextmanager
def compiling(lowered: Iterable[Any]) -> Iterator[None]:
    """Compile programs in threads, as they come, until the end of the block: XLA does it without Python's lock, and
    mostly on one core for each.
    """
    with uncollected(), ThreadPoolExecutor(os.cpu_count()) as threads:
        tasks = [threads.submit(one.compile) for one in lowered]
        yield
        for task in tasks:
            task.result()


@cache
def _compiler_options() -> dict[str, Any]:
    """For CPUs: the older generator, where this XLA still has it, and the lower level, unless the user chose one."""
    chosen = {} if next(iter(LOWER_LEVEL)) in os.environ.get("XLA_FLAGS", "") else LOWER_LEVEL
    try:
        jax.jit(lambda x: x, compiler_options=OLDER_GENERATOR).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:  # an XLA with one generator only
        return chosen
    return chosen | OLDER_GENERATOR
