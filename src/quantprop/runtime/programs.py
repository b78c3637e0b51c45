"""Compiled programs: `jax.jit`, with the choice of XLA's code generator that suits programs like these, and an LRU
cache that evicts programs before there are too many.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, update_wrapper
from itertools import count
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

from quantprop.runtime.forks import check_fork
from quantprop.runtime.garbage import uncollected
from quantprop.runtime.memory import explained
from quantprop.runtime.mesh import mesh_of
from quantprop.runtime.stored import kept
from quantprop.runtime.system import cores, memory_maps, most_memory_maps, return_freed_memory

P = ParamSpec("P")
R = TypeVar("R")

# XLA's newer generator for fused loops takes about twice as long over programs of many small scalar formulas, and what
# it makes is no faster: at n = 200, 2.4 s against 1.3 s to compile probit EP.
OLDER_GENERATOR = {"xla_cpu_use_fusion_emitters": False}
# A sum as a tree of sums takes five times as long to compile as a loop, and is no faster over a few thousand rows.
MANY_ROWS = 4096  # from which on a tree adds up more accurately too
PLAIN_SUMS = {"xla_disable_hlo_passes": "tree_reduction_rewriter"}
# LLVM's level 3 takes a quarter longer than level 1, and fits are 2 to 3 % faster with it: loops over data are short,
# and matrices are BLAS's.
LOWER_LEVEL = {"xla_backend_optimization_level": 1}
LOWEST_LEVEL = {
    "xla_backend_optimization_level": 0
}  # takes a third of the time, and makes loops over data twice as slow

# On a GPU XLA tries several ways to multiply matrices, which takes longer than all products of few rows; where other
# processes use it too, it waits for them, and times them.
UNTUNED = {"xla_gpu_autotune_level": 0}

MOST = 256  # programs kept: those of some 35 different fits; each takes about 3 MB and 70 memory maps
FEWEST = 32  # kept whatever else the process holds: more than one fit needs
SHARE = 1 / 3  # of the memory maps that a process may have, above which programs are evicted; at the limit it would die
WATCHED = 8  # new programs between two counts of the memory maps
ROUNDS = (
    8  # evictions between two at which JAX's own traces go too, 1 to 2 MB for every shape; what is left compiles anew
)


class Compiled:
    """A function of arrays as JAX compiles it, for arguments of one form and one set of shapes."""

    __slots__ = ("call", "used")

    def __init__(self, call: Any, used: int) -> None:
        self.call, self.used = call, used


class ProgramCache:
    """The compiled programs of the process, the least recently used of which are evicted.

    JAX keeps what it compiled for a function as long as the function lives, and frees it with the function. Therefore
    each form and set of shapes has a function of its own, held here and nowhere else.
    """

    def __init__(self) -> None:
        self.programs: dict[Hashable, Compiled] = {}
        self.ahead: set[Hashable] = set()  # keys whose programs have all been compiled, and none evicted since
        self.parts: list[Any] = []  # functions inside programs, whose traces JAX would keep
        self.gate, self.clock, self.made, self.evictions = Lock(), count(), 0, 0

    def find(self, key: Hashable) -> Compiled | None:
        """The program of this key, if it is there."""
        found = self.programs.get(key)
        if found is not None:
            found.used = next(self.clock)
        return found

    def add(self, key: Hashable, call: Any) -> Compiled:
        """Cache a program under its key, unless another thread has done so meanwhile; returns the cached one."""
        with self.gate:
            new = Compiled(call, next(self.clock))
            found = self.programs.setdefault(key, new)
            self.made += found is new
            if len(self.programs) > MOST or (self.made % WATCHED == 0 and _crowded()):
                self._evict()
            return found

    def _evict(self) -> None:
        """Evict a quarter of the programs, the least recently used, and all traces of their parts."""
        by_use = sorted(self.programs, key=lambda key: self.programs[key].used)
        for key in by_use[: min(len(by_use) // 4, max(0, len(by_use) - FEWEST))]:
            del self.programs[key]
        for part in self.parts:
            part.clear_cache()
        self.ahead.clear()
        self.evictions += 1
        if self.evictions % ROUNDS == 0:
            jax.clear_caches()
        gc.collect()  # functions and their traces refer to each other
        return_freed_memory()


_cache = ProgramCache()


def _crowded() -> bool:
    maps = memory_maps()
    return maps is not None and maps > SHARE * most_memory_maps()


class Program(Generic[P, R]):
    """A function, compiled once for every shape and structure of its arguments, and value of the static ones, which are
    passed by name.
    """

    def __init__(self, function: Callable[P, R], static_argnames: str | None, few: dict[str, Any] = PLAIN_SUMS) -> None:
        self.function, self.static_argnames, self.few = function, static_argnames, few
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with explained((args, kwargs)):
            compiled, leaves = self._compiled(args, kwargs)
            with mesh_of(leaves):
                return compiled(*leaves)

    def shapes(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What it would return, shapes and types in place of numbers."""
        compiled, leaves = self._compiled(args, kwargs)
        return compiled.eval_shape(*leaves)

    def ahead(self, *args: Any, **kwargs: Any) -> Any:
        """What `compile_ahead` is given before calls with arguments of these shapes: once XLA has compiled it, a call
        with such arguments finds it.
        """
        compiled, leaves = self._compiled(args, kwargs)
        with mesh_of(leaves):
            return compiled.lower(*leaves)

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The program for arguments like these, and the arrays in them."""
        check_fork()
        static = {}
        if self.static_argnames in kwargs:
            kwargs = dict(kwargs)
            static = {self.static_argnames: kwargs.pop(self.static_argnames)}
        leaves, form = jax.tree.flatten((args, kwargs))
        kinds = [(getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf))) for leaf in leaves]
        key = (self, form, *static.items(), *kinds)
        found = _cache.find(key) or _cache.add(key, self._jitted(static, form, leaves))
        return found.call, leaves

    def _jitted(self, static: dict[str, Any], form: Any, leaves: list[Any]) -> Any:
        function, few = self.function, all(size < MANY_ROWS for leaf in leaves for size in np.shape(leaf))

        def of_arrays(*leaves: Any) -> Any:
            args, kwargs = jax.tree.unflatten(form, leaves)
            return function(*args, **kwargs, **static)

        def jitted(mark: str = "") -> Any:
            of_arrays.__name__ = getattr(function, "__name__", "program") + mark
            if jax.default_backend() == "cpu":
                options = _compiler_options() | (_unless_chosen(self.few) if few else {})
            else:
                options = _unless_chosen(UNTUNED) if few and jax.default_backend() == "gpu" else {}
            return jax.jit(of_arrays, compiler_options=options, keep_unused=bool(mark))

        return kept(jitted, function, static, form, leaves)


def program(function: Callable[P, R], static_argnames: str | None = None) -> Program[P, R]:
    """The function as a program."""
    return Program(function, static_argnames)


def seldom(function: Callable[P, R]) -> Program[P, R]:
    """The function as a program that runs once in many sweeps: of few rows it is compiled as soon as can be."""
    return Program(function, None, PLAIN_SUMS | LOWEST_LEVEL)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that programs call, traced once for all places that need it."""
    traced = jax.jit(function)
    _cache.parts.append(traced)
    return traced


def compile_ahead(key: Hashable, programs: Iterable[Any], meanwhile: Callable[[], R] = lambda: None) -> R:
    """Compile programs in threads, as they come, unless those of this key are there: XLA does it without Python's lock,
    and mostly on one core for each. What this thread can do `meanwhile` it does, and returns.
    """
    if key in _cache.ahead:
        return meanwhile()
    with uncollected(), ThreadPoolExecutor(cores()) as threads:
        tasks = [threads.submit(one.compile) for one in programs]
        done = meanwhile()
        for task in tasks:
            task.result()
    _cache.ahead.add(key)
    return done


@cache
def _compiler_options() -> dict[str, Any]:
    """For CPUs: the older generator, where this XLA still has it, and, unless the user chose, the lower level and as
    many parts as there are cores to compile them: each of XLA's 32 has an overhead.
    """
    parts = {"xla_cpu_parallel_codegen_split_count": min(cores(), 32)}
    try:
        jax.jit(lambda x: x, compiler_options=OLDER_GENERATOR).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:  # an XLA with one generator only
        return _unless_chosen(LOWER_LEVEL | parts)
    return _unless_chosen(LOWER_LEVEL | parts) | OLDER_GENERATOR


def _unless_chosen(options: dict[str, Any]) -> dict[str, Any]:
    """Options of XLA, but for those that the user has set."""
    told = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if name not in told}


@contextmanager
def compiling_ahead(key: Hashable) -> Iterator[Callable[..., None]]:
    """Compile programs in threads, unless those of this key are there: XLA does it without Python's lock, and mostly on
    one core for each. The function that the block gets is given a program and its arguments, or shapes in their place.
    The block may do other work meanwhile; it ends once all are compiled.
    """
    if key in _cache.ahead:
        yield lambda program, *args, **kwargs: None
        return
    with uncollected(), ThreadPoolExecutor(cores()) as threads:
        tasks = []

        def ahead(program: Program, *args: Any, **kwargs: Any) -> None:
            compiled, leaves = program._compiled(args, kwargs)
            with mesh_of(leaves):
                tasks.append(threads.submit(compiled.lower(*leaves).compile))

        yield ahead
        for task in tasks:
            task.result()
    _cache.ahead.add(key)
