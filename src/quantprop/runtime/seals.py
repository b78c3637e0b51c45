"""Files of programs: whole or worth nothing, and written by nobody else."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quantprop.runtime.folders import is_own

SEALED = "-program"  # how the name of such a file ends
MARK = "_kept_"  # in the names of programs that such files are made of, which JAX need not keep too
DIGEST = 32  # bytes
PATIENCE, PAUSE = 120.0, 0.05  # seconds to wait for another process: it may have been stopped


def write(file: Path, content: bytes) -> None:
    """The content compressed, behind a digest of it and the file's name, in a new file that is this user's alone."""
    body = zlib.compress(content, 1)
    file.unlink(missing_ok=True)
    try:
        with open(file, "xb", opener=_private) as new:
            new.write(_digest(file, body) + body)
    except OSError:
        file.unlink(missing_ok=True)
        raise


def read(file: Path) -> bytes | None:
    """What was written; None where there is no such file, where a part of it is missing, or it had another name."""
    try:
        with open(file, "rb", opener=_regular) as opened:
            if not is_own(os.fstat(opened.fileno())):
                raise PermissionError(f"others than its user could have written {file}")
            digest, body = opened.read(DIGEST), opened.read()
    except FileNotFoundError:
        return None
    return zlib.decompress(body) if _digest(file, body) == digest else None


def _digest(file: Path, body: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + b"\n" + body).digest()


def _regular(path: str, flags: int) -> int:
    """A file opened to be read; a pipe is not waited for, and like a folder it is none."""
    opened = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{path} is not a regular file; remove it")
    return opened


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """While no other process is in such a block for this file, as far as the system can tell and PATIENCE goes."""
    try:
        import fcntl

        lock = open(file.with_suffix(".lock"), "wb", opener=_private)  # noqa: SIM115
    except (ImportError, OSError):  # Windows, or a folder that cannot be written: programs may be compiled twice
        yield
        return
    with lock:
        end = time.monotonic() + PATIENCE
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


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
