"""Files of programs: whole or worth nothing, and written by nobody else."""

from __future__ import annotations

import hashlib
import os
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
    """The content compressed, behind a digest of what follows, in a new file that is this user's alone."""
    body = zlib.compress(content, 1)
    file.unlink(missing_ok=True)
    with open(file, "xb", opener=_private) as new:
        new.write(hashlib.sha256(body).digest() + body)


def read(file: Path) -> bytes | None:
    """What was written; None where there is no such file, or where a part of it is missing."""
    try:
        with file.open("rb") as opened:
            if not is_own(os.fstat(opened.fileno())):
                raise PermissionError(f"others than its user could have written {file}")
            digest, body = opened.read(DIGEST), opened.read()
    except FileNotFoundError:
        return None
    return zlib.decompress(body) if hashlib.sha256(body).digest() == digest else None


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
