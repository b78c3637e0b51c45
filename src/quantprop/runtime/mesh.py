"""Rows divided among devices, of one process or of several: where arrays go, and how programs compute with them.

A program is written for all rows. Outside of it, NumPy arrays hold the rows of this process; `placed` makes of them one
array of all rows, divided among the devices of a mesh. XLA divides plain arithmetic by itself, and adds up sums over
rows. What must stay on a device (loops over chunks of rows, rules with loops of their own) goes through `by_device`.
Where one device computes, nothing is divided and all of this is plain arrays and plain calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
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
    """Divide the rows of fits with inducing points among devices, in this block: those of a mesh, whatever its axes, or
    of a list, or else all that JAX knows. In a `jax.distributed` job of several processes all are used without it.

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
    """The devices among which rows are divided: those of `sharded`, or else all of a job of several processes; None
    where that is one device.
    """
    devices = _chosen.get()
    if devices is None:
        devices = np.array(jax.devices() if jax.process_count() > 1 else [], dtype=object)
    return Mesh(devices, (AXIS,)) if len(devices) > 1 else None


def devices_here(mesh: Mesh | None) -> int:
    """How many of the devices are this process's."""
    return 1 if mesh is None else sum(device.process_index == jax.process_index() for device in mesh.devices.flat)


def placed(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays of this process's rows as arrays of all rows, divided among the devices; None stands for one device."""
    if mesh is None:
        return jax.device_put(tree)
    rows = NamedSharding(mesh, PartitionSpec(AXIS))
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(rows, np.asarray(leaf)), tree)


def is_divided(leaf: Any) -> bool:
    """Whether an array's rows are divided among devices; not for arrays that are being traced."""
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    return concrete and len(leaf.sharding.device_set) > 1


@cache
def _several_devices() -> bool:
    """Whether there are any among which arrays could be divided, accelerators or not."""
    return any(jax.device_count(platform) > 1 for platform in (jax.default_backend(), "cpu"))


def mesh_of(leaves: Iterable[Any]) -> AbstractContextManager:
    """The context in which a program of these arrays is traced and run."""
    for leaf in leaves if _several_devices() else ():
        if is_divided(leaf):
            return jax.set_mesh(leaf.sharding.mesh)
    return nullcontext()


# --- inside programs -------------------------------------------------------------------------------------------------


def _devices() -> int:
    """Among how many devices the rows of the program that is being traced are divided."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[AXIS] if AXIS in mesh.axis_names else 1


def rows_in_one_memory(n: int) -> int:
    """How many of the n rows of a program share a memory: those of a device, or of all devices of a CPU."""
    devices = _devices()
    return n // devices * (min(jax.local_device_count(), devices) if jax.default_backend() == "cpu" else 1)


def divided(rows: Any) -> Any:
    """Arrays that XLA might otherwise repeat on every device, divided by their rows."""
    if _devices() == 1:
        return rows
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, PartitionSpec(AXIS)), rows)


def by_device(function: Callable[..., tuple[Any, Any]], *arguments: Any, axes: Any = 0, out: Any = 0) -> Any:
    """function(*arguments) → (sums, rows) for each device's own rows, the sums added up over all devices.

    `axes` says which axis of each argument is that of the rows, and `out` the same of `rows`. All sums travel in one
    message.
    """
    if _devices() == 1:
        return function(*arguments)

    def own(*arguments: Any) -> tuple[Any, Any]:
        sums, rows = function(*arguments)
        flat, restored = ravel_pytree(sums)
        return restored(jax.lax.psum(flat, AXIS)) if flat.size else sums, rows

    axes = (axes,) * len(arguments) if isinstance(axes, int) else tuple(axes)
    taken = tuple(_along(axis) for axis in axes)
    made = jax.shard_map(own, in_specs=taken, out_specs=(PartitionSpec(), jax.tree.map(_along, out)), check_vma=False)
    return made(*arguments)


def _along(axis: int) -> PartitionSpec:
    return PartitionSpec(*[None] * axis, AXIS)
