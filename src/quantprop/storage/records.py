"""Objects as JSON and back: types are looked up by name, their fields are checked, and nothing is run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Optional, get_args, get_origin, get_type_hints

import jax
import numpy as np
from jaxtyping import AbstractArray

from quantprop import kernels, likelihoods, means
from quantprop.core.parameters import LogNormal, Parameter, is_parameter
from quantprop.core.records import Record, is_record
from quantprop.kernels.size import MAX_DEPTH
from quantprop.methods import Method
from quantprop.model import Model
from quantprop.priors import Process
from quantprop.priors.inducing import Message
from quantprop.projections import Projection
from quantprop.runtime.arguments import Rule
from quantprop.storage.files import Unreadable, refusing, require  # noqa: F401  # taken from here by others

DEPTH = MAX_DEPTH + 20
INLINE = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64")


# --- rules of fields -------------------------------------------------------------------------------------------------


def numeric(value: Any, dimensions: int = 1) -> bool:
    """Return whether a value is a number or an array of numbers without NaN."""
    array = np.asarray(value)
    return array.dtype.kind in "iuf" and array.ndim <= dimensions and not np.isnan(array).any()


def finite(value: Any, dimensions: int = 1) -> bool:
    return numeric(value, dimensions) and bool(np.isfinite(value).all())


def instance(words: str, *kinds: type) -> Rule:
    return Rule(words, lambda value: isinstance(value, kinds))


NUMBERS = Rule("finite numbers", finite)
NUMBER = Rule("a finite number", lambda value: finite(value, 0))
FLAG = instance("true or false", bool, np.bool_)
TEXT = instance("text", str)
NAMES = Rule("a tuple of names", lambda value: isinstance(value, tuple) and all(isinstance(n, str) for n in value))
LEARNED = Rule("finite numbers or a Parameter", lambda value: is_parameter(value) or finite(value, 2))
LIKELIHOOD = instance("a likelihood", likelihoods.Likelihood)
MEAN = Rule(
    "a number, a Parameter, means.Linear or means.PerClass (a function cannot be stored)",
    lambda value: isinstance(value, (Parameter, means.Linear, means.PerClass, means.OfValues)) or finite(value),
)
BY_FIELD = {  # if the annotation allows more, or fewer dimensions
    (Model, "mean"): MEAN,
    (means.PerClass, "means"): Rule(
        "a tuple of means", lambda value: isinstance(value, tuple) and all(map(MEAN.holds, value))
    ),
    (Parameter, "value"): Rule("finite numbers, or a table of them", lambda value: finite(value, 2)),
    (Parameter, "bounds"): Rule(
        "None or (lower, upper)",
        lambda ends: ends is None or (isinstance(ends, (list, tuple)) and len(ends) == 2 and all(map(numeric, ends))),
    ),
    (Parameter, "prior"): instance(
        "None or LogNormal (another function cannot be stored, and predictions do not need it: drop the prior)",
        type(None), LogNormal,
    ),
}  # fmt: skip
BY_TYPE = {
    Any: LEARNED, float: NUMBER, bool: FLAG, str: TEXT, type(None): instance("None", type(None)),
    int: Rule("an integer", lambda value: isinstance(value, (int, np.integer)) and not isinstance(value, bool)),
}  # fmt: skip
OF_USERS = Rule(
    "finite numbers, a setting, or a part of the library",
    lambda value: is_record(value) or value is None or isinstance(value, (bool, str, tuple)) or finite(value, 2),
)


def rule_of(annotation: Any, number: Rule = NUMBER) -> Rule | None:
    """The rule for values of a type, and for its numbers; None if such values cannot be stored, such as functions."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is float:
        return number
    if annotation in BY_TYPE:
        return BY_TYPE[annotation]
    if isinstance(annotation, type) and issubclass(annotation, (AbstractArray, Record)):
        return instance(f"a {annotation.__name__.lower()}", annotation) if issubclass(annotation, Record) else LEARNED
    if origin is Literal:
        return Rule(f"one of {', '.join(parts)}", lambda value: value in parts)
    rules: list[Any] = [rule_of(part, number) for part in parts if part is not Ellipsis]
    if not rules or None in rules:
        return None
    words = " or ".join(rule.words for rule in rules)
    if origin is tuple:
        each = rules[0].holds
        return Rule(f"a tuple, each {words}", lambda value: isinstance(value, tuple) and all(map(each, value)))
    return Rule(words, lambda value: any(rule.holds(value) for rule in rules))


def rules_of(make: Any, number: Rule = NUMBER) -> dict[str, Any]:
    """The rules of a dataclass's fields, from their annotations."""
    hints, rules = get_type_hints(make), {}
    for field in _fields(make):
        kind = Optional[hints[field.name]] if field.default is None else hints[field.name]  # noqa: UP045
        rules[field.name] = BY_FIELD.get((make, field.name)) or rule_of(kind, number)
    return rules


def _fields(make: Any) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(make) if field.init] if dataclasses.is_dataclass(make) else []


# --- what may be stored ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A type that may be stored. The rules of its fields follow from their annotations, unless they are given."""

    name: str
    make: Any
    given: Mapping[str, Rule] | None = None

    @cached_property
    def rules(self) -> Mapping[str, Any]:
        """A rule for each field; None for one that cannot be stored."""
        return rules_of(self.make) if self.given is None else self.given

    @cached_property
    def later(self) -> frozenset[str]:
        """Fields that a file of an older version may lack: those with a default."""
        return frozenset(field.name for field in _fields(self.make) if field.default is not dataclasses.MISSING)


@dataclass(frozen=True)
class Registry:
    kinds: tuple[Kind, ...]

    def named(self, name: Any, where: str) -> Kind:
        """The kind of a name in a file."""
        found = self._first("name", name)
        remedy = "register your own types before reading a file that contains them (storage.register)"
        require(found, f"{where} has the unknown type {name!r}; {remedy}")
        return found

    def of(self, value: Any, where: str) -> Kind:
        """The kind of an object, or an error that says that it cannot be stored."""
        found = self._first("make", type(value))
        if found is None:
            raise TypeError(
                f"{where}: {type(value).__name__} is not a type of the library, so it cannot be stored; a type of your "
                "own whose fields are numbers can be registered (storage.register)"
            )
        return found

    def _first(self, attribute: str, value: Any) -> Any:
        known = (kind for kind in (*self.kinds, *_own.values()) if getattr(kind, attribute) == value)
        return next((kind for kind in known if None not in kind.rules.values()), None)


_own: dict[str, Kind] = {}  # types that users have registered


def register(make: type) -> type:
    """Let files hold a kernel, likelihood or process of your own whose fields are numbers or parts of the library.

    Usable as a decorator. A file names the type; it can be read wherever a type of that name has been registered.
    """
    kind = Kind(f"own.{make.__name__}", make, {field.name: OF_USERS for field in _fields(make)})
    before = _own.get(kind.name)
    if before is not None and before.make.__qualname__ != make.__qualname__:
        raise ValueError(f"a type named {make.__name__} is registered already; a file could not distinguish the two")
    _own[kind.name] = kind
    return make


def _final(base: type, folder: str) -> Iterator[type]:
    """The library's classes below a base that no other of its classes derives from: the others are abstract."""
    below = [make for make in base.__subclasses__() if make.__module__.startswith(f"quantprop.{folder}.")]
    for make in below:
        yield from _final(make, folder)
    if not below:
        yield base


FOLDERS = {"kernels": kernels.Kernel, "likelihoods": likelihoods.Likelihood, "methods": Method,
           "projections": Projection, "priors": Process}  # fmt: skip
NAMED = {"priors": "processes"}  # as files have them
REGISTRY = Registry((
    *(Kind(f"{NAMED.get(folder, folder)}.{make.__name__}", make)
      for folder, base in FOLDERS.items() for make in _final(base, folder)),
    Kind("kernels.Terms", kernels.Terms),
    Kind("processes.Message", Message),
    *(Kind(f"models.{make.__name__}", make)
      for make in (Model, Parameter, LogNormal, means.Linear, means.PerClass, means.OfValues)),
))  # fmt: skip


# --- objects as JSON -------------------------------------------------------------------------------------------------


def encode(value: Any, where: str, registry: Registry = REGISTRY, depth: int = 0) -> Any:
    """An object as JSON; `where` names it in errors."""
    if depth > DEPTH:
        raise ValueError(f"{where} is nested more than {DEPTH} deep, so it cannot be stored")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, (list, tuple)):
        entries = [encode(entry, f"{where}[{i}]", registry, depth + 1) for i, entry in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": entries}
    if isinstance(value, Mapping):
        return {"mapping": encode(tuple(value.items()), where, registry, depth + 1)}
    if isinstance(value, (np.ndarray, jax.Array)):
        return _encoded_array(np.asarray(value), where)
    kind = registry.of(value, where)
    return {"type": kind.name, "fields": encoded_fields(kind, value, where, registry, depth)}


def encoded_fields(kind: Kind, value: Any, where: str, registry: Registry = REGISTRY, depth: int = 0) -> dict[str, Any]:
    """The fields of an object as JSON, checked by their rules."""
    for name, rule in kind.rules.items():
        if not rule.holds(getattr(value, name)):
            raise TypeError(f"{where}.{name} must be {rule.words}; got {getattr(value, name)!r}")
    return {name: encode(getattr(value, name), f"{where}.{name}", registry, depth + 1) for name in kind.rules}


def _encoded_array(array: np.ndarray, where: str) -> dict[str, Any]:
    entries, name = array.ravel().tolist(), "str" if array.dtype.kind == "U" else array.dtype.name
    if not (name in INLINE or name == "str" or (name == "object" and all(isinstance(e, str) for e in entries))):
        raise TypeError(f"{where}: an array of type {name} cannot be stored")
    entries = [e if not isinstance(e, float) or math.isfinite(e) else str(e) for e in entries]
    return {"array": name, "shape": list(array.shape), "values": entries}


def decode(node: Any, where: str, registry: Registry = REGISTRY, depth: int = 0) -> Any:
    """An object from JSON, every part checked."""
    require(depth <= DEPTH, f"it is nested more than {DEPTH} deep")
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, float):
        require(math.isfinite(node), f"{where} is not a finite number")
        return node
    keys = set(node) if isinstance(node, dict) else set()
    if keys == {"number"}:
        require(node["number"] in ("inf", "-inf", "nan"), f"{where} is not a number")
        return float(node["number"])
    if keys in ({"tuple"}, {"list"}):
        ((name, entries),) = node.items()
        require(isinstance(entries, list), f"{where} is not a list")
        parts = (decode(entry, f"{where}[{i}]", registry, depth + 1) for i, entry in enumerate(entries))
        return tuple(parts) if name == "tuple" else list(parts)
    if keys == {"mapping"}:
        with refusing(f"{where} is not a mapping"):
            return dict(decode(node["mapping"], where, registry, depth + 1))
    if keys == {"array", "shape", "values"}:
        return _decoded_array(node["array"], node["shape"], node["values"], where)
    require(keys == {"type", "fields"}, f"{where} has an unknown form")
    return decoded_fields(registry.named(node["type"], where), node["fields"], where, registry, depth)


def decoded_fields(kind: Kind, fields: Any, where: str, registry: Registry = REGISTRY, depth: int = 0) -> Any:
    """An object of a kind from its fields as JSON."""
    known = isinstance(fields, dict) and set(fields) <= set(kind.rules) <= set(fields) | kind.later
    require(known, f"{where} has the wrong fields")
    parts = {name: decode(field, f"{where}.{name}", registry, depth + 1) for name, field in fields.items()}
    return built(kind, parts, where)


def built(kind: Kind, fields: Mapping[str, Any], where: str) -> Any:
    """An object of a kind, or the reason why its own checks refuse the fields."""
    with refusing(where):
        for name, value in fields.items():
            rule = kind.rules[name]
            require(rule.holds(value), f"{where}.{name} must be {rule.words}")
        return kind.make(**fields)


def _decoded_array(name: Any, shape: Any, entries: Any, where: str) -> np.ndarray:
    require(name in (*INLINE, "str", "object"), f"{where} is an array of the unknown type {name!r}")
    sizes = shape if isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape) else None
    require(sizes is not None and len(sizes) <= 2 and isinstance(entries, list), f"{where} is not an array")
    require(math.prod(shape) == len(entries), f"{where} has the wrong number of entries")
    text = name in ("str", "object")
    kinds = (str,) if text else (bool,) if name == "bool" else (int, float) if "float" in name else (int,)
    if "float" in name:
        entries = [float(entry) if entry in ("inf", "-inf", "nan") else entry for entry in entries]
    require(all(type(entry) in kinds for entry in entries), f"{where} has entries of the wrong type")
    with refusing(where), np.errstate(all="ignore"):
        return np.array(entries, dtype=name).reshape(shape)
