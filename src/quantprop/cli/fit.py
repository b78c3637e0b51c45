"""The command fit. What takes long to import is imported where it is used."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from quantprop.cli.options import (
    AUTO,
    MAX_QUICK_ROWS,
    SINGLE,
    Debug,
    Json,
    Kernel,
    Likelihood,
    Method,
    Objective,
    TableOptions,
    Varying,
    announce_time,
    place,
    takes_table,
    words,
)
from quantprop.cli.screen import as_json, evaluations, failure, note, plainly, prepared

if TYPE_CHECKING:
    from quantprop.tables import Problem, TableModel

STACK_POINTS = 200  # inducing points of a stack learned from many rows on a CPU
TASKS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")  # set by launchers that jax.distributed knows


@takes_table
def fit(
    table: TableOptions,
    likelihood: Likelihood = None,
    method: Method = "qp",
    kernel: Kernel = None,
    objective: Objective = "evidence",
    inducing: Annotated[
        int | None, Option(min=1, help="Number of inducing points, for large tables.  [exact inference]")
    ] = None,
    neighbours: Annotated[
        int | None, Option(min=1, help="Number of nearest rows of each row, with inducing points or without.")
    ] = None,
    series: Annotated[
        bool, Option("--series", help="Model a series in time: trend, variation from row to row, and seasons.")
    ] = False,
    season: Annotated[
        str | None, Option(help="Seasons of --series: some of day,week,year, or periods.  [chosen by evidence]")
    ] = None,
    integrate: Annotated[
        bool, Option("--integrate", help="Average predictions over the posterior of the hyperparameters.")
    ] = False,
    monotone: Annotated[
        list[str] | None,
        Option(
            metavar="COLUMN=SHAPE",
            help="Shape of f in a column: increasing, decreasing, convex or concave; may be repeated.",
        ),
    ] = None,
    varying: Varying = None,
    restarts: Annotated[int, Option(min=0, help="Number of further, random starts of learning.")] = 0,
    coordinator: Annotated[str | None, Option(help="host:port of process 0, in a job of several processes.")] = None,
    processes: Annotated[int | None, Option(min=1, help="Number of processes in the job.")] = None,
    process: Annotated[int | None, Option(min=0, help="Number of this process, from 0.")] = None,
    checkpoint: Annotated[
        Path | None, Option(help="File to write while learning, and to resume from if it exists.")
    ] = None,
    minutes: Annotated[float | None, Option(min=0, help="Minutes between two checkpoints.  [10]")] = None,
    out: Annotated[Path, place("Model file to write, replaced if it exists.")] = Path("model.safetensors"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a model of one column given the others, and write it to a file."""
    with plainly(debug), prepared():
        from quantprop import sharded

        saved = _checkpointed(checkpoint, minutes)
        is_job = _is_job(coordinator, processes, process)
        seasons = _seasons(series, season, kernel)
        kernel = _kernel(kernel, {"--series": series, "--checkpoint": checkpoint is not None,
                                  "--integrate": integrate, "--monotone": bool(monotone),
                                  "--varying": varying is not None,
                                  "a job of several processes": is_job})  # fmt: skip
        is_first = _joined(coordinator, processes, process) if is_job else True
        problem = table.problem(likelihood, kernel, seasons, terms_of_parameter(varying))
        has_seasons = seasons is not None and problem.kernel != SINGLE
        inducing = inducing if has_seasons else _points(problem, inducing, neighbours)
        settings = {"objective": objective, "n_restarts_optimizer": restarts, "random_state": table.seed}
        settings |= {"monotone": _shapes(monotone)} if monotone else {}
        settings |= _treatment(problem, inducing, neighbours, table.seed, series, integrate)
        settings |= _of_seasons(problem) if has_seasons else {}
        with (
            evaluations(f"fitting by {method} to {len(problem.raw)} rows"), warnings.catch_warnings(),
            nullcontext() if inducing is None else sharded(), saved,
        ):  # fmt: skip
            warnings.simplefilter("ignore")  # the status below says it once, and without the names of a library's parts
            model = _learned(problem, method, settings)
        if is_first:
            model.save(out)
            _report(model, out, json, debug)


def _report(model: TableModel, out: Path, json: bool, debug: bool) -> None:
    """Print a model that has been written: a failure is only a warning, since the work is done."""
    from quantprop.estimators.summary import described, record

    try:
        known = record(model)
        typer.echo(as_json({"model": str(out), **known}) if json else "\n".join(map(str, described(model, known))))
    except Exception as error:
        if debug:
            raise
        note(f"warning: {out} was written, but cannot be described: {failure(error)} (--debug shows where)")
        if json:
            typer.echo(as_json({"model": str(out), "warning": failure(error)}))
    if not json:
        typer.echo(f"wrote {out}")
    if not model.converged:
        note("warning: not converged; see the remedies in the status above")
    if not all(one.converged for one in model.integrated):
        note("warning: the integral over hyperparameters is inaccurate; see the remedies in the status above")


def _seasons(series: bool, season: str | None, kernel: str | None) -> tuple[str, ...] | None:
    """The seasons of a series as given, none if they are to be chosen; None if the kernel is given, or no series."""
    if season is not None and (not series or kernel is not None):
        raise typer.BadParameter("it names the seasons of --series without --kernel, whose terms include its own",
                                 param_hint="--season")  # fmt: skip
    return words(season or "") if series and kernel is None else None


def _of_seasons(problem: Problem) -> dict[str, Any]:
    """The process of a series with seasons."""
    from quantprop.tables.series import MAX_DENSE_ROWS, process_for

    found = process_for(n := len(problem.raw))
    if n > MAX_DENSE_ROWS:
        note(f"note: {n} rows: the series is represented by {found}, and fast variation is independent between "
             "rows; --kernel with terms of time is exact, and takes longer")  # fmt: skip
    return {"process": found}


def _kernel(given: str | None, single: dict[str, bool]) -> str:
    """The kernel as given; by default a stack, or one kernel if an option is set that takes a single model."""
    option = next((name for name, is_set in single.items() if is_set), None)
    if given == AUTO and option is not None:
        raise typer.BadParameter(
            f"auto stacks several models, but {option} needs one: omit it, or pass one kernel, such as shrunk or "
            "additive", param_hint="--kernel",
        )  # fmt: skip
    return given or (AUTO if option is None else SINGLE)


def _shapes(given: list[str]) -> dict[str, tuple[str, ...]]:
    """The shapes of each column, from column=shape."""
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        column, _, shape = text.rpartition("=")
        if not column:
            raise typer.BadParameter(f"must be column=shape, such as dose=increasing; got {text!r}",
                                     param_hint="--monotone")  # fmt: skip
        found[column] = (*found.get(column, ()), shape)
    return found


def terms_of_parameter(given: str | None) -> dict[str, str]:
    """The terms of a parameter, from name=terms."""
    name, _, terms = (given or "").partition("=")
    if given is not None and not terms.strip():
        raise typer.BadParameter(f"must be name=terms, such as 'scale = se(x)'; got {given!r}", param_hint="--varying")
    return {name.strip(): terms.strip()} if given is not None else {}


def _points(problem: Problem, inducing: int | None, neighbours: int | None) -> int | None:
    """The number of inducing points as given; of a stack of many rows on a CPU the default number."""
    import jax

    n = len(problem.raw)
    if inducing is not None or neighbours is not None:
        return inducing
    if problem.kernel != AUTO or n <= MAX_QUICK_ROWS or jax.default_backend() != "cpu":
        announce_time(n)
        return None
    note(
        f"note: {n} rows: every model of the stack represents them by {STACK_POINTS} inducing points; --inducing 512 "
        "is more accurate and takes longer, --kernel shrunk fits one exact model"
    )
    return STACK_POINTS


def _treatment(
    problem: Problem, inducing: int | None, neighbours: int | None, seed: int, series: bool, integrate: bool
) -> dict[str, Any]:
    from quantprop import Inducing, Neighbours
    from quantprop.tables.targets import JOINT

    for option, given in (("--inducing", inducing), ("--neighbours", neighbours)):
        if series and given is not None:
            raise typer.BadParameter(f"--series and {option} exclude each other: pass one of them")
    if (series or integrate) and problem.target.likelihood == JOINT and len(set(problem.target.y)) > 2:
        raise typer.BadParameter(
            f"not supported with one model of all classes: omit --likelihood {JOINT} to fit each class against the "
            "others", param_hint="--series" if series else "--integrate",
        )  # fmt: skip
    settings: dict[str, Any] = {"hyperparameters": "integrated"} if integrate else {}
    if series:
        settings["process"] = "markov"
    if inducing is not None:
        settings["process"] = Inducing(inducing, seed=seed, neighbours=neighbours or 0)
    elif neighbours is not None:
        settings["process"] = Neighbours(neighbours, seed=seed)
    return settings


def _learned(problem: Problem, method: str, settings: dict[str, Any]) -> TableModel:
    from quantprop.priors.markov import NotMarkov

    try:
        return problem.fit(method, **settings)
    except NotMarkov as error:
        raise RuntimeError(
            f"{error}; on the command line: omit --series for exact inference, or replace it with --inducing 512 for "
            "many rows"
        ) from None
    except MemoryError as error:
        raise MemoryError(
            f"{error}; --inducing 512 represents many rows by 512 points, and --sample 1000 uses 1000 of the rows"
        ) from None


def _is_job(coordinator: str | None, processes: int | None, process: int | None) -> bool:
    """Return whether options or the environment ask for a job of several processes."""
    given = (coordinator, processes, process)
    if any(part is not None for part in given) and None in given:
        raise typer.BadParameter("--coordinator, --processes and --process go together: pass all three, or none")
    launched = any(int(os.environ.get(name, "1")) > 1 for name in TASKS)
    return coordinator is not None or "JAX_COORDINATOR_ADDRESS" in os.environ or launched


def _joined(coordinator: str | None, processes: int | None, process: int | None) -> bool:
    """Join a job of several processes; returns whether this one prints."""
    import jax

    from quantprop.runtime.jobs import join

    join(coordinator, processes, process)
    return jax.process_index() == 0


def _checkpointed(checkpoint: Path | None, minutes: float | None) -> AbstractContextManager[None]:
    from quantprop import checkpointed

    if checkpoint is None and minutes is not None:
        raise typer.BadParameter("it is the time between two checkpoints: pass --checkpoint", param_hint="--minutes")
    if checkpoint is None:
        return nullcontext()
    return checkpointed(checkpoint) if minutes is None else checkpointed(checkpoint, minutes)
