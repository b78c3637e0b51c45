"""A compiled program as bytes: XLA's executable behind a line of Python literals, which are read without pickle."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import lib
from jax.core import ShapedArray

LIBRARY = "quantprop"
xla_client: Any = getattr(lib, "xla_client")  # noqa: B009  # whose `batched_device_put` takes a tenth of `device_put`'s time
NOTHING = "None"  # the form of a tree without leaves

Kind = tuple[tuple[int, ...], str]  # the shape and type of an array


class Image(NamedTuple):
    """A program of one device, with the kinds of all its arguments, and kinds and form of its results."""

    arguments: tuple[Kind, ...]
    results: tuple[Kind, ...]
    form: Any  # as `_spelt`
    executable: bytes

    def shapes(self) -> Any:
        """Shapes and types in place of results."""
        return jax.tree.unflatten(_form(self.form), [jax.ShapeDtypeStruct(*kind) for kind in self.results])


def image_of(made: jax.stages.Compiled) -> Image:
    """What was compiled; a ValueError where its results have a form that cannot be written."""
    made_by: Any = made.runtime_executable()
    form = _spelt(jax.tree.structure(made.out_info))
    if _form(literal_eval(repr(form))) != jax.tree.structure(made.out_info):
        raise ValueError(f"its results have a form that has no text: {made.out_info}")
    arguments, results = (tuple(map(_kind, jax.tree.leaves(info))) for info in (made.args_info, made.out_info))
    return Image(arguments, results, form, jax.devices()[0].client.serialize_executable(made_by))


def packed(image: Image) -> bytes:
    """The image as bytes."""
    return repr(image[:-1]).encode() + b"\n" + image.executable


def unpacked(content: bytes) -> Image:
    """What was packed."""
    head, _, executable = content.partition(b"\n")
    arguments, results, form = literal_eval(head.decode())
    return Image(arguments, results, form, executable)


def loaded(image: Image) -> Callable[..., Any]:
    """The program, ready to be called."""
    device: Any = jax.devices()[0]
    placement, form = jax.sharding.SingleDeviceSharding(device), _form(image.form)
    avals = [ShapedArray(shape, np.dtype(kind)) for shape, kind in image.arguments]
    during_call = xla_client.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    run = device.client.deserialize_executable(image.executable, [device]).execute_sharded

    def on_device(leaf: Any, aval: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        array = np.asarray(leaf, aval.dtype)
        return xla_client.batched_device_put(aval, placement, [array], [device], host_buffer_semantics=during_call)

    def call(*leaves: Any) -> Any:
        results = run([on_device(leaf, aval) for leaf, aval in zip(leaves, avals, strict=True)])
        return jax.tree.unflatten(form, [array for (array,) in results.disassemble_into_single_device_arrays()])

    return call


def _kind(array: Any) -> Kind:
    return tuple(array.shape), str(array.dtype)


def _spelt(form: Any) -> Any:
    """A tree's form as literals: the types of its nodes by name, and what they hold beside arrays."""
    node = form.node_data()
    if node is None or node[0] is type(None):
        return "leaf" if form.num_leaves else NOTHING
    kind, held = node
    return f"{kind.__module__}:{kind.__qualname__}", held, [_spelt(child) for child in form.children()]


def _form(spelt: Any) -> Any:
    """A tree's form from literals; the nodes are builtins' or the library's."""
    if isinstance(spelt, str):
        return jax.tree.structure(None if spelt == NOTHING else 0)
    name, held, children = spelt
    module, _, path = name.partition(":")
    if module.split(".")[0] not in (LIBRARY, "builtins"):
        raise ValueError(f"a tree of {name}")
    node = attrgetter(path)(import_module(module)), held
    return jax.tree_util.PyTreeDef.from_node_data_and_children(
        jax.tree_util.default_registry, node, [_form(child) for child in children]
    )
