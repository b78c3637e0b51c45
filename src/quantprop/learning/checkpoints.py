"""Checkpoints of learning: a file with every evaluation of a search and the sites from which the next one starts.

The state of a search is a function of the values and gradients it has received. A resumed search receives the recorded
ones in the same order, so its state is bitwise identical before it evaluates anything. Evaluations start from the same
sites, so everything that follows is what would have followed without the interruption.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import box, labels, values
from quantprop.learning.evaluation import Declared
from quantprop.learning.fingerprints import of_numbers
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.warm_starts import MEMORY, Memory
from quantprop.model import is_opaque
from quantprop.runtime.arguments import checked
from quantprop.runtime.jobs import agreed, all_true, gathered, own_part, together
from quantprop.storage.files import ModelFile, Path, Shelf, read, reading, write
from quantprop.storage.records import refusing, require

KIND = "checkpoint"
COLUMNS, VECTORS = ("value", "residual", "sweeps", "seconds"), ("theta", "gradient")
MARKS = ("reasons", "place", "continues", "unresolved")
UNEXPECTED = "it has wrong entries"


@dataclass
class Checkpoint:
    """The evaluations of one search; without a path they are not kept."""

    path: str | None = None
    every: float = 0.0  # seconds between two files
    points: list[Point] = field(default_factory=list)
    tols: list[float] = field(default_factory=list)
    told: int = 0  # how many of them were recorded, and told again
    written: float = field(default_factory=time.monotonic)

    def visit(self, landscape: Landscape, theta: Float[np.ndarray, " theta"], tol: float) -> Point:
        """The objective at θ: as recorded, or evaluated."""
        if self.path is None:
            return landscape.at(theta, tol)
        if self.told < len(self.points):
            if np.array_equal(self.points[self.told].theta, theta) and self.tols[self.told] == tol:
                self.told += 1
                return self.points[self.told - 1]
            if not self.told:
                raise ValueError(_other(self.path, "its search started from other values"))
            del self.points[self.told :], self.tols[self.told :]  # of other settings of the search
        point = landscape.at(theta, tol)
        self.points.append(point)
        self.tols.append(tol)
        self.told += 1
        if bool(agreed(np.asarray(time.monotonic() - self.written >= self.every))) and point.usable:
            self.write(landscape)
        return point

    def write(self, landscape: Landscape) -> None:
        """Everything so far, with what the next evaluation starts from, to the file: whole, or the old one stays."""
        memory = landscape.memory()
        rows = {name: np.concatenate(gathered(part), axis=-1) for name, part in _by_row(memory).items()}
        columns = {name: np.array([getattr(one, name) for one in self.points]) for name in (*COLUMNS, *VECTORS)}
        content = {**problem_of(landscape), "reasons": [one.reason for one in self.points], "place": memory.place,
                   "continues": memory.continues, "unresolved": memory.unresolved}  # fmt: skip
        tensors = {**columns, "tol": np.array(self.tols), **rows, "known.theta": memory.theta}
        with together():
            if jax.process_index() == 0:
                _write(ModelFile(KIND, content, tensors), str(self.path))
        self.written = time.monotonic()


def _write(document: ModelFile, path: str) -> None:
    try:
        write(document, path)
    except OSError as error:
        words = "the checkpoint cannot be written; the search can resume from the previous one, if there is one"
        raise OSError(error.errno, f"{error.strerror}: {words}", path) from error


def _by_row(memory: Memory) -> dict[str, np.ndarray]:
    """The arrays of a memory whose last axis is that of the rows."""
    known = {"known.log_tau": memory.log_tau, "known.pull": memory.pull}
    return {**known, "sites.nu": memory.newest.nu, "sites.tau": memory.newest.tau}


def problem_of(landscape: Landscape) -> dict[str, Any]:
    """The properties that a checkpoint must share with the search that resumes from it."""
    return {
        "landscape": type(landscape).__name__, "labels": labels(landscape.parts), "rows": landscape.total,
        "objective": landscape.objective.name, "method": repr(landscape.method),
        "likelihood": landscape.model.plain_likelihood.name, "kernel": repr(landscape.model.kernel),
        "numbers": of_numbers(_without_rows(landscape)), "data": landscape.fingerprint,
    }  # fmt: skip


def _without_rows(landscape: Landscape) -> Declared:
    """All parameters of the model, fixed ones and starting values, except a prior mean given by row: each process has
    its own, and the fingerprint identifies the rows.
    """
    parts = landscape.parts
    return values(parts._replace(mean=None) if is_opaque(landscape.model.mean) else parts)


def opened(checkpoint: Checkpoint, landscape: Landscape) -> Checkpoint:
    """A checkpoint with the content of its file, if there is one; the landscape starts from its sites."""
    if checkpoint.path is None or not all_true(os.path.exists(checkpoint.path)):
        return checkpoint
    with together(), reading(checkpoint.path):
        document = read(checkpoint.path)
        require(document.kind == KIND, f"it is of the kind {document.kind!r}, not a checkpoint")
        require(isinstance(document.content, dict), UNEXPECTED)
    for name, value in problem_of(landscape).items():
        if (found := document.content.get(name)) != value:
            raise ValueError(_other(checkpoint.path, f"its {name}: {found!r} there, {value!r} here"))
    own = own_part(landscape.count)
    with together(), reading(checkpoint.path), refusing("the checkpoint"):
        points, tols, memory = _unpacked(document, len(document.content["labels"]), own)
        lower, upper = box(landscape.parts).T
        require(all(((lower <= point.theta) & (point.theta <= upper)).all() for point in points), UNEXPECTED)
    landscape.recall(memory)
    return replace(checkpoint, points=points, tols=tols)


def _unpacked(document: ModelFile, size: int, own: slice) -> tuple[list[Point], list[float], Memory]:
    """The recorded points, the tolerance of each, and what the next evaluation starts from, for this process's rows."""
    shelf, content, n = Shelf(document.tensors), document.content, document.content["rows"]
    reasons, place, continues, unresolved = (content[name] for name in MARKS)
    require(isinstance(reasons, list) and all(isinstance(reason, str) for reason in reasons), UNEXPECTED)
    require(type(place) is int and type(unresolved) is int and unresolved >= 0 and type(continues) is bool, UNEXPECTED)
    theta, gradient = shelf.take_finite("theta", (len(reasons), size)), shelf.take_any("gradient", (len(reasons), size))
    column = {name: shelf.take_any(name, (len(reasons),)) for name in (*COLUMNS, "tol")}
    require(all(part.dtype == np.float64 for name, part in column.items() if name != "sweeps"), UNEXPECTED)
    require(column["sweeps"].dtype == np.int64 and bool(np.all(column["sweeps"] >= 0)), UNEXPECTED)
    tols, value, *more = (column[name].tolist() for name in ("tol", *COLUMNS))
    points = list(map(Point, theta, value, gradient, reasons, *more))
    known = shelf.take_finite("known.theta", (None, size))
    require(len(known) == (MEMORY if content["landscape"] == Landscape.__name__ else 0), UNEXPECTED)
    require(place in range(max(1, len(known))), UNEXPECTED)
    log_tau, pull = (shelf.take_any(f"known.{name}", (len(known), n))[:, own] for name in ("log_tau", "pull"))
    sites = Natural(*(shelf.take_finite(f"sites.{name}", (n,))[own] for name in ("nu", "tau")))
    shelf.close()
    return points, tols, Memory(known, log_tau, pull, sites, place, continues, unresolved)


def evaluated_at(landscape: Landscape, point: Point) -> Point:
    """A point as it was evaluated, or evaluated once more where only its record is known."""
    return landscape.at(point.theta) if point.out is None else point


def _other(path: str, why: str) -> str:
    return (
        f"{path} is a checkpoint of a different search ({why}): pass another file, or delete this one to start "
        "from the beginning"
    )


# --- whose fits are kept ---------------------------------------------------------------------------------------------


@dataclass
class _Series:
    """The files of the fits of a block, one after the other."""

    path: str
    every: float
    count: int = 0


_series: ContextVar[_Series | None] = ContextVar("checkpoints", default=None)


@checked()
@contextmanager
def checkpointed(path: Path, minutes: float = 10.0) -> Iterator[None]:
    """Write a checkpoint of every fit in this block, and resume from an existing one.

    A fit that was interrupted and is run again with the same data and settings resumes its search from the file, also
    with a different number of processes. The file of the second fit in a block ends in `.1`, and so on. In a job of
    several processes all hosts must see the file.

    Args:
        path: Path of the checkpoint.
        minutes: Time between two checkpoints.

    Returns:
        A context manager.

    >>> import os, tempfile
    >>> import numpy as np
    >>> import quantprop
    >>> from quantprop import Model, fit, kernels, likelihoods
    >>> X, place = np.linspace(-2, 2, 12)[:, None], os.path.join(tempfile.mkdtemp(), "sine.checkpoint")
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3))
    >>> with quantprop.checkpointed(place, minutes=0):
    ...     first = fit(model, X, np.sin(2 * X[:, 0]), "ep")
    >>> with quantprop.checkpointed(place):
    ...     again = fit(model, X, np.sin(2 * X[:, 0]), "ep")  # told what the file holds; evaluates the end alone
    >>> bool(np.array_equal(first.theta, again.theta))
    True
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK):
        raise FileNotFoundError(f"the checkpoint {os.fspath(path)} cannot be written: there is no folder {folder}, or "
                                "it is read-only")  # fmt: skip
    token = _series.set(_Series(os.fspath(path), 60.0 * minutes))
    try:
        yield
    finally:
        _series.reset(token)


def next_checkpoint(landscape: Landscape) -> Checkpoint:
    """The checkpoint of the block's next fit, opened; outside a block, one that stores nothing."""
    series = _series.get()
    if series is None:
        return Checkpoint()
    path = series.path + (f".{series.count}" if series.count else "")
    series.count += 1
    return opened(Checkpoint(path, series.every), landscape)
