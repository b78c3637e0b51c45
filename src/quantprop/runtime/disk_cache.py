"""Compiled programs as files, found by their source: a process that finds one neither traces nor compiles it.

JAX's own cache needs a program that has been traced and lowered, which takes longer than a small fit. A file here is
named by a digest of everything that decides the program: the library's code, the function, the form of its arguments
with their shapes and types, versions and settings. A program of parts from elsewhere, such as a user's likelihood, has
no name; only JAX's cache finds it.

Programs are cached unless the environment forbids it, so that processes which start together, such as the workers of a
cross-validation, compile each of them once: a process waits for a program that another one is compiling.
"""

from __future__ import annotations

import hashlib
import logging
import marshal
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from secrets import token_hex
from threading import Lock
from types import FunctionType
from typing import Any

import jax
import jaxlib.version
import numpy as np

from quantprop.runtime import folders
from quantprop.runtime.executables import LIBRARY, Executable, loaded, packed, unpacked
from quantprop.runtime.system import cores

SUFFIX = "-program"  # suffix of the files
MARK = "_kept_"  # in the names of programs that are written to these files, so that JAX does not cache them too
PLAIN = (bool, int, float, str, bytes, type(None), np.dtype)
DOUBLE = "jax_enable_x64"
JAX_CHECKS = ("jax_debug_nans", "jax_debug_infs", "jax_disable_jit")  # programs from files do not make them
SETTINGS = (DOUBLE, "jax_default_matmul_precision")

log = logging.getLogger(LIBRARY)
opened_folders: list[Path] = []  # those of `quantprop.cache`, the last one in use


def jaxs_folder() -> str | None:
    return getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009  # which no stub names


def cache_folder() -> Path | None:
    """The folder of `quantprop.cache`, otherwise the user's cache folder, unless the environment or JAX's settings name
    another.
    """
    if opened_folders:
        return opened_folders[-1]
    return None if jaxs_folder() else _default_folder(os.environ.get(folders.SWITCH))


@cache
def _default_folder(given: str | None) -> Path | None:
    """The default folder in such an environment; None, with a message in the log, if it cannot be used."""
    try:
        home = folders.home()
        return home and folders.opened(home)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder can be found
        log.warning(
            "compiled programs are not stored: %s (%s=off in the environment requests this)", error, folders.SWITCH
        )
        return None


def cached(jitted: Callable[..., Any], function: Any, static: dict[str, Any], form: Any, leaves: list[Any]) -> Any:
    """The jitted function as a program on disk, or as it is if there is no folder or the program has no name."""
    folder = cache_folder()
    if folder is None or jax.device_count() != 1 or any(getattr(jax.config, name) for name in JAX_CHECKS):
        return jitted()
    name = _name(function, static, form, leaves)
    return jitted() if name is None else CachedProgram(jitted, folder / f"{name}{SUFFIX}")


class CachedProgram:
    """A jitted function whose program is read from a file, or otherwise compiled on first use and written there."""

    def __init__(self, make: Callable[..., Any], file: Path) -> None:
        self.make, self.file, self.executable, self.gate = make, file, _read(file), Lock()
        self.double = getattr(jax.config, DOUBLE)  # a setting of each thread
        self.arguments: tuple[Any, ...] = ()
        self.lowered: Any = None
        self.ready: Any = None

    @cached_property
    def jitted(self) -> Any:
        """JAX's jitted function. Its name is unique, so that JAX's cache does not answer, from another process or for a
        program that differs only in parts that are not compiled: XLA writes a program that it has loaded without code.
        """
        return self.make(f"{MARK}{token_hex(8)}")

    def __call__(self, *leaves: Any) -> Any:
        if self.ready is None:
            self.lower(*leaves).compile()
        ready: Any = self.ready
        return ready(*leaves)

    def eval_shape(self, *leaves: Any) -> Any:
        """The results, with shapes and types instead of numbers."""
        return self.jitted.eval_shape(*leaves) if self.executable is None else self.executable.shapes()

    def lower(self, *leaves: Any) -> CachedProgram:
        """Prepare `compile`: trace and lower the program unless it is on file."""
        self.arguments = leaves
        if self.executable is None:
            self.lowered = self.jitted.lower(*leaves)
        return self

    def compile(self) -> None:
        """Load the program, or compile and write it."""
        with self.gate:
            if self.ready is None:
                self.ready = self._loaded() or self._made()
                self.arguments, self.lowered = (), None

    def _loaded(self) -> Any:
        if self.executable is None:
            return None
        _link_lapack()
        try:
            return loaded(self.executable)
        except jax.errors.JaxRuntimeError as error:
            _warn("cannot be used and is compiled again", error)
            self.file.unlink(missing_ok=True)
            return None

    def _made(self) -> Any:
        """The program that another process has just compiled, or that this one compiles."""
        with folders.locked(self.file):
            self.executable = _read(self.file)
            return self._loaded() or self._compiled()

    def _compiled(self) -> Any:
        with jax.enable_x64(self.double):
            lowered = self.jitted.lower(*self.arguments) if self.lowered is None else self.lowered
        made = lowered.compile()
        try:
            folders.write(self.file, packed(made))
        except (OSError, ValueError) as error:
            _warn("is not stored", error)
        return made


def _read(file: Path) -> Executable | None:
    try:
        content = folders.read(file)
        return None if content is None else unpacked(content)
    except (OSError, ValueError, SyntaxError, TypeError) as error:
        _warn("cannot be read and is compiled again", error)
        return None


def _warn(problem: str, error: Exception) -> None:
    warnings.warn(f"a compiled program {problem}: {error}", RuntimeWarning, stacklevel=3)


@cache
def _link_lapack() -> None:
    """Make JAX look up LAPACK, which it does on lowering the first program that needs it: loaded ones would crash."""
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))


# --- names -----------------------------------------------------------------------------------------------------------


class _NamelessError(Exception):
    """A part of a program from outside the library."""


def _name(function: Any, static: dict[str, Any], form: Any, leaves: list[Any]) -> str | None:
    """A digest of everything that decides the program; None if parts of it are not the library's."""
    kinds = [(np.shape(leaf), str(getattr(leaf, "dtype", type(leaf).__name__))) for leaf in leaves]
    try:
        source = _written(function), _written(static), _written(form)
    except _NamelessError:
        return None
    settings = [getattr(jax.config, name) for name in SETTINGS]
    return hashlib.sha256(repr((source, kinds, settings, _surroundings())).encode()).hexdigest() if _code() else None


def _written(part: Any) -> Any:
    """Everything about a part of a program that is not an array, as literals."""
    if isinstance(part, jax.tree_util.PyTreeDef):
        node, leaf = part.node_data(), "leaf" if part.num_leaves else "nothing"
        return leaf if node is None else [_written(each) for each in (*node, part.children())]
    if isinstance(part, frozenset):
        return "frozenset", sorted(map(repr, map(_written, part)))
    if isinstance(part, (tuple, list, dict)):
        parts = part.items() if isinstance(part, dict) else part
        return type(part).__name__, [_written(each) for each in parts]
    if isinstance(part, PLAIN):
        return repr(part)
    module = getattr(part if isinstance(part, (type, FunctionType)) else type(part), "__module__", "").split(".")[0]
    if isinstance(part, type) and module in (LIBRARY, "builtins"):
        return part.__module__, part.__qualname__
    if isinstance(part, FunctionType) and module == LIBRARY:
        enclosed = tuple(cell.cell_contents for cell in part.__closure__ or ())
        return part.__module__, hashlib.sha256(marshal.dumps(part.__code__)).hexdigest(), _written(enclosed)
    if is_dataclass(part) and not isinstance(part, type) and module == LIBRARY:
        return _written(type(part)), [_written(getattr(part, field.name)) for field in fields(part)]
    raise _NamelessError


@cache
def _surroundings() -> tuple[Any, ...]:
    """Versions, XLA's flags, the device, and the library's code; the folder is named by the processor."""
    versions = sys.version, jax.__version__, jaxlib.version.__version__, np.__version__
    return versions, os.environ.get("XLA_FLAGS", ""), jax.devices()[0].device_kind, cores(), _code()


@cache
def _code() -> tuple[Any, ...]:
    """Digests of the library's files, since their times may come from an archive; empty if it has no files."""
    home = Path(__file__).resolve().parent.parent
    files = sorted(file for file in home.rglob("*") if file.suffix in (".py", ".npz"))
    return tuple((str(file.relative_to(home)), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)
