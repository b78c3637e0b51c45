"""What a person sees: bars while work goes on, and one line where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from quantprop.experiments.sweep import Report

USAGE, FAILURE, INTERRUPTED = 2, 1, 130


@contextmanager
def bars() -> Iterator[Report]:
    """One bar for each data set with its time left, on standard error."""
    columns = (
        TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=3600.0) as progress:
        tasks = {}

        def report(dataset: str, done: int, total: int) -> None:
            if dataset not in tasks:
                tasks[dataset] = progress.add_task(dataset, total=total, completed=done)
            progress.update(tasks[dataset], completed=done)

        yield report


@contextmanager
def plainly(debug: bool) -> Iterator[None]:
    """Errors as one line and an exit code; with `debug` as they are."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped; rows so far are kept, and the same command goes on from them", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        if debug:
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        typer.echo(f"error: {text} (--debug shows where)", err=True)
        raise typer.Exit(FAILURE) from None
