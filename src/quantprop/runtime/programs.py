"""Compiled programs: `jax.jit` with compiler options that suit programs like these, and an LRU cache of them."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, update_wrapper
from operator import attrgetter
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

from quantprop.runtime.disk_cache import cached
from quantprop.runtime.memory import explained
from quantprop.runtime.mesh import mesh_of
from quantprop.runtime.system import check_fork, cores, memory_maps, most_memory_maps, return_freed_memory, uncollected

P = ParamSpec("P")
R = TypeVar("R")

# XLA's newer generator for fused loops takes about twice as long over programs of many small scalar formulas, and its
# code is no faster: at n = 200, 2.4 s against 1.3 s to compile probit EP.
OLDER_GENERATOR = {"xla_cpu_use_fusion_emitters": False}
# A sum as a tree of sums takes five times as long to compile as a loop, and is no faster over a few thousand rows; from
# there on it also adds up more accurately.
TREE_SUM_ROWS = 4096
PLAIN_SUMS = {"xla_disable_hlo_passes": "tree_reduction_rewriter"}
# LLVM's level 3 takes 25 % longer than level 1, and fits are 2 to 3 % faster with it: loops over data are short, and
# matrices are BLAS's. Level 0 takes 33 % of the time, and makes loops over data twice as slow.
LOWER_LEVEL = {"xla_backend_optimization_level": 1}
LOWEST_LEVEL = {"xla_backend_optimization_level": 0}
# On a GPU XLA times several ways to multiply matrices, which takes longer than all products of few rows, and waits for
# other processes on the same GPU.
UNTUNED = {"xla_gpu_autotune_level": 0}

MAX_PROGRAMS = 256  # about 35 different fits; each program takes about 3 MB and 70 memory maps
MIN_PROGRAMS = 32  # never evicted, however many memory maps the process has: more than one fit needs
MAX_MAPS = 1 / 3  # as a fraction of those that the process may have; at the limit it would die
MAPS_INTERVAL = 8  # new programs between two counts of the memory maps
TRACES_INTERVAL = 8  # evictions between two at which JAX's traces go too, 1 to 2 MB per shape; the rest compiles again


class ProgramCache:
    """The compiled programs of the process, of which the least recently used are evicted.

    JAX keeps the programs of a function as long as the function lives. Therefore each form and set of shapes has a
    separate function, which only this cache refers to.
    """

    def __init__(self) -> None:
        self.programs: OrderedDict[Hashable, Any] = OrderedDict()  # the least recently used first
        self.ahead: set[Hashable] = set()  # keys whose programs have all been compiled, and none evicted since
        self.parts: list[Any] = []  # functions inside programs, whose traces JAX would keep
        self.gate, self.made, self.evictions = Lock(), 0, 0

    def find(self, key: Hashable) -> Any:
        """The program of this key, or None."""
        with self.gate:
            if key in self.programs:
                self.programs.move_to_end(key)
            return self.programs.get(key)

    def add(self, key: Hashable, program: Any) -> Any:
        """Cache a program, unless another thread has done so meanwhile; returns the cached one."""
        with self.gate:
            self.made += key not in self.programs
            found = self.programs.setdefault(key, program)
            if len(self.programs) > MAX_PROGRAMS or (self.made % MAPS_INTERVAL == 0 and _has_many_maps()):
                self._evict()
            return found

    def _evict(self) -> None:
        """Evict 25 % of the programs, and all traces of their parts."""
        for _ in range(min(len(self.programs) // 4, len(self.programs) - MIN_PROGRAMS)):
            self.programs.popitem(last=False)
        for part in self.parts:
            part.clear_cache()
        self.ahead.clear()
        self.evictions += 1
        if self.evictions % TRACES_INTERVAL == 0:
            jax.clear_caches()
        gc.collect()  # functions and their traces refer to each other
        return_freed_memory()


_cache = ProgramCache()
_once: ContextVar[bool] = ContextVar("once", default=False)


@contextmanager
def run_once() -> Iterator[None]:
    """A block whose programs run once or are made of products, so that compiling them counts."""
    token = _once.set(True)
    try:
        yield
    finally:
        _once.reset(token)


def _has_many_maps() -> bool:
    maps = memory_maps()
    return maps is not None and maps > MAX_MAPS * most_memory_maps()


class Program(Generic[P, R]):
    """A function, compiled once for every shape and structure of its arguments, and for every value of the static
    argument, which is passed by name.
    """

    def __init__(
        self, function: Callable[P, R], static_argname: str | None, small: dict[str, Any] = PLAIN_SUMS
    ) -> None:
        self.function, self.static_argname, self.small_options = function, static_argname, small
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with explained((args, kwargs)):
            compiled, leaves = self._compiled(args, kwargs)
            with mesh_of(leaves):
                return compiled(*leaves)

    def shapes(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result, with shapes and types instead of numbers."""
        compiled, leaves = self._compiled(args, kwargs)
        return compiled.eval_shape(*leaves)

    def ahead(self, *args: Any, **kwargs: Any) -> Any:
        """The program for arguments of these shapes, traced and lowered: `compile_ahead` has XLA compile it."""
        compiled, leaves = self._compiled(args, kwargs)
        with mesh_of(leaves):
            return compiled.lower(*leaves)

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The program for arguments like these, and the arrays in them."""
        check_fork()
        static = {name: kwargs[name] for name in kwargs.keys() & {self.static_argname}}
        leaves, form = jax.tree.flatten((args, {name: kwargs[name] for name in kwargs.keys() - static.keys()}))
        kinds = [(getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf))) for leaf in leaves]
        level = LOWEST_LEVEL if _once.get() else {}
        key = (self, form, *static.items(), *kinds, *level)  # its own program: digits depend on no earlier call
        return _cache.find(key) or _cache.add(key, self._jitted(static, form, leaves, level)), leaves

    def _jitted(self, static: dict[str, Any], form: Any, leaves: list[Any], level: dict[str, Any]) -> Any:
        function, is_small = self.function, all(size < TREE_SUM_ROWS for leaf in leaves for size in np.shape(leaf))

        def of_arrays(*leaves: Any) -> Any:
            args, kwargs = jax.tree.unflatten(form, leaves)
            return function(*args, **kwargs, **static)

        def jitted(mark: str = "") -> Any:
            of_arrays.__name__ = getattr(function, "__name__", "program") + mark
            if jax.default_backend() == "cpu":
                options = _compiler_options() | _unless_chosen((self.small_options if is_small else {}) | level)
            else:
                options = _unless_chosen(UNTUNED) if is_small and jax.default_backend() == "gpu" else {}
            return jax.jit(of_arrays, compiler_options=options, keep_unused=bool(mark))

        return cached(jitted, function, static | level, form, leaves)


def program(function: Callable[P, R], static_argnames: str | None = None) -> Program[P, R]:
    return Program(function, static_argnames)


def seldom(function: Callable[P, R]) -> Program[P, R]:
    """The function as a program that runs once in many sweeps: for few rows the time to compile it counts."""
    return Program(function, None, PLAIN_SUMS | LOWEST_LEVEL)


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that programs call, traced once for all places that need it."""
    traced = jax.jit(function)
    _cache.parts.append(traced)
    return traced


def compile_ahead(key: Hashable, programs: Iterable[Any], meanwhile: Callable[[], R] = lambda: None) -> R:
    """Compile programs in threads as they arrive, unless those of this key are compiled already: XLA does it without
    Python's lock, and mostly on one core each. Returns what this thread does `meanwhile`.
    """
    if key in _cache.ahead:
        return meanwhile()
    with uncollected(), ThreadPoolExecutor(cores()) as threads:
        tasks = list(map(threads.submit, map(attrgetter("compile"), programs)))
        done = meanwhile()
        for task in tasks:
            task.result()
    _cache.ahead.add(key)
    return done


@cache
def _compiler_options() -> dict[str, Any]:
    """For CPUs: the older generator if this XLA still has it and, unless the user chose them, the lower level and as
    many parts as there are cores to compile them: each of XLA's 32 has an overhead.
    """
    parts = {"xla_cpu_parallel_codegen_split_count": min(cores(), 32)}
    try:
        jax.jit(lambda x: x, compiler_options=OLDER_GENERATOR).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:  # an XLA with one generator only
        return _unless_chosen(LOWER_LEVEL | parts)
    return _unless_chosen(LOWER_LEVEL | parts) | OLDER_GENERATOR


def _unless_chosen(options: dict[str, Any]) -> dict[str, Any]:
    """Options of XLA, except those that the user has set."""
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if name not in flags}
