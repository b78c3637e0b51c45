"""Records: frozen dataclasses that JAX sees as trees. Numbers are leaves, settings belong to the tree's structure."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax
import numpy as np

from quantprop.runtime.display import expression, expression_html

R = TypeVar("R")
MAKING = "_making"  # set on a record while it is constructed


def field(*, static: bool = False, converter: Callable[[Any], Any] | None = None, **given: Any) -> Any:
    """A field as `dataclasses.field` makes it: a `static` one is a setting, and a `converter` is applied to what the
    constructor is given.
    """
    return dataclasses.field(metadata={**given.pop("metadata", {}), "static": static, "converter": converter}, **given)


class _Kind(type):
    """Makes records: constructed, converted, complete, checked by all classes they derive from, and frozen."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        new: Any = object.__new__(cls)
        vars(new)[MAKING] = True
        new.__init__(*args, **kwargs)
        _complete(new)
        del vars(new)[MAKING]
        for kind in cls.__mro__:
            if "__check_init__" in vars(kind):
                kind.__check_init__(new)
        return new

    @property
    def __signature__(cls) -> inspect.Signature:
        whole = inspect.signature(cls.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field, field))
class Record(metaclass=_Kind):
    """Base of all records: a class that derives from it is a dataclass, frozen, and a tree.

    `__check_init__` of each class checks what was made. JAX makes records without a constructor and unchecked, of
    whatever stands for numbers.
    """

    _numbers: ClassVar[tuple[str, ...]] = ()
    _settings: ClassVar[tuple[str, ...]] = ()
    _converters: ClassVar[tuple[tuple[str, Callable[[Any], Any]], ...]] = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        _as_dataclass(cls)
        parts = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]  # which it is now
        cls._converters = tuple((p.name, p.metadata["converter"]) for p in parts if p.metadata.get("converter"))
        cls._settings = tuple(p.name for p in parts if p.metadata.get("static"))
        cls._numbers = tuple(p.name for p in parts if p.name not in cls._settings)
        _as_tree(cls)

    def __init__(self) -> None:
        pass

    def __repr__(self) -> str:
        return expression(self)

    def _repr_html_(self) -> str:
        return expression_html(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if MAKING not in vars(self) or name not in self._numbers + self._settings:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        vars(self)[name] = value

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        leaves, form = jax.tree.flatten(self)
        others, its_form = jax.tree.flatten(other)
        return form == its_form and all(a is b or np.array_equal(a, b) for a, b in zip(leaves, others, strict=True))

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
    """Return whether it is a record, or a module of equinox, which is one too."""
    foreign = ((kind.__module__.split(".")[0], kind.__name__) for kind in type(node).__mro__)
    return isinstance(node, Record) or ("equinox", "Module") in foreign


def _as_dataclass(cls: type) -> None:
    """Make the class a dataclass, with its own constructor if its fields differ from the inherited constructor's.

    It is not a frozen dataclass, whose methods would be compiled again for each class.
    """
    above = next(kind for kind in cls.__mro__ if "__init__" in vars(kind))
    inherited = {name for kind in cls.__mro__[1:] for name in getattr(kind, "__dataclass_fields__", ())}
    fields = any("ClassVar" not in str(kind) for kind in inspect.get_annotations(cls).values())
    more = inherited - set(getattr(above, "__dataclass_fields__", ()))
    dataclasses.dataclass(init=fields or bool(more), eq=False, repr=False)(cls)


def _complete(record: Record) -> None:
    """Apply converters, and defaults to fields that a constructor left alone."""
    given = vars(record)
    for part in dataclasses.fields(record):  # pyright: ignore[reportArgumentType]
        if part.name not in given:
            if part.default is not dataclasses.MISSING:
                given[part.name] = part.default
            elif part.default_factory is not dataclasses.MISSING:
                given[part.name] = part.default_factory()
            else:
                raise TypeError(f"{type(record).__name__}: its constructor does not set the field {part.name}")
    for name, convert in record._converters:
        given[name] = convert(given[name])


def _as_tree(cls: Any) -> None:
    """Tell JAX which fields are numbers, by names that are looked up when needed: cloudpickle sets these late."""

    def flatten(record: Any) -> tuple[list[Any], tuple[Any, ...]]:
        given = vars(record)
        return [given[name] for name in cls._numbers], tuple([given[name] for name in cls._settings])

    def flatten_with_keys(record: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, structure = flatten(record)
        return [(jax.tree_util.GetAttrKey(n), c) for n, c in zip(cls._numbers, children, strict=True)], structure

    def unflatten(structure: tuple[Any, ...], children: Any) -> Any:
        new = object.__new__(cls)
        vars(new).update(zip(cls._settings, structure, strict=True))
        vars(new).update(zip(cls._numbers, children, strict=True))
        return new

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
