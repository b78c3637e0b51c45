"""Resources that each operating system grants a process: cores, memory, memory maps, garbage; forks."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
MEMORY_LIMITS = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}  # with the process memory that counts towards each
COMPILER = 2**29  # bytes of them that threads and compiling take; XLA waits for ever if it gets none
DEFAULT_MAPS = 65_530  # memory maps that Linux allows a process by default
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_{}")  # files and fields of control groups
VERSION_2 = ("memory.max", "memory.current", "{}")

_forked_from: list[int] = []  # the process that had started JAX's threads when this one was forked from it


def _note_fork() -> None:
    """In a child process: note whether the parent had started JAX, by this library or otherwise."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and getattr(bridge, "backends_are_initialized", lambda: True)():
        _forked_from[:] = [os.getppid()]


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_note_fork)


def check_fork() -> None:
    """Raise in a process that was forked from one that has computed: it lacks that one's threads."""
    if _forked_from:
        raise RuntimeError(
            f"this process was forked from process {_forked_from[0]} after JAX had computed there, and lacks the "
            "threads that JAX started: it would wait for them for ever. Spawn processes instead of forking them "
            "(multiprocessing.get_context('spawn'), multiprocessing_context='spawn' of a DataLoader, joblib's default "
            "backend 'loky'), or fork before the first computation"
        )


def without_waiting(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, for `open(opener=)`; a pipe without waiting for its writer (Windows opens none)."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def cores() -> int:
    """The number of cores that this process may use, or of all cores if the system does not distinguish them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int | None:
    """Bytes available without swapping, file caches counted as free: on Linux the kernel's estimate, or the memory that
    the control groups or the limits of the process leave if that is less. Elsewhere the installed memory, and None if
    that is unknown.
    """
    estimate = _fields(PROC / "meminfo").get("MemAvailable")
    known = _installed() if estimate is None else [1024 * estimate]
    return min([*known, *_left_by_groups(), *_left_by_limits()], default=None)


def _installed() -> list[int]:
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= getattr(os, "sysconf_names", {}).keys() or not hasattr(os, "sysconf"):
        return []
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return [pages * size] if min(pages, size) > 0 else []


def _left_by_groups() -> Iterator[int]:
    """The limit of each control group minus its usage, in which cached files do not count."""
    lines = [line.split(":", 2) for line in _text(PROC / "self" / "cgroup").splitlines() if line.count(":") >= 2]
    for _, controllers, path in lines:
        if controllers and "memory" not in controllers.split(","):
            continue
        root, (limit_in, usage_in, cached_in) = CGROUPS / ("memory" if controllers else ""), VERSION_2
        if controllers:
            limit_in, usage_in, cached_in = VERSION_1
        group = root / path.strip("/")
        for folder in (group, *group.parents):  # a group has no more than those it belongs to
            if not folder.is_relative_to(root):
                break
            limit, usage = _text(folder / limit_in).strip(), _text(folder / usage_in).strip()
            if limit.isdecimal() and usage.isdecimal():
                fields = _fields(folder / "memory.stat")
                cached = sum(fields.get(cached_in.format(kind), 0) for kind in ("active_file", "inactive_file"))
                yield min(int(limit), max(0, int(limit) - int(usage) + cached))


def limits() -> dict[str, int]:
    """The limits that the process has (`ulimit -v`, `ulimit -d`), in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return {}
    found = {name: resource.getrlimit(getattr(resource, name))[0] for name in MEMORY_LIMITS if hasattr(resource, name)}
    return {name: limit for name, limit in found.items() if limit != resource.RLIM_INFINITY}


def _left_by_limits() -> Iterator[int]:
    """The memory that each limit leaves for arrays."""
    found = limits()
    used = _fields(PROC / "self" / "status") if found else {}
    for name, limit in found.items():
        if MEMORY_LIMITS[name] in used:
            yield max(0, limit - 1024 * used[MEMORY_LIMITS[name]] - COMPILER)


def return_freed_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc)."""
    if sys.platform != "linux":
        return
    import ctypes  # here, for a quicker import of the library

    library = ctypes.CDLL(None)  # the process itself, and so its C library
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def memory_maps() -> int | None:
    """The number of memory maps of the process, if the system tells; only Linux is known to limit them."""
    return _text(PROC / "self" / "maps").count("\n") or None


def most_memory_maps() -> int:
    limit = _text(PROC / "sys" / "vm" / "max_map_count").strip()
    return int(limit) if limit.isdecimal() else DEFAULT_MAPS


def _fields(path: Path) -> dict[str, int]:
    rows = [line.split() for line in _text(path).splitlines()]
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _text(path: Path) -> str:
    """A file of the system; empty if it is missing or may not be read."""
    try:
        return path.read_bytes().decode(errors="surrogateescape")  # as Python decodes paths, which may be of any bytes
    except OSError:
        return ""


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector, if it is on, until the end of the block; objects made in it then count as old.

    Importing JAX and tracing programs make some hundred thousand objects. Traversing them again and again took 0.2 of
    the 3.2 s of a first fit (`benchmarks/run.py --only cold`).
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            if gc.get_freeze_count() == 0:  # the user has frozen nothing
                gc.freeze()
                gc.unfreeze()  # all objects are in the oldest generation now
            gc.enable()
