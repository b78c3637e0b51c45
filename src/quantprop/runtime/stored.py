"""Compiled programs as files, named by what they are made from: who finds one need neither trace nor compile it.

JAX's own cache is asked with a program that has been traced and lowered, which takes longer than a small fit. The name
of a file here is a digest of all that decides what would be traced: the library's code, the function, the form of its
arguments with their shapes and types, versions and settings. A program of parts that are not the library's own, such as
a user's likelihood or function, has no name; JAX's cache is left to find it.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import pickle
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from secrets import token_hex
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

import jax
import jaxlib.version
import numpy as np
from jax.experimental import serialize_executable

from quantprop.runtime.seals import MARK, SEALED, sealed, unsealed
from quantprop.runtime.system import cores

LIBRARY = "quantprop"
PLAIN = (bool, int, float, str, bytes, type(None), np.dtype)
CONTAINERS = (tuple, list, dict, frozenset)
DOUBLE = "jax_enable_x64"
SETTINGS = (DOUBLE, "jax_default_matmul_precision", "jax_debug_nans", "jax_debug_infs", "jax_disable_jit")

_folders: list[Path] = []  # the one that programs are kept in, if any


def keep_in(folder: Path) -> None:
    """Look for programs in this folder from now on, and write new ones there."""
    _folders[:] = [folder]


def kept(jitted: Callable[..., Any], function: Any, static: dict[str, Any], form: Any, leaves: list[Any]) -> Any:
    """The jitted function as a program that is kept; as it is where nothing is, or where it has no name."""
    if not _folders or jax.device_count() != 1:
        return jitted()
    name = _name(function, static, form, leaves)
    return jitted() if name is None else Kept(jitted, _folders[0] / f"{name}{SEALED}")


class Image(NamedTuple):
    """A program as a file holds it."""

    executable: bytes
    count: int  # of arguments
    out: Any  # the results, each its place among them instead of an array
    shapes: tuple[tuple[tuple[int, ...], str], ...]  # of these, with their types


class Kept:
    """A jitted function whose program is read from a file, or else compiled on first use and written there."""

    def __init__(self, jitted: Callable[..., Any], file: Path) -> None:
        self.make, self.file, self.record, self.gate = jitted, file, _read(file), Lock()
        self.double = getattr(jax.config, DOUBLE)  # a setting of each thread
        self.arguments: tuple[Any, ...] = ()
        self.lowered: Any = None
        self.ready: Any = None

    @cached_property
    def jitted(self) -> Any:
        """The function as JAX has it, for where there is no file; by a name of its own, so that JAX's cache does not
        answer, from another process or for a program that differs in what is not compiled: what XLA has loaded it
        writes without its code.
        """
        return self.make(f"{MARK}{token_hex(8)}")

    def __call__(self, *leaves: Any) -> Any:
        if self.ready is None:
            self.lower(*leaves).compile()
        ready: Any = self.ready
        return ready(*leaves)

    def eval_shape(self, *leaves: Any) -> Any:
        """Shapes and types in place of results."""
        if self.record is None:
            return self.jitted.eval_shape(*leaves)
        shapes = self.record.shapes
        return jax.tree.map(lambda place: jax.ShapeDtypeStruct(*shapes[place]), self.record.out)

    def lower(self, *leaves: Any) -> Kept:
        """What `compile` needs: nothing where the program is on file, as long as it can be used."""
        self.arguments = leaves
        if self.record is None:
            self.lowered = self.jitted.lower(*leaves)
        return self

    def compile(self) -> None:
        """Load the program, or compile and write it."""
        with self.gate:
            if self.ready is None:
                self.ready = self._loaded() or self._compiled()
                self.arguments, self.lowered = (), None

    def _loaded(self) -> Any:
        if self.record is None:
            return None
        arguments, out = jax.tree.structure(((0,) * self.record.count, {})), jax.tree.structure(self.record.out)
        _link_lapack()
        try:
            return serialize_executable.deserialize_and_load(self.record.executable, arguments, out)
        except jax.errors.JaxRuntimeError as error:
            told = f"a compiled program cannot be used and is compiled again: {error}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
            return None

    def _compiled(self) -> Any:
        with jax.enable_x64(self.double):
            lowered = self.jitted.lower(*self.arguments) if self.lowered is None else self.lowered
        made = lowered.compile()
        executable, arguments, out = serialize_executable.serialize(made)
        shapes = tuple((one.shape, str(one.dtype)) for one in jax.tree.leaves(made.out_info))
        image = Image(executable, arguments.num_leaves, jax.tree.unflatten(out, range(len(shapes))), shapes)
        try:
            self.file.write_bytes(sealed(pickle.dumps(image)))
        except OSError as error:
            warnings.warn(f"a compiled program is not kept: {error}", RuntimeWarning, stacklevel=2)
        return made


def _read(file: Path) -> Image | None:
    """What a file holds; None where there is none that can be used."""
    try:
        packed = unsealed(file.read_bytes()) if file.exists() else None
    except OSError as error:
        warnings.warn(f"a compiled program cannot be read and is compiled again: {error}", RuntimeWarning, stacklevel=2)
        return None
    return None if packed is None else pickle.loads(packed)


@cache
def _link_lapack() -> None:
    """Have JAX look up LAPACK, which it does on lowering the first program that needs it: one that is loaded would call
    into nothing.
    """
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))


# --- names -----------------------------------------------------------------------------------------------------------


def _name(function: Any, static: dict[str, Any], form: Any, leaves: list[Any]) -> str | None:
    """A digest of what decides the program, or None where something has an effect that cannot be told from outside."""
    try:
        about = (_written(function), _written(static), _structure(form), [_kind(leaf) for leaf in leaves], _settings())
    except _Nameless:
        return None
    if not _code():
        return None  # an installation without files: nothing tells one version of the code from another
    return hashlib.sha256(repr((*about, *_surroundings())).encode()).hexdigest()


class _Nameless(Exception):
    """Something that no name can be given."""


def _kind(leaf: Any) -> tuple[Any, ...]:
    return np.shape(leaf), str(getattr(leaf, "dtype", type(leaf).__name__))


def _structure(form: Any) -> Any:
    """A tree's form: the types of its nodes, and what they hold beside arrays."""
    node = form.node_data()
    if node is None:
        return "leaf" if form.num_leaves else "nothing"
    kind, held = node
    return _written(kind), _written(held), [_structure(child) for child in form.children()]


def _written(part: Any) -> Any:
    """Something that is not an array, as text that says all about it."""
    if isinstance(part, CONTAINERS):
        parts = (
            part.items() if isinstance(part, dict) else sorted(part, key=repr) if isinstance(part, frozenset) else part
        )
        return type(part).__name__, [_written(one) for one in parts]
    if isinstance(part, PLAIN):
        return repr(part)
    if isinstance(part, type) and part.__module__.split(".")[0] in (LIBRARY, "builtins"):
        return part.__module__, part.__qualname__
    if isinstance(part, FunctionType) and part.__module__.split(".")[0] == LIBRARY and part.__closure__ is None:
        return part.__module__, hashlib.sha256(marshal.dumps(part.__code__)).hexdigest()
    if is_dataclass(part) and not isinstance(part, type) and type(part).__module__.split(".")[0] == LIBRARY:
        return _written(type(part)), [_written(getattr(part, field.name)) for field in fields(part)]
    raise _Nameless


def _settings() -> tuple[Any, ...]:
    return tuple(getattr(jax.config, name) for name in SETTINGS)


@cache
def _surroundings() -> tuple[Any, ...]:
    """Versions of all that takes part, the flags of XLA, the device, and the library's code."""
    versions = (sys.version, jax.__version__, jaxlib.version.__version__, np.__version__)
    device = jax.devices()[0].device_kind, platform.machine(), _instructions()
    return versions, os.environ.get("XLA_FLAGS", ""), device, cores(), _code()


def _instructions(table: Path = Path("/proc/cpuinfo")) -> list[str]:
    """What the processor can do, where the system says it: a home folder may be that of several machines."""
    lines = table.read_text().splitlines() if table.exists() else []
    return sorted({line for line in lines if line.startswith(("flags", "Features"))}) or [platform.processor()]


@cache
def _code() -> tuple[Any, ...]:
    """The library's files, with their sizes and times."""
    home = Path(__file__).resolve().parent.parent
    files = sorted(file for file in home.rglob("*") if file.suffix in (".py", ".npz"))
    return tuple((str(file.relative_to(home)), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
