"""JAX's gather and scatter in NumPy: every entry of every window is given its index along every axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jax.lax import GatherScatterMode

from quantprop.runtime.interpreted.entrywise import Function, Made


class Axis(NamedTuple):
    """How the index along an axis of an array is found: from a column of the starts, if any, and constants."""

    column: int | None
    last: int  # start from which a window still fits
    steps: Any  # within a window, or along the batch; an array that all others can be added to


class Windows(NamedTuple):
    """Which axes of an array windows are laid over, as JAX says it."""

    to_axes: Sequence[int]  # that the columns of the starts are for
    dropped: Sequence[int]  # along which a window has one entry, and no axis of its own
    batched: Sequence[int]  # that go along with axes of the starts
    batches: Sequence[int]  # which of these

    def axes(self, shape: Sequence[int], batch: int, sizes: Sequence[int]) -> list[Axis]:
        """Of an array of this shape, for starts of so many batch axes and windows of these sizes."""
        columns = {int(axis): column for column, axis in enumerate(self.to_axes)}
        along = {int(axis): int(own) for axis, own in zip(self.batched, self.batches, strict=True)}
        window = [axis for axis in range(len(shape)) if axis not in self.dropped and axis not in along]
        made = []
        for axis, length in enumerate(shape):
            steps = np.arange(length if axis in along else sizes[axis])
            place = along.get(axis, batch + window.index(axis) if axis in window else 0)
            rank = batch + len(window)
            steps = steps.reshape([-1 if each == place else 1 for each in range(rank)])
            made.append(Axis(columns.get(axis), length - sizes[axis], steps))
        return made


def _places(axes: list[Axis], starts: Any) -> tuple[Any, ...]:
    """The index of every entry along every axis, windows being moved to where they fit: arrays that together have the
    shape (*batch, *window).
    """
    own, index = (1,) * (axes[0].steps.ndim - starts.ndim + 1), []
    for axis in axes:
        first = starts[..., axis.column] if axis.column is not None else np.zeros(starts.shape[:-1], np.int64)
        first = np.minimum(np.maximum(first, 0), axis.last) if axis.column is not None else first
        first = first.reshape(first.shape + own)
        index.append(first + axis.steps if axis.steps.size > 1 else first)
    return tuple(index)


def _fit(axes: list[Axis], starts: Any) -> Any:
    """Which windows fit where they are."""
    told = [(axis.column, axis.last) for axis in axes if axis.column is not None]
    fits = np.ones(starts.shape[:-1], bool)
    for column, last in told:
        fits &= (starts[..., column] >= 0) & (starts[..., column] <= last)
    return fits


def gather(dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **_: Any) -> Function:
    """Windows of an array; those that do not fit are filled, or moved, as `mode` says."""
    n, fills = dimension_numbers, GatherScatterMode.from_any(mode) == GatherScatterMode.FILL_OR_DROP
    windows = Windows(n.start_index_map, n.collapsed_slice_dims, n.operand_batching_dims, n.start_indices_batching_dims)
    own, axes_of = [int(axis) for axis in n.offset_dims], cache(windows.axes)

    def gathered(x: Any, starts: Any) -> Any:
        axes = axes_of(x.shape, starts.ndim - 1, tuple(slice_sizes))
        taken = x[_places(axes, starts)]
        if fills:
            fits, blank = _fit(axes, starts), _blank(x.dtype) if fill_value is None else fill_value
            taken = np.where(fits.reshape(fits.shape + (1,) * len(own)), taken, blank)
        order = [axis for axis in range(taken.ndim) if axis not in own] + own  # where batch and window go
        return taken.transpose(np.argsort(order))

    return gathered


def _blank(dtype: Any) -> Any:
    """What JAX fills with."""
    if np.issubdtype(dtype, np.floating):
        return np.nan
    if np.issubdtype(dtype, np.bool_):
        return True
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.signedinteger) else np.iinfo(dtype).max


def scatter(put: Callable[[Any, Any, Any], None]) -> Made:
    """Windows of an array replaced, or changed in place as `put` does; those that do not fit are left or moved."""

    def made(dimension_numbers: Any, mode: Any, **_: Any) -> Function:
        n, moves = dimension_numbers, GatherScatterMode.from_any(mode) == GatherScatterMode.CLIP
        windows = Windows(
            n.scatter_dims_to_operand_dims,
            n.inserted_window_dims,
            n.operand_batching_dims,
            n.scatter_indices_batching_dims,
        )
        own, without = list(n.update_window_dims), {*n.inserted_window_dims, *n.operand_batching_dims}
        axes_of = cache(windows.axes)

        def scattered(x: Any, starts: Any, new: Any) -> Any:
            new = new.transpose([axis for axis in range(new.ndim) if axis not in own] + own)
            lengths = iter(new.shape[starts.ndim - 1 :])
            sizes = tuple(1 if axis in without else next(lengths) for axis in range(x.ndim))
            axes = axes_of(x.shape, starts.ndim - 1, sizes)
            index = _places(axes, starts)
            if not moves:
                fits = _fit(axes, starts)
                index, new = tuple(np.broadcast_to(each, new.shape)[fits] for each in index), new[fits]
            whole = x.copy()
            put(whole, index, new)
            return whole

        return scattered

    return made


def assign(whole: Any, index: Any, new: Any) -> None:
    """Replace entries."""
    whole[index] = new
