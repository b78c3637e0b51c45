"""The commands. What takes long to import is imported where it is used: help comes at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import quantprop
from quantprop.cli.compare import compare
from quantprop.cli.explain import explain
from quantprop.cli.fit import fit
from quantprop.cli.options import Debug, Json, one_of, place, words
from quantprop.cli.predict import predict
from quantprop.cli.rank import rank
from quantprop.cli.screen import CODES, as_json, bars, plainly, prepared
from quantprop.cli.suggest import suggest
from quantprop.cli.survival import split, survival

if TYPE_CHECKING:
    from quantprop.experiments.rows import Row
    from quantprop.experiments.sweep import Workers

app = typer.Typer(
    name="quantprop",
    help="Gaussian processes with non-Gaussian likelihoods, by Quantile Propagation.",
    epilog=CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (fit, predict, compare, explain, split, survival, rank, suggest):
    app.command(epilog=CODES)(command)
RESULTS = ("table1", "figure1")
STOPPED = "stopped; finished rows are stored, and the same command resumes from them"


@app.command(epilog=CODES)
def reproduce(
    what: Annotated[
        str,
        Argument(callback=one_of(RESULTS), help="table1 (with its figures), or figure1 alone: ep and qp."),
    ],
    names: Annotated[str, Option("--datasets", help="Comma-separated names, or all.")] = "all",
    rounds: Annotated[int | None, Option(min=1, help="Rounds of ten folds; seeds for mining.  [100 and 200]")] = None,
    methods: Annotated[str | None, Option(help="Some of ep, qp, vb, laplace.  [ep,qp,vb]")] = None,
    objective: Annotated[str, Option(help="One of evidence, loo.")] = "evidence",
    kernel: Annotated[str, Option(help="One of isotropic, ard.")] = "isotropic",
    variant: Annotated[str, Option(help="One of paper, code, clean.")] = "paper",
    split: Annotated[str, Option(help="How mining is split: by year or event.")] = "year",
    jobs: Annotated[int | None, Option(min=1, help="Worker processes.  [one per core]")] = None,
    batched: Annotated[bool, Option("--batched", help="Fit all folds at once, in batches (for a GPU).")] = False,
    dask: Annotated[str | None, Option(help="Address of the scheduler of a Dask cluster to use instead.")] = None,
    out: Annotated[Path, Option(file_okay=False, help="Folder for rows, tables and figures.")] = Path("results"),
    json: Annotated[bool, Option("--json", help="Print the summary as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Repeat the paper's experiments. Rows that the folder contains are not computed again."""
    if what == "figure1" and methods is not None:
        raise typer.BadParameter("figure1 compares ep and qp; omit --methods")
    default = "ep,qp" if what == "figure1" else "ep,qp,vb"
    with plainly(debug, STOPPED):
        from quantprop import datasets
        from quantprop.experiments.protocol import METHODS
        from quantprop.experiments.sweep import Plan, planned, run

        def chosen(text: str, every: tuple[str, ...]) -> tuple[str, ...]:
            return every if text.strip() == "all" else words(text)

        workers = _workers(jobs, dask, batched)
        given = chosen(names, datasets.names()), chosen(methods or default, METHODS)
        try:
            plan = Plan(*given, rounds, variant, kernel, objective, split)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        with bars() as report:
            rows = run(plan, out, workers, report)
        _summarise(planned(plan, rows), _written(what, out, rows), out, json)


def _workers(jobs: int | None, dask: str | None, batched: bool) -> Workers:
    if (dask is not None) + (jobs is not None) + batched > 1:
        raise typer.BadParameter("--jobs, --batched and --dask exclude each other: pass one of them")
    if batched:
        from quantprop.experiments.batched import Batched

        return Batched()
    from loky import cpu_count

    from quantprop.experiments.pool import Dask, Local

    return Local(jobs or cpu_count()) if dask is None else Dask(dask)


def _written(what: str, out: Path, rows: list[Row]) -> list[Path]:
    """The tables and figures made from the rows; figure1 is the figures alone."""
    from quantprop.experiments import tables

    files = tables.write(out, rows) if what == "table1" else []
    try:
        from quantprop.experiments import figures
    except ImportError as error:
        raise RuntimeError(
            f"rows are in {out}, but figures need matplotlib ({error}): pip install 'quantprop[plots]'"
        ) from None
    return files + figures.write(out, rows)


def _summarise(rows: list[Row], files: list[Path], out: Path, json: bool) -> None:
    failed = sum(row.failed for row in rows)
    stopped = sum(not row.converged and not row.failed for row in rows)
    if json:
        counts = {"rows": len(rows), "failed": failed, "not_converged": stopped}
        typer.echo(as_json({**counts, "folder": str(out), "files": [str(file) for file in files]}))
        return
    typer.echo(
        f"{len(rows)} rows in {out}: {failed} without a result, {stopped} not converged (their status states the "
        "reason)"
    )
    for file in files:
        typer.echo(f"wrote {file}")


@app.command("datasets", epilog=CODES)
def list_datasets(
    variant: Annotated[str, Option(help="One of clean, paper.")] = "clean",
    json: Json = False,
) -> None:
    """List the bundled data sets."""
    from quantprop import datasets

    one_of(datasets.VARIANTS)(variant)
    every = [datasets.load(name, variant) for name in datasets.names()]
    if json:
        typer.echo(as_json([
            {"name": d.name, "rows": len(d.y), "columns": d.X.shape[1], "description": d.description} for d in every
        ]))  # fmt: skip
    else:
        typer.echo("\n".join(f"{data.name:<11} {data.description}" for data in every))


@app.command(epilog=CODES)
def demo(
    out: Annotated[Path, place("The page to write; an existing one is replaced.")] = Path("quantprop-demo.html"),
    json: Annotated[bool, Option("--json", help="Print the scores as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Model a bundled table beside gradient boosting and counts by four methods, print scores, and write a page."""
    with plainly(debug), prepared():
        from quantprop import report
        from quantprop.report.demo import main

        with bars() as progress:
            studies = main(out, progress)
        if json:
            found = {study.title: report.records(study.comparison) for study in studies}
            typer.echo(as_json({"page": str(out), **found}))
        else:
            typer.echo("\n".join([*report.summary(studies), f"wrote {out}"]))


@app.command(epilog=CODES)
def version() -> None:
    """Print the version."""
    typer.echo(quantprop.__version__)
