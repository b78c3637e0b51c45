"""Around a command: its progress bars, notes and errors, and the preparation of the process."""

from __future__ import annotations

import atexit
import csv
import errno
import gc
import json
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from quantprop.cli.process import INTERRUPTED, end, import_scikit_learn
from quantprop.runtime.system import uncollected

if TYPE_CHECKING:
    from quantprop.runtime.listing import Listing

USAGE, FAILURE = 2, 1
CODES = f"Exit codes: 0 success, {FAILURE} error, {USAGE} invalid arguments, {INTERRUPTED} interrupt."

Report = Callable[[str, int, int], None]  # name of the work, units done, units in all


@contextmanager
def bars() -> Iterator[Report]:
    """One bar for each kind of work with its time left, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = ("{task.description:<10}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left",
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=3600.0) as progress:
        tasks = {}

        def report(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total, completed=done)
            progress.update(tasks[name], completed=done)

        yield report


@contextmanager
def waiting(name: str) -> Iterator[Report]:
    """A bar for work of unknown length, on standard error while it lasts."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeElapsedColumn

    columns = ("{task.description}", BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(name, total=None)
        yield lambda what, done, total: None


@contextmanager
def evaluations(name: str) -> Iterator[None]:
    """The number of evaluations, the objective's value and the time, on standard error; one line at the end."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    from quantprop.inference.results import Step
    from quantprop.learning.fitting import watched

    start, seen = time.perf_counter(), 0
    columns = (SpinnerColumn(), "{task.description}", TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{name}: compiling", total=None)

        def report(step: Step, _: int) -> None:
            nonlocal seen
            seen += 1
            progress.update(task, description=f"{name}: evaluation {seen}, objective {step.value:.6g}")

        with watched(report):
            yield
    note(f"note: {name}: {seen} evaluations in {time.perf_counter() - start:.1f} s")


@contextmanager
def prepared() -> Iterator[None]:
    """Import what learning and predicting need, where an interrupt ends the process, and cache compiled programs."""
    atexit.register(gc.freeze)  # the last garbage collection would take as long as the imports
    before = signal.signal(signal.SIGINT, end)
    with uncollected():
        import_scikit_learn()
        import_module("quantprop.estimators")
    signal.signal(signal.SIGINT, before)
    with kept_programs():
        yield


@contextmanager
def kept_programs() -> Iterator[None]:
    """Cache compiled programs on disk; a note says so where that is not possible."""
    from quantprop.runtime.compiled import cache
    from quantprop.runtime.folders import SWITCH

    try:
        cache()
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder can be found
        note(f"note: compiled programs are not stored: {error} ({SWITCH}=off in the environment requests this)")
    yield


@contextmanager
def plainly(debug: bool, stopped: str = "stopped; nothing was written") -> Iterator[None]:
    """Errors, interrupts and warnings as one line each, and an exit code; with `debug` as they are."""
    try:
        if signal.getsignal(signal.SIGINT) is end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = lambda message, *_: note(f"warning: {' '.join(str(message).split())}")
            yield
    except KeyboardInterrupt:
        note(stopped)
        raise typer.Exit(INTERRUPTED) from None
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        if debug:
            raise
        note(f"error: {failure(error)} (--debug shows where)")
        raise typer.Exit(FAILURE) from None


def failure(error: Exception) -> str:
    """An error in one line."""
    said = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
        said = "standard output: no space left on its device; free some, or send the output elsewhere"
    return " ".join(said.split()) or type(error).__name__


def note(text: str) -> None:
    """A line beside the results, on standard error."""
    typer.echo(text, err=True)


def put(found: Listing, out: Path | None, json: bool) -> None:
    """Print a table, or write it as CSV."""
    if out is not None:
        write_csv(out, [found.columns, *zip(*found.columns.values(), strict=True)])
    typer.echo(as_json(found.rows) if json else repr(found) if out is None else f"wrote {out}")


def write_csv(out: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write rows, the names of columns first, replacing the file if it exists."""
    with out.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def as_json(value: Any) -> str:
    """JSON that every reader takes: what is not finite is null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
