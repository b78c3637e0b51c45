"""Small programs run without being compiled: slower a call, and ready at once.

A program of a thousand equations takes a second to compile. NumPy runs its equations one by one, at 3 to 10 µs each:
on few rows a whole fit, of some fifteen evaluations, takes less than compiling what it needs. So a small program is
interpreted at first, until that has cost as much as compiling it would have: whatever follows, no more than about
twice the least time is spent. Costs are counted, not timed, so that the same calls give the same digits in every run.

Only in the main thread: threads would share one count, in an order that nobody knows, and wait for each other. And not
where programs of several processes, or of one that went on after another, are to give the same bits.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from quantprop.runtime.folders import OFF
from quantprop.runtime.interpreted.entrywise import Unknown
from quantprop.runtime.interpreted.routine import Exhausted, Meter, Routine
from quantprop.runtime.mesh import is_divided
from quantprop.runtime.stored import DOUBLE, folder

SWITCH = "QUANTPROP_INTERPRET"  # in the environment: off, or on even where compiled programs are kept
ON = frozenset({"on", "1", "yes", "true"})
ROWS = 256  # at most, along any axis of what a program is given
ENTRIES = 2**18  # at most, in all
PROGRAM, EQUATION = 5e4, 1e3  # microseconds, about, to compile one: a program, and for each of its equations
CALLS = 15  # that a fit makes of a program, about
FOLDER = "jax_compilation_cache_dir"
SETTINGS = ("jax_debug_nans", "jax_debug_infs", "jax_disable_jit")  # that ask for JAX's own ways

_forbidden: ContextVar[bool] = ContextVar("compiled", default=False)


@contextmanager
def all_compiled() -> Iterator[None]:
    """Interpret nothing in this block, so that what it computes does not depend on what was computed before."""
    token = _forbidden.set(True)
    try:
        yield
    finally:
        _forbidden.reset(token)


def wanted(leaves: list[Any]) -> bool:
    """Whether a program of such arrays is interpreted at first: on a CPU, where they are small, and where compiled
    programs are not kept, for which another process would be grateful.
    """
    if not _allowed() or jax.default_backend() != "cpu" or jax.process_count() > 1:
        return False
    few = all(size <= ROWS for leaf in leaves for size in np.shape(leaf))
    return few and sum(np.size(leaf) for leaf in leaves) <= ENTRIES


def _allowed() -> bool:
    """Whether nothing forbids it now."""
    told = os.environ.get(SWITCH, "").casefold()
    if told in OFF or _forbidden.get() or (told not in ON and (folder() or getattr(jax.config, FOLDER))):
        return False
    return not any(getattr(jax.config, name) for name in SETTINGS)


class Interpreted:
    """A function of arrays that is interpreted until compiling it is worth while."""

    def __init__(self, function: Callable[..., Any], jitted: Callable[[], Any]) -> None:
        self.plain = jax.jit(function)  # to trace it; the one that is compiled has options, and finds the trace
        self.make = jitted
        self.double = getattr(jax.config, DOUBLE)  # a setting of each thread
        self.routine: Routine | None = None
        self.kinds: list[Any] = []  # types of its arguments
        self.form: Any = None  # of what it returns
        self.compiles = False  # from now on
        self.why = ""  # it compiles, where that is not for its cost
        self.meter = Meter()

    @cached_property
    def jitted(self) -> Any:
        """The function as it is compiled."""
        return self.make()

    def __call__(self, *leaves: Any) -> Any:
        if not self._runs(leaves) or self._read(leaves) is None:
            return self.jitted(*leaves)
        try:
            return self._interpreted(leaves)
        except Exhausted:
            self.give_up("")
        except Unknown as error:
            self.give_up(str(error))
        except Exception as error:  # of one equation in NumPy: XLA can do it, and whoever sees this can mend it
            self.give_up(_warned(error))
        return self.jitted(*leaves)

    def eval_shape(self, *leaves: Any) -> Any:
        """Shapes and types in place of results."""
        return self.plain.eval_shape(*leaves)

    def lower(self, *leaves: Any) -> Any:
        """What XLA compiles."""
        return self.jitted.lower(*leaves)

    def ahead(self, *leaves: Any) -> Any:
        """What is compiled before it is called; one that waits, as long as it is interpreted."""
        if self._runs(leaves) and self._read(leaves) is not None:
            return Waiting(self, leaves)
        return self.jitted.lower(*leaves)

    @property
    def expected(self) -> float:
        """What a call costs, about, as long as it is interpreted."""
        return 0.0 if self.routine is None else self.routine.expected

    def give_up(self, why: str) -> None:
        """Compile from now on."""
        self.compiles, self.why, self.routine = True, why, None

    def _runs(self, leaves: tuple[Any, ...]) -> bool:
        """Whether these arrays can be interpreted here and now."""
        if self.compiles or not _allowed() or threading.current_thread() is not threading.main_thread():
            return False
        if getattr(jax.config, DOUBLE) != self.double:
            return False
        return not any(isinstance(leaf, Tracer) or is_divided(leaf) for leaf in leaves)

    def _read(self, leaves: tuple[Any, ...]) -> Routine | None:
        """The program's steps; None where it has some that are not known here, and is compiled therefore."""
        if self.routine is None:
            traced = self.plain.trace(*leaves)
            closed, self.form = traced.jaxpr, jax.tree.structure(traced.out_info)
            self.kinds = [variable.aval.dtype for variable in closed.jaxpr.invars]
            self.meter = Meter()
            try:
                if closed.effects:
                    raise Unknown("an effect")
                with np.errstate(all="ignore"):
                    self.routine = Routine(closed.jaxpr, closed.consts, self.meter)
            except Unknown as error:
                self.give_up(str(error))
            except Exception as error:
                self.give_up(_warned(error))
            self.meter.budget = PROGRAM + EQUATION * self.meter.equations
        return self.routine

    def _interpreted(self, leaves: tuple[Any, ...]) -> Any:
        assert self.routine is not None
        given = [np.asarray(leaf, dtype=kind) for leaf, kind in zip(leaves, self.kinds, strict=True)]
        with np.errstate(all="ignore"):  # as in compiled programs
            made = self.routine(*given)
        alone = [np.array(one) if getattr(one, "base", None) is not None or _among(one, given) else one for one in made]
        return jax.tree.unflatten(self.form, jax.device_put(alone))


class Waiting(NamedTuple):
    """A program that is interpreted, and could be compiled for such arrays."""

    program: Interpreted
    leaves: tuple[Any, ...]

    def lowered(self) -> Any:
        """What XLA compiles, in place of interpreting from now on."""
        self.program.give_up("")
        return self.program.lower(*self.leaves)


def due(waiting: list[Waiting]) -> bool:
    """Whether one of a fit's programs would be compiled in its midst: then all had better be now, side by side."""
    return any(one.program.meter.spent + CALLS * one.program.expected > one.program.meter.budget for one in waiting)


def _warned(error: Exception) -> str:
    told = f"a program cannot be interpreted and is compiled instead ({type(error).__name__}: {error})"
    warnings.warn(told, RuntimeWarning, stacklevel=2)
    return told


def _among(one: Any, arrays: list[np.ndarray]) -> bool:
    return any(one is each for each in arrays)
