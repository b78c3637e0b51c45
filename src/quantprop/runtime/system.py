"""What the operating system grants a process, on each kind of system: cores, memory, memory maps."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}  # of a process, and what counts towards them
COMPILER = 2**29  # bytes that threads and compiling take of them; XLA waits for ever where it gets none
USUAL_MAPS = 65_530  # memory maps that Linux allows a process unless told otherwise


def cores() -> int:
    """Cores that this process may use; where the system does not tell them apart, all that there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int | None:
    """Bytes available without swapping, file caches counted as free: on Linux the kernel's estimate, or what the
    control groups or the limits of the process leave if that is less. Elsewhere the installed memory, and None if that
    is unknown.
    """
    told = [line.split() for line in _text(PROC / "meminfo").splitlines() if line.startswith("MemAvailable:")]
    estimates = [1024 * int(words[1]) for words in told if len(words) > 1 and words[1].isdecimal()]
    return min([*(estimates or _installed()), *_left_by_groups(), *_left_by_limits()], default=None)


def _installed() -> list[int]:
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= getattr(os, "sysconf_names", {}).keys() or not hasattr(os, "sysconf"):
        return []
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return [pages * size] if min(pages, size) > 0 else []


def _left_by_groups() -> Iterator[int]:
    """For each control group with a limit, of version 1 or 2, the limit less what is used, cached files not counted."""
    for line in _text(PROC / "self" / "cgroup").splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, most, used, kinds = CGROUPS, "memory.max", "memory.current", "{}"
        elif "memory" in controllers.split(","):
            root, most, used, kinds = CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_{}"
        else:
            continue
        group = root / path.strip("/")
        for folder in (group, *group.parents):  # a group has no more than those it belongs to
            if not folder.is_relative_to(root):
                break
            limit, taken = _text(folder / most).strip(), _text(folder / used).strip()
            if limit.isdecimal() and taken.isdecimal():
                pairs = [line.split() for line in _text(folder / "memory.stat").splitlines()]
                fields = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
                cached = sum(fields.get(kinds.format(kind), 0) for kind in ("active_file", "inactive_file"))
                yield min(int(limit), max(0, int(limit) - int(taken) + cached))


def limits() -> dict[str, int]:
    """The limits that the process has (`ulimit -v`, `ulimit -d`), in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return {}
    found = {name: resource.getrlimit(getattr(resource, name))[0] for name in LIMITS if hasattr(resource, name)}
    return {name: limit for name, limit in found.items() if limit != resource.RLIM_INFINITY}


def _left_by_limits() -> Iterator[int]:
    """For each limit what is left of it for arrays."""
    found = limits()
    lines = [line.split() for line in _text(PROC / "self" / "status").splitlines()] if found else []
    used = {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if len(words) == 3 and words[1].isdecimal()}
    for name, limit in found.items():
        if LIMITS[name] in used:
            yield max(0, limit - used[LIMITS[name]] - COMPILER)


def return_freed_memory() -> None:
    """Give what the process has freed back to the system, where the C library can (glibc); elsewhere it stays here."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)  # the process itself, and so its C library
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def memory_maps() -> int | None:
    """How many memory maps the process has, where the system can tell; only Linux is known to limit them."""
    maps = _bytes(PROC / "self" / "maps")
    return maps.count(b"\n") if maps else None


def most_memory_maps() -> int:
    """How many it may have."""
    said = _text(PROC / "sys" / "vm" / "max_map_count").strip()
    return int(said) if said.isdecimal() else USUAL_MAPS


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="surrogateescape")  # as Python decodes paths, which may be of any bytes


def _bytes(path: Path) -> bytes:
    """A file of the system; empty where there is none, or none that may be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
