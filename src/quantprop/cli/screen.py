"""What a person sees: bars while work goes on, notes beside results, and one line where something cannot be done."""

from __future__ import annotations

import json
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from quantprop.cli.interrupts import INTERRUPTED, end

USAGE, FAILURE = 2, 1
CODES = f"Exit codes: 0 done, {FAILURE} failure, {USAGE} wrong usage, {INTERRUPTED} interrupted."

Report = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@contextmanager
def bars() -> Iterator[Report]:
    """One bar for each kind of work with its time left, on standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )  # fmt: skip

    columns = (
        TextColumn("{task.description:<10}", markup=False), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
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
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(name, total=None)
        yield lambda what, done, total: None


@contextmanager
def evaluations(name: str) -> Iterator[None]:
    """Which evaluation learning is at, the objective's value and the time, on standard error; one line at the end."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from quantprop.inference.results import Step
    from quantprop.learning.fitting import watched

    start, seen = time.perf_counter(), 0
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
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
def kept_programs() -> Iterator[None]:
    """Keep compiled programs on disk; where that is not possible, say so and go on without."""
    from quantprop.runtime.compiled import cache
    from quantprop.runtime.folders import SWITCH

    try:
        cache()
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder can be found
        note(f"note: compiled programs are not kept: {error} ({SWITCH}=off in the environment asks for that)")
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
        note(f"error: {_in_words(error)} (--debug shows where)")
        raise typer.Exit(FAILURE) from None


@contextmanager
def described(model: Path, json: bool, debug: bool) -> Iterator[None]:
    """What is printed of a model that has been written: where that fails it is a warning, since the work is done."""
    try:
        yield
    except Exception as error:
        if debug:
            raise
        note(f"warning: {model} was written, but cannot be described: {_in_words(error)} (--debug shows where)")
        if json:
            typer.echo(as_json({"model": str(model), "warning": _in_words(error)}))


def _in_words(error: Exception) -> str:
    said = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
    return " ".join(said.split()) or type(error).__name__


def note(text: str) -> None:
    """A line beside the results, on standard error."""
    typer.echo(text, err=True)


def as_json(value: Any) -> str:
    """JSON that every reader takes: what is not finite is null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
