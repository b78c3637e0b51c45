"""The folder in which compiled programs are cached, and its files: complete, of a limited size, written by nobody else.

A program is code: whoever writes it runs it here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from quantprop.runtime.system import without_waiting

SWITCH = "QUANTPROP_CACHE"  # in the environment: off, or a folder
OFF = frozenset({"off", "0", "no", "false"})
MAX_BYTES = 512 * 2**20
STORE = "programs"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
DIGEST = 32  # bytes
MAX_WAIT, PAUSE = 120.0, 0.05  # seconds to wait for another process, which may have been stopped


def home(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The cache folder for this machine: in the given one, in the one of the environment, or in the user's cache
    folder. None if the environment forbids a cache.
    """
    given = os.environ.get(SWITCH, "")
    if given.casefold() in OFF:
        return None
    return Path(folder or given or _users_folder() / "quantprop").expanduser().resolve() / machine()


def _users_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def machine() -> str:
    """A name for the kind of processor: machines that share a home folder may not run each other's programs."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = [platform.processor()]
    about = {line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))}
    digest = hashlib.sha256(repr(sorted(about or lines)).encode()).hexdigest()
    return f"{platform.machine()}-{digest[:12]}"


def opened(home: Path) -> Path:
    """The folder of programs in a cache folder: made if missing, checked, and reduced to its maximum size."""
    store = home / STORE
    for folder in (*reversed(store.parents), store):
        folder.mkdir(mode=0o700, exist_ok=True)
    check_own(store)
    _evict(store)
    return store


def check_own(folder: Path) -> None:
    """Raise if anybody but this user or root could have written into the folder, or could replace it."""
    for part in (folder, *folder.parents):
        about = part.stat()
        sticky = part != folder and about.st_mode & stat.S_ISVTX  # others cannot rename folders of this user there
        if not (is_own(about) or (sticky and _owned(about))):
            raise PermissionError(
                f"other users could write programs into {folder} that would run here: {part} is owned by user "
                f"{about.st_uid}, with mode {stat.S_IMODE(about.st_mode):o}; if it is yours, remove their access "
                f"(chmod go-w {part}); otherwise choose a folder of your own ({SWITCH}=folder in the environment)"
            )


def is_own(about: os.stat_result) -> bool:
    """Return whether only this user or root can have written it, as far as the system distinguishes users."""
    return _owned(about) and not (hasattr(os, "getuid") and about.st_mode & WRITABLE_BY_OTHERS)


def _owned(about: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or about.st_uid in (0, os.getuid())


def _evict(store: Path, max_bytes: int = MAX_BYTES) -> None:
    """Delete the oldest files beyond a total size."""
    found = []
    for file in store.iterdir():
        with suppress(FileNotFoundError):  # another process has just deleted it
            found.append((file.stat(), file))
    total = 0
    for about, file in sorted(found, key=lambda entry: -entry[0].st_mtime):
        total += about.st_size
        if total > max_bytes and not stat.S_ISDIR(about.st_mode):
            file.unlink(missing_ok=True)


# --- files -----------------------------------------------------------------------------------------------------------


def write(file: Path, content: bytes) -> None:
    """Write the content, compressed, after a digest of it and the file's name, to a new file private to this user."""
    body = zlib.compress(content, 1)
    file.unlink(missing_ok=True)
    try:
        with open(file, "xb", opener=_private) as new:
            new.write(_digest(file, body) + body)
    except OSError:
        file.unlink(missing_ok=True)
        raise


def read(file: Path) -> bytes | None:
    """The content that was written; None if the file is missing, incomplete, or was written under another name."""
    try:
        with open(file, "rb", opener=_regular) as opened:
            if not is_own(os.fstat(opened.fileno())):
                raise PermissionError(f"users other than its owner could have written {file}")
            digest, body = opened.read(DIGEST), opened.read()
    except FileNotFoundError:
        return None
    return zlib.decompress(body) if _digest(file, body) == digest else None


def _digest(file: Path, body: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + b"\n" + body).digest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _regular(path: str, flags: int) -> int:
    opened = without_waiting(path, flags)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{path} is not a regular file; remove it")
    return opened


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """A block that one process enters at a time, if the system has locks; after MAX_WAIT it is entered without one."""
    try:
        import fcntl

        lock = open(file.with_suffix(".lock"), "wb", opener=_private)  # noqa: SIM115
    except (ImportError, OSError):  # Windows, or a folder that cannot be written: programs may be compiled twice
        yield
        return
    with lock:
        end = time.monotonic() + MAX_WAIT
        while time.monotonic() < end:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(PAUSE)
            except OSError:  # a file system without locks
                break
        yield
    Path(lock.name).unlink(missing_ok=True)
