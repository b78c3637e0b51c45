"""Records: frozen dataclasses that JAX sees as trees. Numbers are leaves, settings belong to the tree's structure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax
import numpy as np

R = TypeVar("R")


def field(*, static: bool = False, converter: Callable[[Any], Any] | None = None, **given: Any) -> Any:
    """A field as `dataclasses.field` makes it: a `static` one is a setting, and a `converter` is applied to what the
    constructor is given.
    """
    return dataclasses.field(metadata={"static": static, "converter": converter}, **given)


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field, field))
class Record:
    """Base of all records: a class that derives from it is a dataclass, frozen, and a tree.

    Constructors set each field once; a class without fields of its own has its parent's. What they check is checked in
    `__post_init__`, after that of the parent. JAX makes records without a constructor, of whatever stands for numbers.
    """

    _names: ClassVar[frozenset[str]] = frozenset()
    _converters: ClassVar[tuple[tuple[str, Callable[[Any], Any]], ...]] = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        # Frozen by `__setattr__` below: that of a frozen dataclass is compiled anew for each class.
        own = any("ClassVar" not in str(kind) for kind in vars(cls).get("__annotations__", {}).values())
        dataclasses.dataclass(init=own, eq=False, repr=False)(cls)
        parts = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]  # which it is now
        cls._names = frozenset(p.name for p in parts)
        cls._converters = tuple((p.name, p.metadata["converter"]) for p in parts if p.metadata.get("converter"))
        settings = tuple(p.name for p in parts if p.metadata.get("static"))
        _as_tree(cls, tuple(p.name for p in parts if p.name not in settings), settings)

    def __init__(self) -> None:
        self.__post_init__()

    def __post_init__(self) -> None:
        for name, convert in self._converters:
            vars(self)[name] = convert(vars(self)[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) or name not in self._names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        vars(self)[name] = value

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        leaves, form = jax.tree.flatten(self)
        others, its_form = jax.tree.flatten(other)
        return form == its_form and all(_equal(one, another) for one, another in zip(leaves, others, strict=True))

    def __hash__(self) -> int:
        leaves, form = jax.tree.flatten(self)
        return hash((form, *leaves))


def changed(record: R, **fields: Any) -> R:
    """The record with other values of some fields, which are neither converted nor checked."""
    if unknown := fields.keys() - vars(record).keys():
        raise TypeError(f"{type(record).__name__} has no field {', '.join(sorted(unknown))}")
    new = object.__new__(type(record))
    vars(new).update(vars(record) | fields)
    return new


def is_record(node: Any) -> bool:
    """Whether it is a dataclass whose fields JAX sees: a record, or one of another library's."""
    return dataclasses.is_dataclass(node) and not isinstance(node, type) and not jax.tree_util.all_leaves([node])


def _as_tree(cls: type, numbers: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Tell JAX which fields of a class are numbers."""
    keys = tuple(map(jax.tree_util.GetAttrKey, numbers))

    def flatten(record: Any) -> tuple[list[Any], tuple[Any, ...]]:
        held = vars(record)
        return [held[name] for name in numbers], tuple([held[name] for name in settings])

    def flatten_with_keys(record: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, structure = flatten(record)
        return list(zip(keys, children, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], children: Any) -> Any:
        new = object.__new__(cls)
        held = vars(new)
        held.update(zip(settings, structure, strict=True))
        held.update(zip(numbers, children, strict=True))
        return new

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def _equal(one: Any, another: Any) -> bool:
    """Whether two leaves are the same: numbers by shape and value."""
    if one is another:
        return True
    if any(isinstance(leaf, (np.ndarray, jax.Array)) for leaf in (one, another)):
        return np.array_equal(one, another)
    return bool(one == another)
