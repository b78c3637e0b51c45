"""Compiled programs kept on disk, so that another process need not compile them again.

The library's own programs are found by what they are made from (`stored`), all others by JAX, which writes a file in
place: one that was cut short would be read as it is, and never replaced. Here every process has a folder of its own,
with links to what is kept, to read and to write; what is new there at the end of the process is linked back. Nobody
ever sees a part of a file, and nobody waits.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
import warnings
import zlib
from importlib import import_module
from pathlib import Path

from quantprop.runtime.arguments import checked
from quantprop.runtime.seals import MARK, SEALED, unsealed

SWITCH = "QUANTPROP_CACHE"  # in the environment: off, or a folder
OFF = frozenset({"off", "0", "no", "false"})
MOST = 512 * 2**20  # bytes kept; the oldest programs go first
STORE, WORKSPACE = "programs", "running"
JAXS = "-cache"  # how the names of JAX's programs end
ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how a stream of that kind begins
STALE = 7 * 86400  # seconds after which the workspace of a process that was killed is removed

_workspaces: dict[str, Path] = {}  # of this process, by the folder they belong to


@checked()
def cache(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs on disk from now on: in the user's cache folder, or in the one given. Returns it.

    At most 512 MB are kept, and the folder may be deleted at any time. `QUANTPROP_CACHE=off` in the environment forbids
    it (None is returned), `QUANTPROP_CACHE=folder` says where; a cache folder that JAX was told of already is left as
    it is. On the command line it is on by default.

    >>> import tempfile
    >>> import quantprop
    >>> quantprop.cache(tempfile.mkdtemp()) is not None
    True
    """
    import jax  # here, since this module is imported where only help is asked for

    told = os.environ.get(SWITCH, "")
    if told.casefold() in OFF:
        return None
    home = Path(folder or told or _users_folder() / "quantprop").expanduser().resolve() / _machine()
    before = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009  # which no stub names
    if before is not None and before not in map(str, _workspaces.values()):
        return Path(before)
    if str(home) not in _workspaces:
        _workspaces[str(home)] = _opened(home)
    _tell_jax(_workspaces[str(home)])
    return home


def _tell_jax(workspace: Path) -> None:
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    from quantprop.runtime.stored import keep_in

    jax.config.update("jax_compilation_cache_dir", str(workspace))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small programs too: there are many
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # whose folder would be part of every key
    compilation_cache.reset_cache()  # JAX looks at its settings once
    keep_in(workspace)


def _users_folder() -> Path:
    """Where programs keep what they can do without."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _machine() -> str:
    """A name for the kind of processor: programs made for one may not run on another that shares the home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = [platform.processor()]
    about = sorted(
        {line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))} or lines
    )
    return f"{platform.machine()}-{hashlib.sha256(repr(about).encode()).hexdigest()[:12]}"


# --- a process and the store -----------------------------------------------------------------------------------------


def _opened(home: Path) -> Path:
    """A folder of this process's own, with links to everything in the store; what it adds is linked back at the end."""
    store = home / STORE
    store.mkdir(parents=True, exist_ok=True)
    (home / WORKSPACE).mkdir(exist_ok=True)
    _evict(home)
    workspace = Path(tempfile.mkdtemp(dir=home / WORKSPACE))
    files = [file for file in store.iterdir() if file.is_file()]
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
    """Whether nobody but this user or root can have written it, as far as the system tells users apart: a program is
    code, and whoever writes it runs it here.
    """
    if not hasattr(os, "getuid"):
        return True
    try:
        about = file.stat()
    except FileNotFoundError:  # it has just been deleted
        return True
    return about.st_uid in (0, os.getuid()) and not about.st_mode & stat.S_IWOTH


def _closed(workspace: Path, store: Path, owner: int) -> None:
    """Link what is new into the store and remove the workspace."""
    if os.getpid() != owner:  # a fork: its parent's folder is not its own
        return
    for file in workspace.iterdir() if store.is_dir() and workspace.is_dir() else ():
        if file.is_file() and MARK not in file.name and not (store / file.name).exists() and _whole(file):
            _linked(file, store / file.name)
    shutil.rmtree(workspace, ignore_errors=True)  # a file held open by another process on Windows is removed later


def _whole(file: Path) -> bool:
    """Whether a program was written to its end: on a full disk a part of it is left behind, which nobody else shall
    have. JAX's programs are compressed, and a part of a compressed stream does not unpack; other files of JAX are times
    of access.
    """
    if file.name.endswith(SEALED):
        return unsealed(file.read_bytes()) is not None
    if not file.name.endswith(JAXS):
        return True
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


def _evict(home: Path, most: int = MOST) -> None:
    """Keep no more than so many bytes, the newest, and no folders of processes that were killed long ago."""
    for workspace in (home / WORKSPACE).iterdir():
        if time.time() - _modified(workspace) > STALE:
            shutil.rmtree(workspace, ignore_errors=True)
    total = 0
    files = [(_modified(file), file) for file in (home / STORE).iterdir()]
    for _, file in sorted(files, reverse=True):
        total += _size(file)
        if total > most:
            file.unlink(missing_ok=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process was faster
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
