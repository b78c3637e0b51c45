"""The file format: safetensors, arrays as tensors and all else as JSON in the header; files are written atomically."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, TypeVar

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as serialized

from quantprop.runtime.system import available_memory, check_fork, without_waiting

FORMAT, VERSION = "quantprop", 2
READABLE = (1, 2)  # version 1 had no checksum
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
MAX_HEADER = 100_000_000  # bytes, as in safetensors
COPIES_IN_MEMORY = 2  # while a file is read
DTYPES = {"F64": "<f8", "I64": "<i8", "BOOL": "?"}

Path = str | os.PathLike[str]
T = TypeVar("T")


class Unreadable(ValueError):
    """Why a file is not a model."""


def require(condition: Any, reason: str) -> None:
    """Raise Unreadable unless the condition holds."""
    if not condition:
        raise Unreadable(reason)


@contextlib.contextmanager
def refusing(where: str) -> Iterator[None]:
    """Turn what the library's own checks raise here into an error in the file."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except Exception as error:
        raise Unreadable(f"{where}: {error}") from error


@dataclass(frozen=True)
class ModelFile:
    """The content of a file: the kind of model, JSON, arrays by name, and its writer's note (JSON)."""

    kind: str
    content: Any
    tensors: Mapping[str, np.ndarray]
    note: Any = None


# --- writing ---------------------------------------------------------------------------------------------------------


def write(document: ModelFile, path: Path) -> None:
    """Write a file; after any error the old one is intact."""
    metadata = {
        "format": FORMAT,
        "format_version": str(VERSION),
        "library_version": _library_version(),
        "kind": document.kind,
        "content": json.dumps(document.content, allow_nan=False),
    }
    if document.note is not None:
        metadata["note"] = json.dumps(document.note, allow_nan=False)
    tensors = {name: np.ascontiguousarray(array) for name, array in document.tensors.items()}
    metadata["sha256"] = checksum(metadata, tensors)
    replace_file(os.path.realpath(path), serialized(tensors, metadata))


def checksum(metadata: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of every other entry of a file's metadata, and of every tensor with its name, type and shape. It finds
    damage, not malice: whoever can write the file can write the sum.
    """
    shapes = {name: [array.dtype.str, array.shape] for name, array in tensors.items()}
    others = {key: text for key, text in metadata.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps([others, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _library_version() -> str:
    try:
        return importlib.metadata.version("quantprop")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def replace_file(path: str, data: bytes) -> None:
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """The name of a temporary file to write in this block, which then replaces the old one, complete and synced; after
    any error the old one is intact.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "Is a folder, a pipe or a device, not a file", path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise OSError(error.errno, f"{error.strerror} (make room, or choose another place)", path) from error
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename = path
        raise
    with contextlib.suppress(OSError):  # the file is complete; some file systems cannot sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- reading ---------------------------------------------------------------------------------------------------------


class OtherVersion(Unreadable):
    """A file of a version that this library does not read."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Make errors about a file name it."""
    check_fork()
    try:
        yield
    except OtherVersion as error:
        raise ValueError(f"{os.fspath(path)} cannot be read: {error}") from error
    except Unreadable as error:
        raise ValueError(f"{os.fspath(path)} is not a quantprop model: {error}") from error


def read(path: Path) -> ModelFile:
    """A file, with its format and checksum checked; its content is not decoded yet."""
    with open(path, "rb", opener=without_waiting) as file:
        system = os.fstat(file.fileno())
        require(stat.S_ISREG(system.st_mode), "it is a pipe or a device, not a file")
        metadata = _checked_metadata(file, system.st_size)
        file.seek(0)
        data = file.read()
    try:
        tensors = deserialize(data)
    except SafetensorError as error:
        raise Unreadable(str(error)) from error
    arrays = {name: _array(name, entry) for name, entry in tensors}
    if metadata["format_version"] != "1" or "sha256" in metadata:
        intact = metadata.get("sha256") == checksum(metadata, arrays)
        require(intact, "it is damaged: its content does not match its checksum")
    note = _parsed(metadata["note"].encode()) if "note" in metadata else None
    return ModelFile(metadata.get("kind", ""), _parsed(metadata.get("content", "").encode()), arrays, note)


def _checked_metadata(file: BinaryIO, size: int) -> dict[str, Any]:
    """The metadata in the header of a file, which must have our format, the right size, and fit in memory."""
    length = int.from_bytes(file.read(8), "little")
    require(0 < length <= min(size - 8, MAX_HEADER), "it does not begin with the length of a header")
    header = _parsed(file.read(length))
    require(isinstance(header, dict), "its header is not an object")
    metadata = header.pop("__metadata__", None)
    require(isinstance(metadata, dict) and metadata.get("format") == FORMAT, f"its header lacks format={FORMAT!r}")
    _check_version(metadata.get("format_version", ""), metadata.get("library_version", "unknown"))
    with refusing("its header"):
        end = 8 + length + max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    require(end == size, f"it has {size} bytes, but its header declares {end}: it was cut short, or is damaged")
    have = available_memory()
    if have is not None and COPIES_IN_MEMORY * size > have:
        need = COPIES_IN_MEMORY * size
        raise MemoryError(f"{file.name} takes {need / 2**30:.1f} GiB to read, and {have / 2**30:.1f} GiB are available")
    return metadata


def _check_version(version: str, library: str) -> None:
    require(version.isascii() and version.isdigit() and len(version) < 10, f"its format version is {version!r}")
    if int(version) not in READABLE:
        raise OtherVersion(
            f"it has format version {version}, written by quantprop {library}; this quantprop reads versions "
            f"{' and '.join(map(str, READABLE))}: install a quantprop that reads format version {version}"
        )


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text.decode(), parse_constant=_refuse)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"its header is not JSON that can be read: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise Unreadable(f"its header holds {constant}")


def _array(name: str, entry: Mapping[str, Any]) -> np.ndarray:
    require(entry["dtype"] in DTYPES, f"tensor {name} has the type {entry['dtype']}")
    return np.frombuffer(entry["data"], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])


class Shelf:
    """The tensors of a document: each is taken once, and none may remain."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self.left = dict(tensors)

    def take(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """Real numbers without NaN, of a shape in which None stands for any size."""
        array = self.take_any(name, shape)
        require(array.dtype == np.float64 and not np.isnan(array).any(), f"tensor {name} holds NaN, or no floats")
        return array

    def take_finite(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        array = self.take(name, shape)
        require(np.isfinite(array).all(), f"tensor {name} holds infinity")
        return array

    def take_any(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """Numbers of any type, NaN included."""
        require(name in self.left, f"tensor {name} is missing")
        array = self.left.pop(name)
        fits = len(array.shape) == len(shape) and all(s in (None, k) for s, k in zip(shape, array.shape, strict=True))
        require(fits, f"tensor {name} has the wrong shape {array.shape}")
        return array

    def close(self) -> None:
        """Raise an error if tensors remain."""
        require(not self.left, f"it holds unknown tensors: {', '.join(sorted(self.left)[:5])}")


def write_whole(kind: str, pack: Callable[[Any, str, dict[str, np.ndarray]], Any], found: Any, path: Path) -> None:
    """Write what `pack` makes of an object to one file, atomically."""
    tensors: dict[str, np.ndarray] = {}
    write(ModelFile(kind, pack(found, "", tensors), tensors), path)


def whole(document: ModelFile, unpack: Callable[[Any, str, Shelf], T]) -> T:
    """The object that `unpack` makes of a document, whose tensors it must all take."""
    shelf = Shelf(document.tensors)
    found = unpack(document.content, "", shelf)
    shelf.close()
    return found
