"""Results on disk: one line of JSON for each experiment and method, in <folder>/rows.jsonl.

Lines are only ever appended, those of a unit by one write, so a run that is killed loses at most what it was writing.
They are flushed to the disk at the end, and with a later line once a second has passed: where the power fails, those
since then are lost. Minus infinity is written as Python's json does it: -Infinity.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from quantprop.runtime.system import uncollected

FILE = "rows.jsonl"
LOCK = ".lock"
SELDOM = 1.0  # seconds between two calls that wait for the disk, each of which takes milliseconds

Key = tuple[str, str, str, str, str, int, int, str]


class Malformed(ValueError):
    """A line that is not a row."""


class Busy(RuntimeError):
    """Another run writes to the folder."""


@dataclass(frozen=True)
class Row:
    """The outcome of one method in one experiment. Numbers are in natural units; None where there are none.

    `converged` says that learning ended by its own rule and inference converged there. `evidence` is the objective,
    `sweeps` are those of the last inference. `forecasts` holds, for mining, te and ntll of each kind of forecast.
    `test` holds y, the latent mean and variance, and log_prob of y at the test inputs; in rows of QP also
    variance_at_ep, its latent variance at EP's hyperparameters.
    """

    dataset: str
    variant: str
    kernel: str
    objective: str
    split: str
    round: int
    fold: int
    method: str
    seed: int
    te: float | None
    ntll: float | None
    hyperparameters: dict[str, float | list[float]]
    evidence: float | None
    sweeps: int | None
    evaluations: int | None
    status: str
    converged: bool
    seconds: float
    versions: dict[str, str]
    forecasts: dict[str, dict[str, float]]
    test: dict[str, list[float]]

    @property
    def key(self) -> Key:
        return key_of(self, self.method)

    @property
    def failed(self) -> bool:
        """True if there is no result; the status says why."""
        return self.te is None


def key_of(about: Any, method: str) -> Key:
    return (about.dataset, about.variant, about.kernel, about.objective, about.split, about.round, about.fold, method)


def to_json(row: Row) -> str:
    """A row as one line, without its newline. Floats keep every digit."""
    return json.dumps(vars(row), ensure_ascii=False)


def from_json(line: str) -> Row:
    try:
        record: Any = json.loads(line)
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise Malformed("not an object")
    names = {field.name for field in fields(Row)}
    if record.keys() != names:
        parts = {"without": names - record.keys(), "with unknown": record.keys() - names}
        raise Malformed("; ".join(f"{word} {', '.join(sorted(found))}" for word, found in parts.items() if found))
    return Row(**record)


@uncollected()  # numbers in lists, of which none are garbage
def read(folder: Path) -> list[Row]:
    """All rows of a folder, in the order they were written. A last line without its newline is not a row yet."""
    path = folder / FILE
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    found: dict[Key, int] = {}
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            row = from_json(line.decode("utf-8"))
            if row.key in found:
                raise Malformed(f"the same experiment and method as line {found[row.key]}")
        except (Malformed, UnicodeDecodeError) as error:
            raise Malformed(f"{path}, line {number}: {error}; correct the line or remove it") from None
        found[row.key] = number
        rows.append(row)
    return rows


def lines(rows: Iterable[Row]) -> str:
    """Rows as `appending` writes them. This takes longer than to write them."""
    return "".join(to_json(row) + "\n" for row in rows)


@contextmanager
def appending(folder: Path) -> Iterator[Callable[[str], None]]:
    """A function that writes lines, which a kill does not take back. Only for the holder of `locked`."""
    file = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    flushed = time.monotonic()

    def append(new: str) -> None:
        nonlocal flushed
        if os.write(file, new.encode("utf-8")) != len(new.encode("utf-8")):
            raise OSError(f"{folder / FILE}: a row could not be written whole; is the disk full?")
        if time.monotonic() - flushed > SELDOM:
            os.fsync(file)
            flushed = time.monotonic()

    try:
        yield append
    finally:
        os.fsync(file)
        os.close(file)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for writing: nobody else may, and what an interrupted write left behind is cut off.

    The lock is the process's own and ends with it, however it ends.
    """
    try:
        import fcntl  # not on Windows
    except ImportError as error:
        raise OSError(f"{folder} cannot be locked on this system: run experiments on Linux or macOS") from error
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another run writes to {folder}: wait for it, or choose another folder") from None
        path = folder / FILE
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        yield
