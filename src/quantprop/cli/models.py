"""Commands about one table: fit, compare, explain. What takes long to import is imported where it is used."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantprop.cli.forecasts import predict
from quantprop.cli.options import (
    METHODS,
    OBJECTIVES,
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
    Likelihood,
    Log,
    Order,
    Sample,
    Trials,
    Upper,
    Weights,
    check_place,
    one_of,
    words,
)
from quantprop.cli.screen import CODES, as_json, bars, evaluations, kept_programs, note, plainly

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
    restarts: Annotated[int, typer.Option(min=0, help="Further starts of learning, at random.")] = 0,
    sample: Sample = None,
    seed: Annotated[int, typer.Option(min=0, help="Of --sample and --restarts.")] = 0,
    ignore: Ignore = None,
    drop_missing: Drop = False,
    decimal: Decimal = ".",
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
    with plainly(debug), kept_programs():
        check_place(out)
        problem = given.read()
        settings = {"objective": objective, "n_restarts_optimizer": restarts, "random_state": seed}
        if series and inducing is not None:
            raise typer.BadParameter("--series and --inducing are two ways to hold a process: give one of them")
        if series:
            settings["process"] = "markov"
        if inducing is not None:
            from quantprop import Inducing

            settings["process"] = Inducing(inducing, seed=seed)
        with evaluations(f"learning by {method} from {len(problem.raw)} rows"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the status below says it once, and without the names of a library's parts
            model = _learned(problem, method, settings)
        model.save(out)
        typer.echo(as_json({"model": str(out), **_about(model)}) if json else "\n".join(_told(model)))
        if not json:
            typer.echo(f"wrote {out}")
        if not all(fitted.converged for fitted in model.fits):
            note("warning: not converged; the status above says what to try")


def _learned(problem: Problem, method: str, settings: dict[str, Any]) -> TableModel:
    try:
        return problem.fit(method, **settings)
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
    likelihood: Likelihood = None,
    order: Order = None,
    exposure: Exposure = None,
    trials: Trials = None,
    weights: Weights = None,
    kernel: Kernel = "isotropic",
    dates: Dates = "number",
    sample: Sample = None,
    ignore: Ignore = None,
    drop_missing: Drop = False,
    decimal: Decimal = ".",
    out: Annotated[Path, typer.Option(help="The page to write; an old one is replaced.")] = Path("report.html"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare methods with each other and with simpler models by cross-validation, and write a page about them."""
    chosen, roles = _methods(methods), {"exposure": exposure, "trials": trials, "weights": weights}
    given = Given(
        data, target, likelihood, kernel, roles, order, False, dates, ignore, drop_missing, decimal, sample, seed
    )
    with plainly(debug), kept_programs():
        from quantprop import comparison, report

        check_place(out)
        problem = given.read()
        with bars() as progress:
            found = comparison.compare(problem, chosen, _folds(problem, folds, seed), progress)
        code = _code(given, problem, f"{chosen}, comparison.folds(problem, {folds}, {seed})")
        title = f"{target}: {', '.join(map(report.called, chosen))} compared"
        report.write(out, title, f"Learned from {problem.table.source}.", [report.Study("Comparison", "", found, code)])
        if json:
            typer.echo(as_json({"page": str(out), "target": target, "likelihood": problem.target.likelihood,
                                "conclusion": report.conclusion(found),
                                "methods": report.records(found),
                                "baselines": report.records(found, found.baselines)}))  # fmt: skip
            return
        typer.echo("\n".join([*report.lines(found), f"wrote {out}"]))


def explain(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    rows: Annotated[int, typer.Option(min=0, help="How many rows to name.")] = 5,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say how a fit ended, what was learned, which features count, and which rows surprise and move it most."""
    with plainly(debug):
        from quantprop import tables
        from quantprop.comparison import insight

        learned = tables.load(model)
        named = {"surprise": insight.surprise(learned), "influence": insight.influence(learned)}
        most = {
            name: [{"line": learned.lines[i], name: float(values[i])} for i in insight.greatest(values, rows)]
            for name, values in named.items()
        }
        if json:
            typer.echo(as_json({**_about(learned), **most}))
            return
        typer.echo("\n".join(_told(learned)))
        for name, title in (
            ("surprise", "most surprising rows, −log p(y | other rows)"),
            ("influence", "most influential rows, how far each moves f at its place, in nats"),
        ):
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
    if not chosen or set(chosen) - set(METHODS):
        raise typer.BadParameter(f"some of {', '.join(METHODS)}; got {text}", param_hint="--methods")
    return chosen


def _folds(problem: Problem, count: int, seed: int) -> Any:
    from quantprop import comparison

    if count > len(problem.raw):
        raise typer.BadParameter(f"must lie between 2 and the number of rows, {len(problem.raw)}; got {count}",
                                 param_hint="--folds")  # fmt: skip
    return comparison.folds(problem, count, seed)


# --- what comes out --------------------------------------------------------------------------------------------------


def _about(model: TableModel) -> dict[str, Any]:
    """A model for machines."""
    from quantprop.comparison import insight

    return {
        "target": model.target,
        "labels": model.labels,
        "likelihood": model.fits[0].solution.model.likelihood.name,
        "rows": len(model.lines),
        "features": model.encoding.features,
        "converged": all(fitted.converged for fitted in model.fits),
        "log_evidence": float(sum(fitted.solution.log_evidence for fitted in model.fits)),
        "loo": float(-insight.surprise(model).mean()),
        "models": [
            {
                "learning": str(fitted.status),
                "inference": str(fitted.solution.status),
                "hyperparameters": insight.hyperparameters(model, i),
            }
            for i, fitted in enumerate(model.fits)
        ],
    }


def _told(model: TableModel) -> list[str]:
    """A model for people."""
    from quantprop.comparison import insight

    about = _about(model)
    lines = [
        f"{model.target} from {len(model.encoding.features)} features of {about['rows']} rows, {about['likelihood']} "
        "likelihood" + (f", labels {', '.join(model.labels)}" if model.labels else ""),
        f"log evidence {about['log_evidence']:.4f}, leave-one-out {about['loo']:.4f} per row",
    ]
    for i, part in enumerate(about["models"]):
        if len(about["models"]) > 1:
            lines.append(f"{model.labels[i]} against the rest:")
        lines += [f"learning {part['learning']}", f"inference {part['inference']}"]
        ranked = insight.relevance(model, i)
        shown = {k: v for k, v in part["hyperparameters"].items() if not (ranked and "lengthscale of " in k)}
        lines += [f"  {name:<28} {value:.6g}" for name, value in shown.items()]
        if ranked:
            lines.append("features from the one that counts most (lengthscale, of standardised columns):")
            lines += [f"  {one.feature:<28} {one.lengthscale:.6g}" for one in ranked]
    return lines


def _code(given: Given, problem: Problem, rest: str) -> str:
    """Python lines that repeat a comparison."""
    more = (f".without({given.ignore!r})" if given.ignore else "") + (".complete()" if given.drop_missing else "")
    more += f".sample({given.sample}, {given.seed})" if given.sample else ""
    how = [repr(given.target), repr(problem.target.likelihood), repr(given.kernel)]
    how += [f"tables.{problem.roles!r}"] if problem.roles != type(problem.roles)() else []
    how += [f"dates={given.dates!r}"] if given.dates != "number" else []
    return "\n".join([
        "from quantprop import comparison, tables",
        "",
        f"table = tables.read({given.data!r}{f', {given.decimal!r}' if given.decimal != '.' else ''}){more}",
        f"problem = tables.problem(table, {', '.join(how)})",
        f"found = comparison.compare(problem, {rest})",
        "for one in found.all:",
        "    print(one.method, one.scores)",
    ])  # fmt: skip
