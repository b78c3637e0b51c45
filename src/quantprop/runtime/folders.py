"""The folder that compiled programs are kept in: where it is, that nobody else can write there, and how large it gets.

A program is code, and whoever writes it runs it here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import sys
import time
from pathlib import Path

SWITCH = "QUANTPROP_CACHE"  # in the environment: off, or a folder
OFF = frozenset({"off", "0", "no", "false"})
MOST = 512 * 2**20  # bytes kept; the oldest programs go first
STORE, WORKSPACE = "programs", "running"
STALE = 7 * 86400  # seconds after which the workspace of a process that was killed is removed
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def home(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder for programs of this kind of processor: in the one given, the one of the environment, or the user's
    cache folder. None where the environment forbids it.
    """
    told = os.environ.get(SWITCH, "")
    if told.casefold() in OFF:
        return None
    return Path(folder or told or _users_folder() / "quantprop").expanduser().resolve() / _machine()


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


def opened(home: Path) -> Path:
    """The folder of programs in this one, made where it is not there, with no more in it than is kept."""
    store, running = home / STORE, home / WORKSPACE
    for folder in (*reversed(store.parents), store, running):
        folder.mkdir(mode=0o700, exist_ok=True)
    check_own(store)
    check_own(running)
    _evict(home)
    return store


def check_own(folder: Path) -> None:
    """Raise where others than this user or root could have written into the folder, or put another in its place."""
    for part in (folder, *folder.parents):
        about = part.stat()
        kept = part != folder and about.st_mode & stat.S_ISVTX  # where nobody can rename what is another's
        if not (is_own(about) or (kept and _owned(about))):
            raise PermissionError(
                f"others could write programs into {folder}, which would run here: {part} is owned by user "
                f"{about.st_uid}, with mode {stat.S_IMODE(about.st_mode):o}; close it to others (chmod go-w {part}) if "
                f"it is your own, or name a folder that is ({SWITCH}=folder in the environment)"
            )


def is_own(about: os.stat_result) -> bool:
    """Whether nobody but this user or root can have written it, as far as the system tells users apart."""
    return _owned(about) and not (hasattr(os, "getuid") and about.st_mode & OTHERS)


def _owned(about: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or about.st_uid in (0, os.getuid())


def _evict(home: Path, most: int = MOST) -> None:
    """Keep no more than so many bytes, the newest, and no folders of processes that were killed long ago."""
    for workspace in (home / WORKSPACE).iterdir():
        if time.time() - _modified(workspace) > STALE:
            shutil.rmtree(workspace, ignore_errors=True)
    total = 0
    files = [(_modified(file), file) for file in (home / STORE).iterdir() if not file.is_dir()]
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
