"""Checkpoints of learning: the state of a search, in a file to continue from."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args, get_type_hints

import jax
import numpy as np
from jaxtyping import AbstractArray

from quantprop.core.parameters import box, labels, values
from quantprop.learning.evaluation import Declared
from quantprop.learning.fingerprints import of_numbers
from quantprop.learning.landscape import Landscape
from quantprop.learning.search import SearchState
from quantprop.model import is_opaque
from quantprop.runtime.arguments import checked
from quantprop.runtime.jobs import agreed, all_true, gathered, own_part, together
from quantprop.storage.files import ModelFile, Path, Shelf, read, reading, write
from quantprop.storage.records import refusing, require

KIND = "search"  # of a file; those of before, "checkpoint", held evaluations to be repeated
OTHER = "it has other parts"


@dataclass
class Checkpoint:
    """Where the states of one search are written; without a path they are not."""

    path: str | None = None
    every: float = 0.0  # seconds between two files
    written: float = field(default_factory=time.monotonic)

    def save(self, landscape: Landscape, state: SearchState) -> None:
        """Write the state to the file, if it is time: whole, or the old one stays."""
        if self.path is None or not bool(agreed(np.asarray(time.monotonic() - self.written >= self.every))):
            return
        tensors: dict[str, np.ndarray] = {}
        content = _packed(state, SearchState, "state", tensors, landscape)
        with together():
            if jax.process_index() == 0:
                _write(ModelFile(KIND, {**problem_of(landscape), "state": content}, tensors), self.path)
        self.written = time.monotonic()

    def resumed(self, landscape: Landscape, state: SearchState) -> SearchState:
        """The state that the file holds, if there is one; otherwise the given one of a new search."""
        if self.path is None or not all_true(os.path.exists(self.path)):
            return state
        with together(), reading(self.path):
            document = read(self.path)
            require(document.kind != "checkpoint", "it is a checkpoint of an earlier version, which cannot be resumed: "
                    "delete it, or give another file")  # fmt: skip
            require(document.kind == KIND, f"it is of the kind {document.kind!r}, not a checkpoint")
            require(isinstance(document.content, dict), OTHER)
        for name, value in problem_of(landscape).items():
            if (found := document.content.get(name)) != value:
                raise ValueError(_other(self.path, f"its {name}: {found!r} there, {value!r} here"))
        sizes = {"theta": len(state.trial), "n": landscape.total, "padded": landscape.padded}
        source = _Source(Shelf(document.tensors), sizes, own_part(landscape.count), state.memory)
        with together(), reading(self.path), refusing("the checkpoint"):
            resumed = _unpacked(document.content.get("state"), SearchState, "state", source)
            source.shelf.close()
            lower, upper = box(landscape.parts).T
            require(all(((lower <= line.theta) & (line.theta <= upper)).all() for line in resumed.trace), OTHER)
        return resumed


def _write(document: ModelFile, path: str) -> None:
    try:
        write(document, path)
    except OSError as error:
        words = "the checkpoint cannot be written; from the one before it, if there is one, the search can go on"
        raise OSError(error.errno, f"{error.strerror}: {words}", path) from error


def problem_of(landscape: Landscape) -> dict[str, Any]:
    """What a checkpoint must have in common with a search that goes on from it."""
    return {
        "landscape": type(landscape).__name__, "labels": labels(landscape.parts), "rows": landscape.total,
        "objective": landscape.objective.name, "method": repr(landscape.method),
        "likelihood": landscape.model.plain_likelihood.name, "kernel": repr(landscape.model.kernel),
        "numbers": of_numbers(_without_rows(landscape)), "data": landscape.fingerprint,
    }  # fmt: skip


def _without_rows(landscape: Landscape) -> Declared:
    """All numbers of the model, fixed ones and the start of others, but for a prior mean that is given by row: each
    process has its own, and the rows are told by their fingerprint.
    """
    parts = landscape.parts
    return values(parts._replace(mean=None) if is_opaque(landscape.model.mean) else parts)


# --- a state as the parts of a file, by the annotations of its records -----------------------------------------------


def _kind_of(hint: Any, memory: Any) -> tuple[Any, bool, bool]:
    """What a field holds, whether it may be None, and whether it is a tuple of such; `memory` is of the search's."""
    parts, hint = get_args(hint), type(memory) if hint is Any else hint
    if Ellipsis in parts:
        return parts[0], False, True
    return (parts[0], True, False) if type(None) in parts else (hint, False, False)


def _fields(kind: type) -> dict[str, Any]:
    """The fields of a record and their types, without points, which are evaluated again."""
    return {name: hint for name, hint in get_type_hints(kind).items() if name != "point"}


def _is_by_row(kind: Any) -> bool:
    return kind.dim_str.split()[-1] == "n"


def _packed(value: Any, hint: Any, name: str, tensors: dict[str, np.ndarray], landscape: Landscape) -> Any:
    """A part of a state as JSON; arrays go to `tensors`, those by row as one of all processes."""
    kind, _, several = _kind_of(hint, value)
    if value is None:
        return None
    if several:
        return [_packed(part, kind, f"{name}.{i}", tensors, landscape) for i, part in enumerate(value)]
    if kind in (float, int, bool, str):
        value = kind(value)
        return value if kind is not float or math.isfinite(value) else str(value)
    if issubclass(kind, AbstractArray):
        rows = value[..., : landscape.count] if _is_by_row(kind) else value
        tensors[name] = np.concatenate(gathered(rows), axis=-1) if _is_by_row(kind) else np.asarray(value)
        return name
    parts = ((key, getattr(value, key), part) for key, part in _fields(kind).items())
    return {key: _packed(part, own, f"{name}.{key}", tensors, landscape) for key, part, own in parts}


class _Source(NamedTuple):
    """The arrays of a file, and the search that they are for."""

    shelf: Shelf
    sizes: dict[str, int]  # of the axes of arrays
    own: slice  # rows of this process
    memory: Any  # of a new search

    def array(self, kind: Any, name: str) -> np.ndarray:
        """An array; of rows, those of this process, padded as in a new search."""
        axes = kind.dim_str.split()
        array = self.shelf.take_any(name, tuple(self.sizes.get(axis) for axis in axes))
        require(array.dtype == {"Float": np.float64, "Int": np.int64, "Bool": bool}[kind.dtype.__name__], OTHER)
        if not _is_by_row(kind):
            return array
        own = np.full((*array.shape[:-1], self.sizes["padded"]), 0.0 if len(axes) == 1 else np.nan)
        own[..., : self.own.stop - self.own.start] = array[..., self.own]
        return own


def _unpacked(node: Any, hint: Any, name: str, source: _Source) -> Any:
    """A part of a state from JSON and arrays, every part of the type that its record says."""
    kind, optional, several = _kind_of(hint, source.memory)
    if optional and node is None:
        return None
    if several:
        require(isinstance(node, list), OTHER)
        return tuple(_unpacked(part, kind, f"{name}.{i}", source) for i, part in enumerate(node))
    if kind is float:
        require(type(node) in (float, int) or node in ("nan", "inf", "-inf"), OTHER)
        return float(node)
    if kind in (int, bool, str):
        require(type(node) is kind, OTHER)
        return node
    if issubclass(kind, AbstractArray):
        require(node == name, OTHER)
        return source.array(kind, name)
    fields = _fields(kind)
    require(isinstance(node, dict) and set(node) == set(fields), OTHER)
    return kind(**{key: _unpacked(node[key], part, f"{name}.{key}", source) for key, part in fields.items()})


def _other(path: str, why: str) -> str:
    return (
        f"{path} is a checkpoint of another search ({why}): give another file, or delete this one to start from the "
        "beginning"
    )


# --- which fits have checkpoints --------------------------------------------------------------------------------------


@dataclass
class _Series:
    """The files of the fits of a block, one after the other."""

    path: str
    every: float
    count: int = 0


_series: ContextVar[_Series | None] = ContextVar("checkpoints", default=None)


@checked()
@contextmanager
def checkpointed(path: Path, minutes: float = 10.0) -> Iterator[None]:
    """Write a checkpoint of every fit in this block to a file, every so many minutes, and go on from one that is there.

    A fit that was interrupted and is run again with the same data and settings takes up its search where the file left
    it, also in another number of processes. The second fit of a block has `.1` behind the file's name, and so on. In a
    job of several processes the file must be one that all hosts see.

    >>> import os, tempfile
    >>> import numpy as np
    >>> import quantprop
    >>> from quantprop import Model, fit, kernels, likelihoods
    >>> X, place = np.linspace(-2, 2, 12)[:, None], os.path.join(tempfile.mkdtemp(), "sine.checkpoint")
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3))
    >>> with quantprop.checkpointed(place, minutes=0):
    ...     first = fit(model, X, np.sin(2 * X[:, 0]), "ep")
    >>> with quantprop.checkpointed(place):
    ...     again = fit(model, X, np.sin(2 * X[:, 0]), "ep")  # continues from the last state in the file
    >>> bool(np.array_equal(first.theta, again.theta))
    True
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK):
        raise FileNotFoundError(f"the checkpoint {os.fspath(path)} cannot be written: there is no folder {folder}, or "
                                "it is read-only")  # fmt: skip
    token = _series.set(_Series(os.fspath(path), 60.0 * minutes))
    try:
        yield
    finally:
        _series.reset(token)


def next_checkpoint() -> Checkpoint:
    """The checkpoint of the next fit of the block; outside of a block, one that writes nothing."""
    series = _series.get()
    if series is None:
        return Checkpoint()
    path = series.path + (f".{series.count}" if series.count else "")
    series.count += 1
    return Checkpoint(path, series.every)
