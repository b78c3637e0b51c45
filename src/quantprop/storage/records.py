"""Objects as JSON and back. Types are looked up by name in a table, and every field is checked: nothing is run."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from quantprop import kernels, likelihoods, means
from quantprop.kernels.base import MAX_DEPTH
from quantprop.likelihoods.softmax import SoftmaxFactor
from quantprop.methods import EP, VB, Laplace
from quantprop.model import DEFAULT_PROCESS, Model
from quantprop.parameters import LogNormal, Parameter, is_parameter
from quantprop.priors import PROCESSES, Inducing, Process
from quantprop.priors.inducing import Message
from quantprop.projections import KL, Projection, Wasserstein
from quantprop.runtime.arguments import Rule

DEPTH = MAX_DEPTH + 20
INLINE = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64")


class Unreadable(ValueError):
    """Why a file is not a model."""


def require(condition: Any, reason: str) -> None:
    """Refuse a file."""
    if not condition:
        raise Unreadable(reason)


@contextlib.contextmanager
def refusing(where: str) -> Iterator[None]:
    """Whatever the library's own checks raise here is a fault of the file."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except Exception as error:
        raise Unreadable(f"{where}: {error}") from error


# --- what may be stored ----------------------------------------------------------------------------------------------


def numeric(value: Any, dimensions: int = 1) -> bool:
    """Whether a value is a number or an array of numbers without NaN."""
    array = np.asarray(value)
    return array.dtype.kind in "iuf" and array.ndim <= dimensions and not np.isnan(array).any()


def finite(value: Any, dimensions: int = 1) -> bool:
    """Whether a value is a finite number or an array of them."""
    return numeric(value, dimensions) and bool(np.isfinite(value).all())


def instance(words: str, *kinds: type) -> Rule:
    """The rule that a field is of a type."""
    return Rule(words, lambda value: isinstance(value, kinds))


def _is_bounds(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple)) and len(value) == 2 and all(map(numeric, value)))


NUMBERS = Rule("finite numbers", finite)
NUMBER = Rule("a finite number", lambda value: finite(value) and np.ndim(value) == 0)
FLAG = instance("true or false", bool, np.bool_)
LEARNED = Rule("finite numbers or a Parameter", lambda value: is_parameter(value) or finite(value))
TABLE = Rule("finite numbers, a table of them or a Parameter", lambda value: is_parameter(value) or finite(value, 2))
LIKELIHOOD = instance("a likelihood", likelihoods.Likelihood)
MEAN = Rule(
    "a number, a Parameter, means.Linear or means.PerClass (a function cannot be stored)",
    lambda value: is_parameter(value) or isinstance(value, (means.Linear, means.PerClass)) or finite(value),
)
NAMES = Rule("a tuple of names", lambda value: isinstance(value, tuple) and all(isinstance(n, str) for n in value))
COUNT = Rule("a whole number above 0 or None", lambda value: value is None or (type(value) is int and value > 0))
RULES = {  # by the name of the field; all others are LEARNED
    **dict.fromkeys(("kernel", "left", "right", "base"), instance("a kernel", kernels.Kernel)),
    **dict.fromkeys(("exponent", "power", "p", "median", "deviation", "seed", "jitter"), NUMBER),
    **dict.fromkeys(("fixed", "ordered", "learn"), FLAG),
    "points": TABLE,
    "functions": instance("inducing points", Inducing),
    "message": instance("None or the message of earlier rows", type(None), Message),
    "columns": Rule(
        "None or a tuple of names or positions",
        lambda value: value is None or (isinstance(value, tuple) and all(type(c) in (int, str) for c in value)),
    ),
    "names": NAMES,
    **dict.fromkeys(("rank", "levels", "classes"), COUNT),
    "kernels": Rule(
        "a tuple of kernels",
        lambda value: isinstance(value, tuple) and all(isinstance(k, kernels.Kernel) for k in value),
    ),
    "likelihoods": Rule(
        "a tuple of likelihoods",
        lambda value: isinstance(value, tuple) and all(isinstance(part, likelihoods.Likelihood) for part in value),
    ),
    "means": Rule("a tuple of means", lambda value: isinstance(value, tuple) and all(map(MEAN.holds, value))),
    "weights": Rule(f"None, {TABLE.words}", lambda value: value is None or TABLE.holds(value)),
    **dict.fromkeys(
        ("own", "centre"), Rule(f"None, {LEARNED.words}", lambda value: value is None or LEARNED.holds(value))
    ),
    **dict.fromkeys(("text", "rows"), instance("text", str)),
    "likelihood": LIKELIHOOD,
    "mean": MEAN,
    "process": instance("a process", Process),
    "projection": instance("a projection", Projection),
    "link": instance("the name of a link", str),
    "lanes": instance("None or a whole number", type(None), int),
    "harmonics": instance("a whole number", int),
    "value": Rule("finite numbers, or a table of them", lambda value: finite(value, 2)),
    "bounds": Rule("None or (lower, upper)", _is_bounds),
    "prior": Rule(
        "None or LogNormal (another function cannot be stored, and predictions do not need it: drop the prior)",
        lambda value: value is None or isinstance(value, LogNormal),
    ),
}


@dataclass(frozen=True)
class Kind:
    """A type that may be stored, and the rules of its fields; `later` ones are missing in files of older versions."""

    name: str
    make: type
    rules: Mapping[str, Rule]
    later: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def record(folder: str, make: type, rest: Rule = LEARNED, **later: Any) -> Kind:
    """A kind whose fields are those of a dataclass; `rest` holds for those without a rule by their name."""
    names = [field.name for field in dataclasses.fields(make) if field.init]
    return Kind(f"{folder}.{make.__name__}", make, {name: RULES.get(name, rest) for name in names}, later)


@dataclass(frozen=True)
class Registry:
    """The kinds that a file may hold."""

    kinds: tuple[Kind, ...]

    def named(self, name: Any, where: str) -> Kind:
        """The kind of a name in a file."""
        found = [kind for kind in (*self.kinds, *_own.values()) if kind.name == name]
        remedy = "a type of your own must be registered before a file is read that holds it (storage.register)"
        require(found, f"{where} has the unknown type {name!r}; {remedy}")
        return found[0]

    def of(self, value: Any, where: str) -> Kind:
        """The kind of an object, or an error that says that it cannot be stored."""
        found = [kind for kind in (*self.kinds, *_own.values()) if kind.make is type(value)]
        if not found:
            raise TypeError(
                f"{where}: {type(value).__name__} is not a type of the library, so it cannot be stored; a type of your "
                "own whose fields are numbers can be registered (storage.register)"
            )
        return found[0]


_own: dict[str, Kind] = {}  # types that users have registered


def register(make: type) -> type:
    """Let files hold a kernel, likelihood or process of your own whose fields are numbers or parts of the library.

    Usable as a decorator. A file names the type; it can be read wherever a type of that name has been registered.
    """
    kind = record("own", make, TABLE)
    before = _own.get(kind.name)
    if before is not None and before.make.__qualname__ != make.__qualname__:
        raise ValueError(f"a type named {make.__name__} is registered already; a file could not tell the two apart")
    _own[kind.name] = kind
    return make


_KERNELS = (
    "Sum", "Product", "Power", "SquaredExponential", "Matern12", "Matern32", "Matern52", "RationalQuadratic",
    "Periodic", "Oscillation", "IntegratedWiener", "Constant", "White", "Columns", "Categories", "Coregion",
    "Terms", "PerClass", "Difference",
)  # fmt: skip
_LIKELIHOODS = (
    "Gaussian", "Probit", "Logit", "Heaviside", "Poisson", "NegativeBinomial", "Binomial", "StudentT",
    "DoubleExponential", "Gamma", "Beta", "Ordinal", "Censored", "Weibull", "LogLogistic", "ZeroInflatedPoisson",
    "ZeroInflatedNegativeBinomial", "Warped", "MultinomialProbit", "Softmax", "ByOutput",
)  # fmt: skip
REGISTRY = Registry((
    *(record("kernels", getattr(kernels, name)) for name in _KERNELS),
    record("kernels", kernels.Linear, centre=None),
    *(record("likelihoods", getattr(likelihoods, name)) for name in _LIKELIHOODS),
    record("likelihoods", SoftmaxFactor),
    *(record("methods", make) for make in (EP, VB, Laplace)),
    *(record("projections", make) for make in (KL, Wasserstein)),
    *(record("processes", make) for make in PROCESSES if make is not Inducing),
    record("processes", Inducing, message=None),
    record("processes", Message, TABLE),
    record("models", Model, process=DEFAULT_PROCESS),
    *(record("models", make) for make in (Parameter, LogNormal)),
    record("models", means.Linear, columns=None),
    record("models", means.PerClass),
))  # fmt: skip


# --- objects as JSON -------------------------------------------------------------------------------------------------


def encode(value: Any, where: str, registry: Registry = REGISTRY, depth: int = 0) -> Any:
    """An object as JSON; `where` names it in errors."""
    if depth > DEPTH:
        raise ValueError(f"{where} is nested more than {DEPTH} deep, so it cannot be stored")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (np.bool_, int, np.integer)):
        return value.item() if isinstance(value, np.generic) else int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else {"number": str(float(value))}
    if isinstance(value, (list, tuple)):
        entries = [encode(entry, f"{where}[{i}]", registry, depth + 1) for i, entry in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": entries}
    if isinstance(value, (np.ndarray, jax.Array)):
        return _encoded_array(np.asarray(value), where)
    kind = registry.of(value, where)
    fields = {name: getattr(value, name) for name in kind.rules}
    for name, rule in kind.rules.items():
        if not rule.holds(fields[name]):
            raise TypeError(f"{where}.{name} must be {rule.words}; got {fields[name]!r}")
    parts = {name: encode(field, f"{where}.{name}", registry, depth + 1) for name, field in fields.items()}
    return {"type": kind.name, "fields": parts}


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
    if keys == {"array", "shape", "values"}:
        return _decoded_array(node["array"], node["shape"], node["values"], where)
    require(keys == {"type", "fields"}, f"{where} is of no known form")
    kind, fields = registry.named(node["type"], where), node["fields"]
    known = isinstance(fields, dict) and set(fields) | set(kind.later) == set(kind.rules)
    require(known, f"{where} has the wrong fields")
    parts = {name: decode(field, f"{where}.{name}", registry, depth + 1) for name, field in fields.items()}
    return built(kind, {**kind.later, **parts}, where)


def built(kind: Kind, fields: Mapping[str, Any], where: str) -> Any:
    """An object of a kind, or the reason why its own checks refuse the fields."""
    with refusing(where):
        for name, rule in kind.rules.items():
            require(rule.holds(fields[name]), f"{where}.{name} must be {rule.words}")
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
