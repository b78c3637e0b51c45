"""JAX's primitives that move, join and add up entries, in NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from quantprop.runtime.interpreted.entrywise import Function, Made, Unknown
from quantprop.runtime.interpreted.indexing import assign, gather, scatter


def _slice(start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Function:
    steps = strides or (1,) * len(start_indices)
    where = tuple(slice(*map(int, each)) for each in zip(start_indices, limit_indices, steps, strict=True))
    return lambda x: x[where]


def _pad(padding_config: Any, **_: Any) -> Function:
    if any(between for _, _, between in padding_config):
        raise Unknown("pad")
    around = [(int(low), int(high)) for low, high, _ in padding_config]
    left = tuple(slice(max(-low, 0), min(high, 0) or None) for low, high in around)  # a negative width takes away

    def padded(x: Any, value: Any) -> Any:
        x = x[left]
        ends = [(max(low, 0), max(low, 0) + size) for size, (low, _) in zip(x.shape, around, strict=True)]
        whole = np.full([end + max(high, 0) for (_, end), (_, high) in zip(ends, around, strict=True)], value, x.dtype)
        whole[tuple(slice(*each) for each in ends)] = x
        return whole

    return padded


def _split(sizes: Any, axis: int, **_: Any) -> Function:
    ends = np.cumsum(np.asarray(sizes, dtype=int))
    where = [(slice(None),) * axis + (slice(int(end - size), int(end)),) for end, size in zip(ends, sizes, strict=True)]
    return lambda x: [x[each] for each in where]


def _window(shape: Any, starts: Any, sizes: Any) -> tuple[slice, ...]:
    """A window, moved to where it fits."""
    first = [min(max(int(s), 0), whole - size) for s, whole, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(s, s + size) for s, size in zip(first, sizes, strict=True))


def _dynamic_slice(slice_sizes: Any, **_: Any) -> Function:
    return lambda x, *starts: x[_window(x.shape, starts, slice_sizes)]


def _dynamic_update_slice(**_: Any) -> Function:
    def updated(x: Any, new: Any, *starts: Any) -> Any:
        whole = x.copy()
        whole[_window(x.shape, starts, new.shape)] = new
        return whole

    return updated


def _reduction(ufunc: np.ufunc) -> Made:
    def made(axes: Any, **_: Any) -> Function:
        along = tuple(int(axis) for axis in axes)
        return lambda x: ufunc.reduce(x, axis=along, dtype=x.dtype)  # NumPy would add in int64

    return made


def _extreme(function: Any) -> Made:
    return lambda axes, index_dtype, **_: lambda x: function(x, axis=int(axes[0])).astype(index_dtype)


def _running(ufunc: np.ufunc) -> Made:
    def made(axis: int, reverse: bool, **_: Any) -> Function:
        if reverse:
            return lambda x: np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)
        return lambda x: ufunc.accumulate(x, axis=axis, dtype=x.dtype)

    return made


def _sort(dimension: int, num_keys: int, **_: Any) -> Function:
    if num_keys != 1:
        raise Unknown("sort")

    def ordered(*arrays: Any) -> list[Any]:
        order = np.argsort(arrays[0], axis=dimension, kind="stable")
        return [np.take_along_axis(each, order, axis=dimension) for each in arrays]

    return ordered


def _own_reduction(jaxpr: Any, dimensions: Any, **_: Any) -> Function:
    """Sums of several arrays at once, written as one reduction."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    count = len(inner.outvars)
    sums = {(a, b): None for a, b in zip(inner.invars[:count], inner.invars[count:], strict=True)}
    added = [tuple(each.invars) for each in inner.eqns if each.primitive.name == "add"]
    if len(inner.eqns) != count or added != list(sums) or [each.outvars[0] for each in inner.eqns] != inner.outvars:
        raise Unknown("reduce")
    axes = tuple(int(axis) for axis in dimensions)
    return lambda *args: [np.add.reduce(x, axis=axes) + x0 for x, x0 in zip(args[:count], args[count:], strict=True)]


def _platform_index(platforms: Any, **_: Any) -> Function:
    place = next(i for i, names in enumerate(platforms) if names is None or "cpu" in names)
    return lambda: np.int32(place)


SHAPES: dict[str, Made] = {
    "reshape": lambda new_sizes, **_: lambda x: np.asarray(x).reshape(new_sizes),
    "transpose": lambda permutation, **_: lambda x: x.transpose(permutation),
    "rev": lambda dimensions, **_: partial(np.flip, axis=tuple(int(axis) for axis in dimensions)),
    "concatenate": lambda dimension, **_: lambda *parts: np.concatenate(parts, axis=dimension),
    "stack": lambda axis, **_: lambda *parts: np.stack(parts, axis=axis),
    "unstack": lambda axis, **_: lambda x: list(np.moveaxis(x, axis, 0)),
    "slice": _slice,
    "pad": _pad,
    "split": _split,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "reduce_sum": _reduction(np.add),
    "reduce_max": _reduction(np.maximum),
    "reduce_min": _reduction(np.minimum),
    "reduce_prod": _reduction(np.multiply),
    "reduce_and": _reduction(np.logical_and),
    "reduce_or": _reduction(np.logical_or),
    "reduce": _own_reduction,
    "argmax": _extreme(np.argmax),
    "argmin": _extreme(np.argmin),
    "cumsum": _running(np.add),
    "cumprod": _running(np.multiply),
    "cummax": _running(np.maximum),
    "cummin": _running(np.minimum),
    "sort": _sort,
    "gather": gather,
    "scatter": scatter(assign),
    "scatter-add": scatter(np.add.at),
    "optimization_barrier": lambda **_: lambda *parts: parts,
    "platform_index": _platform_index,
}
