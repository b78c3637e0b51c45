"""Checkpoints of learning: the state of a search, in a file to go on from."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from quantprop.inference.results import Step
from quantprop.learning.evaluation import Declared
from quantprop.learning.fingerprints import of_numbers
from quantprop.learning.search_state import End, Log, SearchState
from quantprop.learning.starts import StartRule
from quantprop.model import is_opaque
from quantprop.parameters import box, labels, values
from quantprop.runtime.arguments import checked
from quantprop.runtime.jobs import agreed, all_true, gathered, own_part, together
from quantprop.storage.files import ModelFile, Path, Shelf, read, reading, write
from quantprop.storage.records import refusing, require

KIND = "search"  # of a file; those of before, "checkpoint", held evaluations to be replayed
OTHER = "it has other parts"


@dataclass
class Checkpoint:
    """Where the states of one search are written; without a path they are not."""

    path: str | None = None
    every: float = 0.0  # seconds between two files
    written: float = field(default_factory=time.monotonic)

    def save(self, objective: Any, state: SearchState) -> None:
        """Write the state to the file, if it is time: whole, or the old one stays."""
        if self.path is None or not bool(agreed(np.asarray(time.monotonic() - self.written >= self.every))):
            return
        content, tensors = _packed(objective, state)
        with together():
            if jax.process_index() == 0:
                _write(ModelFile(KIND, {**problem_of(objective), **content}, tensors), self.path)
        self.written = time.monotonic()

    def resumed(self, objective: Any, state: SearchState) -> SearchState:
        """The state that the file holds, if there is one; otherwise the one given, with which it must agree."""
        if self.path is None or not all_true(os.path.exists(self.path)):
            return state
        with together(), reading(self.path):
            document = read(self.path)
            require(document.kind != "checkpoint", "it is a checkpoint of an earlier version, which cannot be resumed: "
                    "delete it, or give another file")  # fmt: skip
            require(document.kind == KIND, f"it is of the kind {document.kind!r}, not a checkpoint")
            require(isinstance(document.content, dict), OTHER)
        for name, value in problem_of(objective).items():
            if (found := document.content.get(name)) != value:
                raise ValueError(_other(self.path, f"its {name}: {found!r} there, {value!r} here"))
        with together(), reading(self.path), refusing("the checkpoint"):
            return _unpacked(objective, state, document)


def _write(document: ModelFile, path: str) -> None:
    try:
        write(document, path)
    except OSError as error:
        words = "the checkpoint cannot be written; from the one before it, if there is one, the search can go on"
        raise OSError(error.errno, f"{error.strerror}: {words}", path) from error


def problem_of(objective: Any) -> dict[str, Any]:
    """What a checkpoint must have in common with a search that goes on from it."""
    return {
        "objective at data": type(objective).__name__, "labels": labels(objective.parts), "rows": objective.total,
        "objective": objective.objective.name, "method": repr(objective.method),
        "likelihood": objective.model.plain_likelihood.name, "kernel": repr(objective.model.kernel),
        "numbers": of_numbers(_without_rows(objective)), "data": objective.fingerprint,
    }  # fmt: skip


def _without_rows(objective: Any) -> Declared:
    """All numbers of the model, fixed ones and the start of others, except for a prior mean that is given by row: each
    process has its own, and the rows have their fingerprint.
    """
    parts = objective.parts
    return values(parts._replace(mean=None) if is_opaque(objective.model.mean) else parts)


# --- a state as the parts of a file ----------------------------------------------------------------------------------


def _packed(objective: Any, state: SearchState) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A state of one problem as words and tensors; rows of the data are those of all processes."""
    (log,), n = state.logs, objective.count
    arrays = {name: np.atleast_1d(leaf) for name, leaf in _named(state).items()}
    for name in filter(_is_rowwise, arrays):
        arrays[name] = np.concatenate(gathered(arrays[name][..., :n]), axis=-1)
    size = state.numbers.iterate.theta.shape[1]

    def stacked(arrays: Any) -> np.ndarray:
        return np.array(list(arrays), dtype=np.float64).reshape(-1, size)

    lines, ends = log.trace, [] if log.end is None else [log.end]
    tensors = {
        "trace.theta": stacked(line.theta for line in lines),
        "trace.gradients": stacked(log.gradients),
        "trace.numbers": np.array([[line.value, line.gradient, line.seconds] for line in lines]).reshape(-1, 3),
        "trace.counts": np.array([[line.restart, line.sweeps] for line in lines], dtype=np.int64).reshape(-1, 2),
        "starts": stacked(log.starts),
        "end.theta": stacked(end.theta for end in ends),
        "end.numbers": np.array([[end.value, end.slope, end.remaining] for end in ends]).reshape(-1, 3),
    }
    words = {"reasons": [line.reason for line in lines], "why": [end.why for end in ends], "restart": log.restart,
             "tried": [[rule.noise, rule.lengthscale] for rule in log.tried]}  # fmt: skip
    return words, {**tensors, **arrays}


ROWWISE = ("nu", "tau", "log_tau", "pull")  # arrays of a state whose last axis is that of the rows


def _named(state: SearchState) -> dict[str, Any]:
    """The numbers of a state, and of what its next evaluation starts from, by name."""
    leaves = jax.tree_util.tree_flatten_with_path((state.numbers, state.inference))[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _is_rowwise(name: str) -> bool:
    return name.split(".")[-1] in ROWWISE


def _restored(name: str, template: Any, shelf: Shelf, total: int, own: slice) -> Any:
    """An array like one of a new search; of rows, those of this process, padded."""
    like = np.atleast_1d(template)
    if _is_rowwise(name):
        rows = shelf.take_any(name, (*like.shape[:-1], total))[..., own]
        require(rows.dtype == np.float64, OTHER)
        restored = np.full(like.shape, 0.0 if name.endswith((".nu", ".tau")) else np.nan)
        restored[..., : own.stop - own.start] = rows
        return restored
    array = shelf.take_any(name, like.shape)
    require(array.dtype == like.dtype, OTHER)
    return array if np.ndim(template) else type(template)(array[0])


def _unpacked(objective: Any, state: SearchState, document: ModelFile) -> SearchState:
    """The state of a search from a file, for this process's rows; like the state of a new search in its form."""
    shelf, words, size = Shelf(document.tensors), document.content, state.numbers.iterate.theta.shape[1]
    own = own_part(objective.count)
    leaves = [_restored(name, leaf, shelf, objective.total, own) for name, leaf in _named(state).items()]
    numbers, inference = jax.tree.unflatten(jax.tree.structure((state.numbers, state.inference)), leaves)
    log = _log(shelf, words, size)
    shelf.close()
    lower, upper = box(objective.parts).T
    require(all(((lower <= line.theta) & (line.theta <= upper)).all() for line in log.trace), OTHER)
    return SearchState(numbers, (log,), inference)


def _log(shelf: Shelf, words: dict[str, Any], size: int) -> Log:
    """What a search saw, and has still to try."""
    reasons, why = words["reasons"], words["why"]
    require(all(isinstance(names, list) and all(isinstance(each, str) for each in names) for names in (reasons, why)),
            OTHER)  # fmt: skip
    require(type(words["restart"]) is int and len(why) <= 1, OTHER)
    count = len(reasons)
    theta, gradients = shelf.take_finite("trace.theta", (count, size)), shelf.take_any("trace.gradients", (count, size))
    numbers, counts = shelf.take_any("trace.numbers", (count, 3)), shelf.take_any("trace.counts", (count, 2))
    require(numbers.dtype == np.float64 and counts.dtype == np.int64 and bool((counts >= 0).all()), OTHER)
    lines = zip(theta, numbers.tolist(), counts.tolist(), reasons, strict=True)
    trace = [Step(restart, at, value, slope, reason, sweeps, seconds)
             for at, (value, slope, seconds), (restart, sweeps), reason in lines]  # fmt: skip
    ends, scalars = shelf.take_finite("end.theta", (len(why), size)), shelf.take_any("end.numbers", (len(why), 3))
    ended = [End(at, value, slope, reason, left)
             for at, (value, slope, left), reason in zip(ends, scalars.tolist(), why, strict=True)]  # fmt: skip
    tried = tuple(StartRule(*rule) for rule in words["tried"])
    starts = tuple(shelf.take_finite("starts", (None, size)))
    return Log(tuple(trace), tuple(gradients), words["restart"], starts, tried, ended[0] if ended else None)


def _other(path: str, why: str) -> str:
    return (
        f"{path} is a checkpoint of another search ({why}): give another file, or delete this one to start from the "
        "beginning"
    )


# --- which fits have checkpoints -------------------------------------------------------------------------------------


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
    """Write a checkpoint of every fit in this block to a file, every so many minutes, and go on from one that is there.

    A fit that was interrupted and is run again with the same data and settings takes up its search where the file left
    it, also in another number of processes. The second fit of a block has `.1` behind the file's name, and so on. In a
    job of several processes the file must be one that all hosts see.

    >>> import os, tempfile
    >>> import numpy as np
    >>> import quantprop
    >>> from quantprop import Model, fit, kernels, likelihoods
    >>> X, place = np.linspace(-2, 2, 12)[:, None], os.path.join(tempfile.mkdtemp(), "sine.checkpoint")
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3))
    >>> with quantprop.checkpointed(place, minutes=0):
    ...     first = fit(model, X, np.sin(2 * X[:, 0]), "ep")
    >>> with quantprop.checkpointed(place):
    ...     again = fit(model, X, np.sin(2 * X[:, 0]), "ep")  # goes on from the last state in the file
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


def next_checkpoint() -> Checkpoint:
    """The checkpoint of the next fit of the block; outside of a block, one that writes nothing."""
    series = _series.get()
    if series is None:
        return Checkpoint()
    path = series.path + (f".{series.count}" if series.count else "")
    series.count += 1
    return Checkpoint(path, series.every)
