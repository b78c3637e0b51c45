"""Rows divided among the devices of one or several processes: placing arrays, and computing with them in programs.

A program is written for all rows. Outside of it, NumPy arrays hold the rows of this process; `placed` assembles them
into global arrays, sharded over the devices of a mesh. XLA divides plain arithmetic, and adds up sums over rows. Loops
over chunks of rows, and rules with loops, must stay on a device: they go through `by_device`. On one device nothing is
divided, and all of this is plain arrays and plain calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "quantprop rows"

_chosen: ContextVar[np.ndarray | None] = ContextVar("devices", default=None)


@contextmanager
def sharded(mesh: Mesh | Sequence[Any] | None = None) -> Iterator[None]:
    """Shard the rows of fits with inducing points across devices in this block.

    A `jax.distributed` job of several processes uses all devices without this.

    Args:
        mesh: A `jax.sharding.Mesh`, whatever its axes, or a list of devices; by default all devices of JAX.

    Returns:
        A context manager.

    >>> import quantprop
    >>> with quantprop.sharded():
    ...     pass  # infer(...), fit(...), GaussianProcessClassifier(process=Inducing(512)).fit(...)
    """
    devices = jax.devices() if mesh is None else mesh.devices if isinstance(mesh, Mesh) else mesh
    every = np.array(devices, dtype=object).ravel()
    if not (len(every) and all(isinstance(device, jax.Device) for device in every)):
        raise ValueError(f"mesh must be a Mesh, or a sequence of JAX's devices (jax.devices()); got {mesh!r}")
    token = _chosen.set(every)
    try:
        yield
    finally:
        _chosen.reset(token)


def current() -> Mesh | None:
    """The devices among which rows are divided: those of `sharded`, otherwise all of a job of several processes; None
    for one device.
    """
    devices = _chosen.get()
    if devices is None:
        devices = np.array(jax.devices() if jax.process_count() > 1 else [], dtype=object)
    return Mesh(devices, (AXIS,)) if len(devices) > 1 else None


def devices_here(mesh: Mesh | None) -> int:
    """The number of these devices that belong to this process."""
    return 1 if mesh is None else sum(device.process_index == jax.process_index() for device in mesh.devices.flat)


def placed(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays of this process's rows as arrays of all rows, divided among the devices; None for one device."""
    if mesh is None:
        return jax.device_put(tree)
    rows = NamedSharding(mesh, PartitionSpec(AXIS))
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(rows, np.asarray(leaf)), tree)


def is_divided(leaf: Any) -> bool:
    """Return whether the rows of an array that is not being traced are divided among devices."""
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    return concrete and len(leaf.sharding.device_set) > 1


def mesh_of(leaves: Iterable[Any]) -> AbstractContextManager:
    """The context in which a program of these arrays is traced and run."""
    mesh = next((leaf.sharding.mesh for leaf in leaves if is_divided(leaf)), None)
    return nullcontext() if mesh is None else jax.set_mesh(mesh)


# --- inside programs -------------------------------------------------------------------------------------------------


def _devices() -> int:
    """The number of devices among which the rows of the traced program are divided."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[AXIS] if AXIS in mesh.axis_names else 1


def rows_in_one_memory(n: int) -> int:
    """The number of the n rows of a program that share a memory: those of a device, or of all devices of a CPU."""
    devices = _devices()
    return n // devices * (min(jax.local_device_count(), devices) if jax.default_backend() == "cpu" else 1)


def divided(rows: Any) -> Any:
    """Arrays that XLA might otherwise repeat on every device, divided by their rows."""
    if _devices() == 1:
        return rows
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, PartitionSpec(AXIS)), rows)


def by_device(function: Callable[..., tuple[Any, Any]], *arguments: Any, axes: Any = 0, out: Any = 0) -> Any:
    """function(*arguments) → (sums, rows) for each device's own rows, the sums added up over devices in one message.

    `axes` is the axis of the rows in each argument, `out` in the result `rows`.
    """
    if _devices() == 1:
        return function(*arguments)

    def own(*arguments: Any) -> tuple[Any, Any]:
        sums, rows = function(*arguments)
        flat, restored = ravel_pytree(sums)
        return restored(jax.lax.psum(flat, AXIS)) if flat.size else sums, rows

    axes = (axes,) * len(arguments) if isinstance(axes, int) else tuple(axes)
    specs = tuple(map(_along, axes)), (PartitionSpec(), jax.tree.map(_along, out))
    return jax.shard_map(own, in_specs=specs[0], out_specs=specs[1], check_vma=False)(*arguments)


def _along(axis: int) -> PartitionSpec:
    return PartitionSpec(*[None] * axis, AXIS)
