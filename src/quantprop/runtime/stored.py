"""Compiled programs as files, named by what they are made from: who finds one need neither trace nor compile it.

JAX's own cache is asked with a program that has been traced and lowered, which takes longer than a small fit. The name
of a file here is a digest of all that decides what would be traced: the library's code, the function, the form of its
arguments with their shapes and types, versions and settings. A program of parts that are not the library's own, such as
a user's likelihood or function, has no name; JAX's cache is left to find it.

Programs are kept unless the environment forbids it, so that processes which start together, such as the workers of a
cross-validation, compile each of them once: whoever needs one that another process is compiling waits for it.
"""

from __future__ import annotations

import hashlib
import logging
import marshal
import os
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
from typing import Any

import jax
import jaxlib.version
import numpy as np

from quantprop.runtime import folders
from quantprop.runtime.images import LIBRARY, Image, image_of, loaded, packed, unpacked
from quantprop.runtime.seals import MARK, SEALED, alone, read, write
from quantprop.runtime.system import cores

PLAIN = (bool, int, float, str, bytes, type(None), np.dtype)
CONTAINERS = (tuple, list, dict, frozenset)
DOUBLE = "jax_enable_x64"
CHECKS = ("jax_debug_nans", "jax_debug_infs", "jax_disable_jit")  # of JAX, which programs from files do not make
SETTINGS = (DOUBLE, "jax_default_matmul_precision")
JAXS_FOLDER = "jax_compilation_cache_dir"

log = logging.getLogger(LIBRARY)
_folders: list[Path] = []  # the one that was asked for, if any


def keep_in(folder: Path) -> None:
    """Look for programs in this folder from now on, and write new ones there."""
    _folders[:] = [folder]


def folder() -> Path | None:
    """Where programs are kept: as asked for, or else the user's cache folder, unless the environment or JAX's settings
    say otherwise.
    """
    if _folders:
        return _folders[0]
    return None if getattr(jax.config, JAXS_FOLDER) else _usual(os.environ.get(folders.SWITCH))


@cache
def _usual(told: str | None) -> Path | None:
    """The folder that nobody asked for here, of such an environment. Where there can be none, a fit takes longer."""
    try:
        home = folders.home()
        return home and folders.opened(home)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder can be found
        log.warning(
            "compiled programs are not kept: %s (%s=off in the environment asks for that)", error, folders.SWITCH
        )
        return None


def kept(jitted: Callable[..., Any], function: Any, static: dict[str, Any], form: Any, leaves: list[Any]) -> Any:
    """The jitted function as a program that is kept; as it is where nothing is, or where it has no name."""
    home = folder()
    if home is None or jax.device_count() != 1 or any(getattr(jax.config, name) for name in CHECKS):
        return jitted()
    name = _name(function, static, form, leaves)
    return jitted() if name is None else Kept(jitted, home / f"{name}{SEALED}")


class Kept:
    """A jitted function whose program is read from a file, or else compiled on first use and written there."""

    def __init__(self, jitted: Callable[..., Any], file: Path) -> None:
        self.make, self.file, self.image, self.gate = jitted, file, _image(file), Lock()
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
        return self.jitted.eval_shape(*leaves) if self.image is None else self.image.shapes()

    def lower(self, *leaves: Any) -> Kept:
        """What `compile` needs: nothing where the program is on file, as long as it can be used."""
        self.arguments = leaves
        if self.image is None:
            self.lowered = self.jitted.lower(*leaves)
        return self

    def compile(self) -> None:
        """Load the program, or compile and write it."""
        with self.gate:
            if self.ready is None:
                self.ready = self._loaded() or self._made()
                self.arguments, self.lowered = (), None

    def _loaded(self) -> Any:
        if self.image is None:
            return None
        _link_lapack()
        try:
            return loaded(self.image)
        except jax.errors.JaxRuntimeError as error:
            told = f"a compiled program cannot be used and is compiled again: {error}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
            self.file.unlink(missing_ok=True)
            return None

    def _made(self) -> Any:
        """The program as another process has just made it, or as this one does."""
        with alone(self.file):
            self.image = _image(self.file)
            return self._loaded() or self._compiled()

    def _compiled(self) -> Any:
        with jax.enable_x64(self.double):
            lowered = self.jitted.lower(*self.arguments) if self.lowered is None else self.lowered
        made = lowered.compile()
        try:
            write(self.file, packed(image_of(made)))
        except (OSError, ValueError) as error:
            warnings.warn(f"a compiled program is not kept: {error}", RuntimeWarning, stacklevel=2)
        return made


def _image(file: Path) -> Image | None:
    """What a file holds; None where there is none that can be used."""
    try:
        content = read(file)
        return None if content is None else unpacked(content)
    except (OSError, ValueError, SyntaxError) as error:
        warnings.warn(f"a compiled program cannot be read and is compiled again: {error}", RuntimeWarning, stacklevel=2)
        return None


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
    """The library's files, with digests of what they hold: times do not tell versions apart where tools set them."""
    home = Path(__file__).resolve().parent.parent
    files = sorted(file for file in home.rglob("*") if file.suffix in (".py", ".npz"))
    return tuple((str(file.relative_to(home)), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)
