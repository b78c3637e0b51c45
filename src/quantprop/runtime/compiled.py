"""Compiled programs kept on disk, so that another process need not compile them again.

The library's own programs are found by what they are made from (`stored`), all others by JAX, which writes a file in
place: one that was cut short would be read as it is, and never replaced. Here every process has a folder of its own,
with links to what JAX has kept, to read and to write; what is new there at the end of the process is linked back.
Nobody ever sees a part of a file.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
import zlib
from importlib import import_module
from pathlib import Path

from quantprop.runtime import folders
from quantprop.runtime.arguments import checked
from quantprop.runtime.seals import MARK

JAXS = "-cache"  # how the names of JAX's programs end
ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how a stream of that kind begins

_workspaces: dict[str, Path] = {}  # of this process, by the folder they belong to


@checked()
def cache(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs on disk, JAX's own too: in the user's cache folder, or in the one given. Returns it.

    The library's own are kept in the user's folder without being asked to. At most 512 MB are kept, and the folder may
    be deleted at any time. `QUANTPROP_CACHE=off` in the environment forbids it (None is returned),
    `QUANTPROP_CACHE=folder` says where; a cache folder that JAX was told of already is left as it is. A PermissionError
    names a folder that others than this user could write to.

    >>> import tempfile
    >>> import quantprop
    >>> quantprop.cache(tempfile.mkdtemp()) is not None
    True
    """
    import jax  # here, since this module is imported where only help is asked for

    home = folders.home(folder)
    if home is None:
        return None
    before = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009  # which no stub names
    if before is not None and before not in map(str, _workspaces.values()):
        return Path(before)
    store = folders.opened(home)
    if str(home) not in _workspaces:
        _workspaces[str(home)] = _opened(home, store)
    _tell_jax(_workspaces[str(home)], store)
    return home


def _tell_jax(workspace: Path, store: Path) -> None:
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    from quantprop.runtime.stored import keep_in

    jax.config.update("jax_compilation_cache_dir", str(workspace))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small programs too: there are many
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # whose folder would be part of every key
    compilation_cache.reset_cache()  # JAX looks at its settings once
    keep_in(store)


# --- a process and the store -----------------------------------------------------------------------------------------


def _opened(home: Path, store: Path) -> Path:
    """A folder of this process's own, with links to JAX's programs in the store; what is new goes back at the end."""
    workspace = Path(tempfile.mkdtemp(dir=home / folders.WORKSPACE))
    files = [file for file in store.glob(f"*{JAXS}") if file.is_file()]
    foreign = [file for file in files if not _own(file)]
    if foreign:
        told = f"{foreign[0]} and all like it are not used: they belong to another user, or others may write to them"
        warnings.warn(told, RuntimeWarning, stacklevel=4)
    for file in files:
        if file not in foreign:
            _linked(file, workspace / file.name)
    atexit.register(_closed, workspace, store, os.getpid())
    return workspace


def _own(file: Path) -> bool:
    try:
        return folders.is_own(file.stat())
    except FileNotFoundError:  # it has just been deleted
        return True


def _closed(workspace: Path, store: Path, owner: int) -> None:
    """Link what is new into the store and remove the workspace."""
    if os.getpid() != owner:  # a fork: its parent's folder is not its own
        return
    for file in workspace.glob(f"*{JAXS}") if store.is_dir() else ():
        if MARK not in file.name and not (store / file.name).exists() and _whole(file):
            file.chmod(0o600)  # JAX leaves it to the user's mask
            _linked(file, store / file.name)
    shutil.rmtree(workspace, ignore_errors=True)  # a file held open by another process on Windows is removed later


def _whole(file: Path) -> bool:
    """Whether a program was written to its end: on a full disk a part of it is left behind, which nobody else shall
    have. JAX's programs are compressed, and a part of a compressed stream does not unpack.
    """
    packed = file.read_bytes()
    if packed.startswith(ZSTANDARD):
        try:
            zstandard = import_module("zstandard")
        except ImportError:  # JAX has another reader of its own: there is no telling
            return True
        broken, unpack = zstandard.ZstdError, zstandard.ZstdDecompressor().decompress
    else:
        broken, unpack = zlib.error, zlib.decompress
    try:
        unpack(packed)
    except broken:
        return False
    return True


def _linked(file: Path, place: Path) -> None:
    """The same file in another place, whole or not at all; what is there, or has just been deleted, is left so."""
    try:
        os.link(file, place)
    except (FileExistsError, FileNotFoundError):
        return
    except OSError:  # no links on this file system
        part = place.with_name(f"{place.name}.{os.getpid()}.part")
        try:
            shutil.copyfile(file, part)
        except FileNotFoundError:
            return
        os.replace(part, place)
