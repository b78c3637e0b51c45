"""A compiled program as bytes: XLA's code after a line of Python literals, which are read without pickle."""

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
EMPTY, LEAF = "None", "leaf"  # the forms of trees without nodes
xla_client: Any = getattr(lib, "xla_client")  # noqa: B009  # its `batched_device_put` takes 10 % of `device_put`'s time

Kind = tuple[tuple[int, ...], str]  # the shape and type of an array


class Executable(NamedTuple):
    """A program for one device: kinds of its arguments, kinds and form of its results, XLA's code."""

    arguments: tuple[Kind, ...]
    results: tuple[Kind, ...]
    form: Any  # as literals
    code: bytes

    def shapes(self) -> Any:
        """The results, with shapes and types instead of numbers."""
        return jax.tree.unflatten(_tree(self.form), [jax.ShapeDtypeStruct(*kind) for kind in self.results])


def packed(made: jax.stages.Compiled) -> bytes:
    """A compiled program as bytes; a ValueError if the form of its results cannot be written."""
    tree, executable = jax.tree.structure(made.out_info), made.runtime_executable()
    form = _literals(tree)
    if _tree(literal_eval(repr(form))) != tree:
        raise ValueError(f"its results have a structure that cannot be written as text: {made.out_info}")
    arguments, results = (
        tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in jax.tree.leaves(info))
        for info in (made.args_info, made.out_info)
    )
    head = repr((arguments, results, form)).encode()
    return head + b"\n" + jax.devices()[0].client.serialize_executable(executable)  # pyright: ignore[reportArgumentType]


def unpacked(content: bytes) -> Executable:
    head, _, code = content.partition(b"\n")
    arguments, results, form = literal_eval(head.decode())
    return Executable(arguments, results, form, code)


def loaded(program: Executable) -> Callable[..., Any]:
    device: Any = jax.devices()[0]
    placement, tree = jax.sharding.SingleDeviceSharding(device), _tree(program.form)
    avals = [ShapedArray(shape, np.dtype(kind)) for shape, kind in program.arguments]
    during_call = xla_client.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    run = device.client.deserialize_executable(program.code, [device]).execute_sharded

    def on_device(leaf: Any, aval: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        array = np.asarray(leaf, aval.dtype)
        return xla_client.batched_device_put(aval, placement, [array], [device], host_buffer_semantics=during_call)

    def call(*leaves: Any) -> Any:
        results = run([on_device(leaf, aval) for leaf, aval in zip(leaves, avals, strict=True)])
        return jax.tree.unflatten(tree, [array for (array,) in results.disassemble_into_single_device_arrays()])

    return call


def _literals(tree: Any) -> Any:
    """A tree's form as literals: the types of its nodes by name, and their settings."""
    node = tree.node_data()
    if node is None or node[0] is type(None):
        return LEAF if tree.num_leaves else EMPTY
    kind, settings = node
    return f"{kind.__module__}:{kind.__qualname__}", settings, [_literals(child) for child in tree.children()]


def _tree(form: Any) -> Any:
    """A tree's form from literals; its nodes are Python's or the library's."""
    if isinstance(form, str):
        return jax.tree.structure(None if form == EMPTY else 0)
    name, settings, children = form
    module, _, path = name.partition(":")
    if module.split(".")[0] not in (LIBRARY, "builtins"):
        raise ValueError(f"a tree of {name}")
    node = attrgetter(path)(import_module(module)), settings
    registry = jax.tree_util.default_registry
    return jax.tree_util.PyTreeDef.from_node_data_and_children(registry, node, [_tree(child) for child in children])
