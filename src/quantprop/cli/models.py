"""Commands about one table: fit, compare, explain. What takes long to import is imported where it is used."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantprop.cli.forecasts import predict
from quantprop.cli.jobs import check_minutes, every_device, joined, kept_search
from quantprop.cli.options import (
    GROW,
    LIKELIHOODS,
    METHODS,
    OBJECTIVES,
    Checkpoint,
    Coordinator,
    Data,
    Dates,
    Debug,
    Decimal,
    Drop,
    Event,
    Exposure,
    Given,
    Goal,
    Ignore,
    Json,
    Kernel,
    Kernels,
    Likelihood,
    Likelihoods,
    Log,
    Minutes,
    Order,
    Process,
    Processes,
    Sample,
    Trials,
    Upper,
    Weights,
    check_place,
    free_place,
    one_of,
    tell,
    words,
)
from quantprop.cli.process import prepared
from quantprop.cli.screen import CODES, as_json, bars, described, evaluations, note, plainly
from quantprop.cli.told import about, choice_code, comparison_code, told, trust_record
from quantprop.runtime.names import nearest

if TYPE_CHECKING:
    from quantprop.tables import Problem, TableModel


def fit(
    data: Data,
    target: Goal,
    likelihood: Likelihood = None,
    upper: Upper = None,
    event: Event = None,
    order: Order = None,
    log: Log = False,
    exposure: Exposure = None,
    trials: Trials = None,
    weights: Weights = None,
    method: Annotated[str, typer.Option(callback=one_of(METHODS), help=f"One of {', '.join(METHODS)}.")] = "qp",
    kernel: Kernel = "isotropic",
    dates: Dates = "number",
    objective: Annotated[
        str, typer.Option(callback=one_of(OBJECTIVES), help="What learning maximises: evidence or loo.")
    ] = "evidence",
    inducing: Annotated[
        int | None, typer.Option(min=1, help="Hold the process by so many inducing points: for many rows.  [exact]")
    ] = None,
    series: Annotated[
        bool, typer.Option("--series", help="One column of times: a Matérn kernel, in time linear in the rows.")
    ] = False,
    integrate: Annotated[
        bool, typer.Option("--integrate", help="Average predictions over the posterior of the hyperparameters.")
    ] = False,
    restarts: Annotated[int, typer.Option(min=0, help="Further starts of learning, at random.")] = 0,
    sample: Sample = None,
    seed: Annotated[int, typer.Option(min=0, help="Of --sample and --restarts.")] = 0,
    ignore: Ignore = None,
    drop_missing: Drop = False,
    decimal: Decimal = ".",
    coordinator: Coordinator = None,
    processes: Processes = None,
    process: Process = None,
    checkpoint: Checkpoint = None,
    minutes: Minutes = None,
    out: Annotated[Path, typer.Option(help="The model's file; an old one is replaced.")] = Path("model.safetensors"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Learn a model of one column from the others, and write it to a file."""
    roles = {"upper": upper, "event": event, "exposure": exposure, "trials": trials, "weights": weights}
    given = Given(
        data, target, likelihood, kernel, roles, order, log, dates, ignore, drop_missing, decimal, sample, seed,
        inducing,
    )  # fmt: skip
    with plainly(debug), prepared():
        check_place(out)
        check_minutes(checkpoint, minutes)
        first = joined(coordinator, processes, process)
        problem = _grown(given, method) if kernel == GROW else given.read()
        settings = {"objective": objective, "n_restarts_optimizer": restarts, "random_state": seed}
        settings |= _ways(problem, inducing, seed, series, integrate)
        with (
            evaluations(f"learning by {method} from {len(problem.raw)} rows"), warnings.catch_warnings(),
            every_device(inducing is not None), kept_search(checkpoint, minutes),
        ):  # fmt: skip
            warnings.simplefilter("ignore")  # the status below says it once, and without the names of a library's parts
            model = _learned(problem, method, settings)
        if not first:
            return
        model.save(out)
        with described(out, json, debug):
            typer.echo(as_json({"model": str(out), **about(model)}) if json else "\n".join(told(model)))
        if not json:
            typer.echo(f"wrote {out}")
        if not all(fitted.converged for fitted in model.fits):
            note("warning: not converged; the status above says what to try")
        if not all(one.converged for one in model.integrated):
            note("warning: hyperparameters are integrated roughly; the status above says what to try")


def _ways(problem: Problem, inducing: int | None, seed: int, series: bool, integrate: bool) -> dict[str, Any]:
    """How the process is held and its hyperparameters are treated, as estimators call it."""
    from quantprop import Inducing
    from quantprop.tables.targets import JOINT

    if series and inducing is not None:
        raise typer.BadParameter("--series and --inducing are two ways to hold a process: give one of them")
    if (series or integrate) and problem.target.likelihood == JOINT and len(set(problem.target.y)) > 2:
        raise typer.BadParameter(
            f"not with several classes at once: leave out --likelihood {JOINT} for a model of each class against the "
            "others, which has it", param_hint="--series" if series else "--integrate",
        )  # fmt: skip
    ways: dict[str, Any] = {"hyperparameters": "integrated"} if integrate else {}
    if series:
        ways["process"] = "markov"
    if inducing is not None:
        ways["process"] = Inducing(inducing, seed=seed)
    return ways


def _grown(given: Given, method: str) -> Problem:
    """The problem with the sum of terms that a search finds, which is said step by step."""
    from quantprop import comparison

    every, roles = given.table()
    terms = comparison.possible_terms(every.without([given.target, *roles.columns.values()]))
    table = given.rows(every, roles, terms)
    with bars() as progress:
        found = comparison.grow(
            lambda text: given.problem(table, roles, given.likelihood, text), terms, method, progress
        )
    for before, after in itertools.pairwise(found.steps):
        gain = after.less(before)
        note(f"note: {after.name}: gains {gain.value:.2f} nats of leave-one-out log density (standard error "
             f"{gain.error:.2f})")  # fmt: skip
    if len(found.steps) == 1:
        raise RuntimeError("no term gains 2 nats and 2 standard errors over a constant: give --kernel a sum of terms")
    best = found.best.name
    problem = given.problem(given.rows(every, roles, [best]), roles, given.likelihood, best)
    tell(problem, given.likelihood)
    return problem


def _learned(problem: Problem, method: str, settings: dict[str, Any]) -> TableModel:
    from quantprop.priors.markov import NotMarkov

    try:
        return problem.fit(method, **settings)
    except NotMarkov as error:
        raise RuntimeError(
            f"{error}; on the command line: leave out --series for exact inference, or replace it by --inducing 512 "
            "for many rows"
        ) from None
    except MemoryError as error:
        raise MemoryError(
            f"{error}; --inducing 512 holds many rows by 512 points, and --sample 1000 learns from 1000 of the rows"
        ) from None


def compare(
    data: Data,
    target: Goal,
    methods: Annotated[str, typer.Option(help=f"Some of {', '.join(METHODS)}.")] = "qp,ep,vb,laplace",
    folds: Annotated[int, typer.Option(min=2, help="Every row is scored by a model of the other folds.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of the division into folds, and of --sample.")] = 0,
    likelihood: Likelihoods = None,
    order: Order = None,
    exposure: Exposure = None,
    trials: Trials = None,
    weights: Weights = None,
    upper: Upper = None,
    event: Event = None,
    log: Log = False,
    kernel: Kernels = None,
    dates: Dates = "number",
    sample: Sample = None,
    ignore: Ignore = None,
    drop_missing: Drop = False,
    decimal: Decimal = ".",
    out: Annotated[
        Path | None,
        typer.Option(help="The page to write; an old one is replaced.  [a new one: report.html, report-2.html, ...]"),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare methods with each other and with simpler models by cross-validation; or several kernels or likelihoods,
    by the first method, by leave-one-out log density. Writes a page about them.
    """
    chosen, kernels = _methods(methods), list(dict.fromkeys(kernel or ["isotropic"]))
    roles = {"upper": upper, "event": event, "exposure": exposure, "trials": trials, "weights": weights}
    several = [one_of(LIKELIHOODS)(name) for name in dict.fromkeys(likelihood or [])] or [None]
    given = Given(
        data, target, several[0], kernels[0], roles, order, log, dates, ignore, drop_missing, decimal, sample, seed
    )
    with plainly(debug), prepared():
        from quantprop import comparison, report

        out = free_place(Path("report.html")) if out is None else out
        check_place(out)
        if len(kernels) * len(several) > 1:
            return _choose(given, several, kernels, chosen[0], out, json)
        problem = given.read()
        with bars() as progress:
            found = comparison.compare(problem, chosen, _folds(problem, folds, seed), progress)
        code = comparison_code(given, problem, f"{chosen}, comparison.folds(problem, {folds}, {seed})")
        title = f"{target}: {', '.join(map(report.called, chosen))} compared"
        if json:
            typer.echo(as_json({"page": str(out), "target": target, "likelihood": problem.target.likelihood,
                                "conclusion": report.conclusion(found),
                                "methods": report.records(found),
                                "baselines": report.records(found, found.baselines)}))  # fmt: skip
        else:
            typer.echo("\n".join(report.lines(found)))
        study = report.Study("Comparison", "", found, code)
        _write_page(out, title, f"Learned from {problem.table.source}.", study, json)


def _choose(
    given: Given, likelihoods: list[str | None], kernels: list[str], method: str, out: Path, json: bool
) -> None:
    """Compare kernels and likelihoods, and write a page."""
    from quantprop import comparison, report

    every, roles = given.table()
    table = given.rows(every, roles, kernels)
    first = given.problem(table, roles, likelihoods[0], kernels[0])
    tell(first, likelihoods[0])
    made = comparison.candidates(lambda *which: given.problem(table, roles, *which), likelihoods, kernels)
    with bars() as progress:
        found = comparison.choose(made, method, progress)
    code = choice_code(given, roles, likelihoods, kernels, method)
    about = f"{given.target}: {first.target.why}. {len(table.rows)} rows, learned by {report.called(method)}."
    study = report.ChoiceStudy("Comparison", about, found, code)
    if json:
        typer.echo(as_json({"page": str(out), "target": given.target, "conclusion": report.concluded(found),
                            "models": report.choice_records(found), "warnings": found.warnings}))  # fmt: skip
    else:
        typer.echo("\n".join(report.choice_lines(found)))
    title = f"{given.target}: {len(made)} models compared"
    _write_page(out, title, f"Learned from {table.source}.", study, json)


def _write_page(out: Path, title: str, lead: str, study: Any, json: bool) -> None:
    """After the scores have been printed, which a page that cannot be written does not take along."""
    from quantprop import report

    report.write(out, title, lead, [study])
    if not json:
        typer.echo(f"wrote {out}")


def explain(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    rows: Annotated[int, typer.Option(min=0, help="How many rows to name.")] = 5,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say how a fit ended, what was learned, how far to trust it, which features count, and which rows surprise and
    move it most.
    """
    with plainly(debug), prepared():
        import numpy as np

        from quantprop import tables
        from quantprop.comparison import insight

        learned = tables.load(model)
        trusts = [insight.trust(fitted.solution) for fitted in learned.fits]
        doubt = np.max([trust.doubt for trust in trusts], axis=0)  # of several models of classes, the largest
        named = {"surprise": insight.surprise(learned), "influence": insight.influence(learned), "doubt": doubt}
        most = {
            name: [{"line": learned.lines[i], name: float(values[i])} for i in insight.greatest(values, rows)]
            for name, values in named.items()
        }
        if json:
            typer.echo(as_json({**about(learned), **most, "trust": [trust_record(trust) for trust in trusts]}))
            return
        typer.echo("\n".join([*told(learned), *(f"trust: {trust}" for trust in trusts)]))
        for name, title in (
            ("surprise", "most surprising rows, −log p(y | other rows)"),
            ("influence", "most influential rows, how far each moves f at its place, in nats"),
            ("doubt", "rows whose f is least certain to be Gaussian, the most that a probability about it is wrong"),
        ):
            if not most[name]:  # of a model without corrections no row has a doubt
                continue
            typer.echo(f"{title}:")
            for row in most[name]:
                typer.echo(f"  line {row['line']:<6} {row[name]:.4f}")


COMMANDS = (fit, predict, compare, explain)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in COMMANDS:
        app.command(epilog=CODES)(command)


# --- what goes in ----------------------------------------------------------------------------------------------------


def _methods(text: str) -> tuple[str, ...]:
    chosen = words(text)
    if unknown := [name for name in chosen or [""] if name not in METHODS]:
        raise typer.BadParameter(
            f"some of {', '.join(METHODS)}; got {text}{nearest(unknown[0], METHODS)}", param_hint="--methods"
        )
    return chosen


def _folds(problem: Problem, count: int, seed: int) -> Any:
    from quantprop import comparison

    if count > len(problem.raw):
        raise typer.BadParameter(f"must lie between 2 and the number of rows, {len(problem.raw)}; got {count}",
                                 param_hint="--folds")  # fmt: skip
    return comparison.folds(problem, count, seed)
