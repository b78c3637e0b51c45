"""Traced programs run by NumPy, an equation at a time.

A value may be *narrow*: of length one along an axis where its equation says more. Entry by entry NumPy makes shapes
equal anyway; all other functions, and who called, are given values at full size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import Literal

from quantprop.runtime.interpreted.algebra import ALGEBRA
from quantprop.runtime.interpreted.entrywise import ENTRYWISE, SPECIAL, Function, Unknown
from quantprop.runtime.interpreted.shapes import SHAPES

INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
KINDS = (np.float64, np.int64, np.int32, np.uint32, np.bool_)
OF_AXES = ("gather", "scatter", "scatter-add", "dynamic_slice", "dynamic_update_slice")
OF_SOMETHING = ("cholesky", "triangular_solve", "reduce_max", "reduce_min", "argmax", "argmin")
CONSTANT = 2**16  # entries at most of what is computed beforehand
# Microseconds, about: of a step, of an entry, of an entry by SciPy, of a multiplication and addition.
STEP, ENTRY, SPECIAL_ENTRY, FLOP = 3.0, 3e-3, 5e-2, 1e-4
ROUNDS = 5  # of a loop, where nothing is known: inference from warm sites takes as many sweeps


class Exhausted(Exception):
    """More was computed than a program may cost."""


class Meter:
    """What a program has cost so far, and how many equations it has, with those of its loops: counted, not timed, so
    that what is done by it is the same in every run.
    """

    def __init__(self) -> None:
        self.spent, self.budget, self.equations = 0.0, float("inf"), 0


class Routine:
    """A jaxpr as a list of steps: functions, with the places of their arguments and results in one list of values."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any], meter: Meter) -> None:
        self.values: list[Any] = []
        self.steps: list[tuple[Function, list[int], Any]] = []
        self.known: set[int] = set()
        self.unchecked: list[tuple[Any, list[int]]] = []  # equations and their results, before the first call
        self.meter = meter
        self.cost, self.expected = 0.0, 0.0  # microseconds of a call, without loops and branches and with them
        self.ins = [self._place() for _ in jaxpr.invars]
        self.outs = self._inlined(jaxpr, consts, self.ins)
        self.shapes = [_shape(out) for out in jaxpr.outvars]

    def __call__(self, *args: Any) -> list[Any]:
        self.meter.spent += self.cost
        if self.meter.spent > self.meter.budget:
            raise Exhausted
        values = self.values.copy()
        for place, arg in zip(self.ins, args, strict=True):
            values[place] = arg
        for function, ins, out in self.steps:
            made = function(*[values[place] for place in ins])
            if type(out) is int:
                values[out] = made
            else:
                for place, value in zip(out, made, strict=True):
                    values[place] = value
        for equation, outs in self.unchecked:
            _alike([values[place] for place in outs], equation)
        self.unchecked = []
        return [_wide(values[place], shape) for place, shape in zip(self.outs, self.shapes, strict=True)]

    def _place(self, value: Any = None) -> int:
        """A place for a value, which is known beforehand if one is given."""
        self.values.append(value)
        if value is not None:
            self.known.add(len(self.values) - 1)
        return len(self.values) - 1

    def _inlined(self, jaxpr: Any, consts: Sequence[Any], ins: list[int]) -> list[int]:
        """Append the steps of a jaxpr whose arguments have these places; returns the places of its results."""
        places = dict(zip(jaxpr.invars, ins, strict=True))
        places |= {name: self._place(np.asarray(value)) for name, value in zip(jaxpr.constvars, consts, strict=True)}

        def place_of(atom: Any) -> int:
            if isinstance(atom, Literal):
                return self._place(np.asarray(atom.val, dtype=_kind(atom)))
            return places[atom]

        for equation in jaxpr.eqns:
            name, ins = equation.primitive.name, [place_of(atom) for atom in equation.invars]
            if INLINED.get(name) in equation.params:
                outs = self._inlined(*_opened(equation.params[INLINED[name]]), ins)
            else:
                outs = self._appended(equation, name, ins)
            places |= zip(equation.outvars, outs, strict=True)
        return [place_of(atom) for atom in jaxpr.outvars]

    def _appended(self, equation: Any, name: str, ins: list[int]) -> list[int]:
        """Append an equation, or compute it where all arguments are known."""
        self.meter.equations += 1
        several, (function, inside) = equation.primitive.multiple_results, _function(equation, name, self.meter)
        if (
            name not in LOOPS
            and self.known.issuperset(ins)
            and all(out.aval.size <= CONSTANT for out in equation.outvars)
        ):
            made = function(*[self.values[place] for place in ins])
            return [self._place(np.asarray(one)) for one in _alike(made if several else [made], equation)]
        cost = _microseconds(equation, name)
        self.cost, self.expected = self.cost + cost, self.expected + cost + inside
        outs = [self._place() for _ in equation.outvars]
        self.steps.append((function, ins, outs if several else outs[0]))
        self.unchecked.append((equation, outs))
        return outs


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr and its constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def _shape(atom: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in atom.aval.shape)


def _kind(atom: Any) -> Any:
    return atom.aval.dtype


def _wide(value: Any, shape: tuple[int, ...]) -> Any:
    return value if value.shape == shape else np.broadcast_to(value, shape)


def _alike(values: Sequence[Any], equation: Any) -> Sequence[Any]:
    """The results of an equation; unknown is one that has another type or number of axes than the equation says."""
    for value, out in zip(values, equation.outvars, strict=True):
        if value.dtype != _kind(out) or value.ndim != len(out.aval.shape):
            raise Unknown(f"{equation.primitive.name}, whose result is {value.dtype} of {value.ndim} axes")
    return values


def _microseconds(equation: Any, name: str) -> float:
    entries = sum(out.aval.size for out in equation.outvars)
    if name in ALGEBRA:
        return STEP + FLOP * entries * max(_shape(equation.invars[0]), default=1)
    return STEP + (SPECIAL_ENTRY if name in SPECIAL else ENTRY) * entries


def _function(equation: Any, name: str, meter: Meter) -> tuple[Function, float]:
    """What an equation computes, and the microseconds that loops and branches inside it take, about."""
    _refuse(equation, name)
    params, shapes = equation.params, [_shape(atom) for atom in equation.invars]
    if name == "div" and not np.issubdtype(_kind(equation.outvars[0]), np.floating):
        name = "integer quotient"
    if name == "select_n" and not np.issubdtype(_kind(equation.invars[0]), np.bool_):
        name = "selection by number"
    narrow = NARROW.get(name) or ENTRYWISE.get(name) or SPECIAL.get(name)
    if narrow is not None:
        return narrow(**params), 0.0
    inside = 0.0
    if name in LOOPS:
        function, inside = LOOPS[name](meter, equation)
    elif name in SHAPES or name in ALGEBRA:
        function = (SHAPES.get(name) or ALGEBRA[name])(**params)
    else:
        raise Unknown(name)
    return lambda *args: function(*map(_wide, args, shapes)), inside


def _refuse(equation: Any, name: str) -> None:
    """Unknown is what NumPy would do otherwise than XLA, or not at all: other types (but for arrays of nothing, which
    JAX makes float32), points in place of arrays, and arrays of nothing where something is looked for.
    """
    something = any(out.aval.size for out in equation.outvars)
    if something and any(_kind(atom) not in KINDS for atom in (*equation.invars, *equation.outvars) if atom.aval.size):
        raise Unknown(f"{name} of another type")
    shape, kind = (_shape(equation.invars[0]), _kind(equation.invars[0])) if equation.invars else ((), None)
    if name in OF_AXES and not shape:
        raise Unknown(f"{name} of a point")
    if name in OF_SOMETHING and 0 in shape:
        raise Unknown(f"{name} of nothing")
    if (name == "dot_general" and kind != np.float64) or (name in ("reduce_and", "reduce_or") and kind != np.bool_):
        raise Unknown(f"{name} of {kind}")
    if name == "pad" and any(
        size + min(low, 0) + min(high, 0) < 0
        for size, (low, high, _) in zip(shape, equation.params["padding_config"], strict=True)
    ):
        raise Unknown("pad by less than nothing")


# --- narrow values ---------------------------------------------------------------------------------------------------


def _broadcast(shape: Any, broadcast_dimensions: Any, **_: Any) -> Function:
    kept = [int(axis) for axis in broadcast_dimensions]

    def broadcast(x: Any) -> Any:
        sizes = [1] * len(shape)
        for axis, size in zip(kept, x.shape, strict=True):
            sizes[axis] = size
        return np.asarray(x).reshape(sizes)  # a scalar of NumPy has another `reshape`

    return broadcast


def _squeezed(dimensions: Any, **_: Any) -> Function:
    dropped = tuple(int(axis) for axis in dimensions)
    return lambda x: x.squeeze(dropped)


def _iota(shape: Any, dtype: Any, dimension: int, **_: Any) -> Function:
    own = [-1 if axis == dimension else 1 for axis in range(len(shape))]
    return lambda: np.arange(shape[dimension], dtype=dtype).reshape(own)


NARROW: dict[str, Callable[..., Function]] = {"broadcast_in_dim": _broadcast, "squeeze": _squeezed, "iota": _iota}


# --- loops and branches ----------------------------------------------------------------------------------------------


def _while(meter: Meter, equation: Any) -> tuple[Function, float]:
    params = equation.params
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    goes_on, body = (Routine(*_opened(params[name]), meter) for name in ("cond_jaxpr", "body_jaxpr"))
    several = bool(goes_on.shapes[0])  # loops side by side, each of which stops when it is done

    def looped(*args: Any) -> list[Any]:
        state = list(args[cond_nconsts + body_nconsts :])
        of_test, of_body = args[:cond_nconsts], args[cond_nconsts : cond_nconsts + body_nconsts]
        while np.any(running := goes_on(*of_test, *state)[0]):
            new = body(*of_body, *state)
            state = [_chosen(running, *each) for each in zip(new, state, strict=True)] if several else new
        return state

    return looped, ROUNDS * (goes_on.expected + body.expected)


def _chosen(running: Any, new: Any, old: Any) -> Any:
    return np.where(running.reshape(running.shape + (1,) * (new.ndim - running.ndim)), new, old)


def _scan(meter: Meter, equation: Any) -> tuple[Function, float]:
    """Constants, what is carried, and rows, of which the body is given one: they have an axis more than it has."""
    length, reverse = equation.params["length"], equation.params["reverse"]
    jaxpr, consts = _opened(equation.params["jaxpr"])
    if not length:
        raise Unknown("scan of nothing")
    num_carry = _of_same_rank(equation.outvars, jaxpr.outvars)
    first = _of_same_rank(equation.invars, jaxpr.invars)
    num_consts, body = first - num_carry, Routine(jaxpr, consts, meter)

    def scanned(*args: Any) -> list[Any]:
        state, made = list(args[num_consts:first]), []
        for i in reversed(range(length)) if reverse else range(length):
            each = body(*args[:num_consts], *state, *(rows[i] for rows in args[first:]))
            state = each[:num_carry]
            made.append(each[num_carry:])
        return state + [np.stack(each) for each in zip(*(made[::-1] if reverse else made), strict=True)]

    return scanned, length * body.expected


def _of_same_rank(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    """How many variables have as many axes outside a loop as inside."""
    return sum(len(_shape(a)) == len(_shape(b)) for a, b in zip(outside, inside, strict=True))


def _cond(meter: Meter, equation: Any) -> tuple[Function, float]:
    branches = equation.params["branches"]
    routines = [Routine(*_opened(branch), meter) for branch in branches]
    last, mean = len(routines) - 1, sum(branch.expected for branch in routines) / len(routines)
    return lambda index, *args: routines[min(max(int(index), 0), last)](*args), mean


LOOPS: dict[str, Callable[..., tuple[Function, float]]] = {"while": _while, "scan": _scan, "cond": _cond}
