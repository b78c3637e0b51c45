"""Commands about one table: fit, predict, compare, explain. What takes long to import is imported where it is used."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantprop.cli.screen import CODES, as_json, bars, note, plainly, waiting

if TYPE_CHECKING:
    import numpy as np

    from quantprop.tables import Problem, Table, TableModel

GUESS = "guessed from the target: two values or words: probit; whole numbers: poisson; else gaussian"
CHOICES = "probit, logit, heaviside, gaussian, student-t, double-exponential, poisson, negative-binomial, gamma, beta"
METHODS = ("qp", "ep", "vb", "laplace", "power-ep")
CHUNK = 4096  # rows predicted at a time

Data = Annotated[str, typer.Argument(help="CSV (comma, semicolon or tab) or Parquet; - is standard input.")]
Goal = Annotated[str, typer.Option("--target", help="The column to predict.")]
Likelihood = Annotated[str | None, typer.Option(help=f"One of {CHOICES}.  [{GUESS}]")]
Kernel = Annotated[str, typer.Option(help="One lengthscale for all features (isotropic), or one each (ard).")]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Drop = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


def fit(
    data: Data,
    target: Goal,
    likelihood: Likelihood = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "qp",
    kernel: Kernel = "isotropic",
    objective: Annotated[str, typer.Option(help="What learning maximises: evidence or loo.")] = "evidence",
    restarts: Annotated[int, typer.Option(min=0, help="Further starts of learning, at random.")] = 0,
    ignore: Ignore = None,
    drop_missing: Drop = False,
    out: Annotated[Path, typer.Option(help="The model's file; an old one is replaced.")] = Path("model.safetensors"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Learn a model of one column from the others, and write it to a file."""
    with plainly(debug):
        check_place(out)
        problem = _problem(data, target, likelihood, kernel, ignore, drop_missing)
        settings = {"objective": objective, "n_restarts_optimizer": restarts, "random_state": 0}
        with waiting(f"learning by {method} from {len(problem.raw)} rows"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the status below says it once, and without the names of a library's parts
            model = problem.fit(method, **settings)
        model.save(out)
        typer.echo(as_json({"model": str(out), **_about(model)}) if json else "\n".join(_told(model)))
        if not json:
            typer.echo(f"wrote {out}")
        if not all(fitted.converged for fitted in model.fits):
            note("warning: not converged; the status above says what to try")


def predict(
    model: Annotated[Path, typer.Argument(help="A file that fit wrote.")],
    data: Data,
    out: Annotated[Path | None, typer.Option(help="CSV file to write.  [standard output]")] = None,
    quantiles: Annotated[str, typer.Option(help="Of counts and real y, with commas between them.")] = "0.05,0.5,0.95",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict the target for the rows of a table: classes with probabilities, or mean, deviation and quantiles."""
    levels = _levels(quantiles)
    with plainly(debug):
        from quantprop import tables

        if out is not None:
            check_place(out)
        learned, table = tables.load(model), tables.read(data)
        used = {column.name for column in learned.encoding.columns} | {learned.target}
        if extra := [name for name in table.names if name not in used]:
            note(f"note: not used by the model: {', '.join(extra)}")
        x = learned.encoding.matrix(table)
        with bars() if len(x) > CHUNK else waiting(f"predicting {len(x)} rows") as report:
            columns = _in_chunks(learned, x, levels, report)
        _print_forecast(columns, out, json)


def compare(
    data: Data,
    target: Goal,
    methods: Annotated[str, typer.Option(help=f"Some of {', '.join(METHODS)}.")] = "qp,ep,vb,laplace",
    folds: Annotated[int, typer.Option(min=2, help="Every row is scored by a model of the other folds.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of the division into folds.")] = 0,
    likelihood: Likelihood = None,
    kernel: Kernel = "isotropic",
    ignore: Ignore = None,
    drop_missing: Drop = False,
    out: Annotated[Path, typer.Option(help="The page to write; an old one is replaced.")] = Path("report.html"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare methods with each other and with simpler models by cross-validation, and write a page about them."""
    chosen = _methods(methods)
    with plainly(debug):
        from quantprop import comparison, report

        check_place(out)
        problem = _problem(data, target, likelihood, kernel, ignore, drop_missing)
        with bars() as progress:
            found = comparison.compare(problem, chosen, comparison.folds(problem, folds, seed), progress)
        code = _code(
            data, target, problem, ignore, drop_missing, f"{chosen}, comparison.folds(problem, {folds}, {seed})"
        )
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
        from quantprop import insight, tables

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


def _problem(
    data: str, target: str, likelihood: str | None, kernel: str, ignore: list[str] | None, drop_missing: bool
) -> Problem:
    from quantprop import tables

    table = _without(tables.read(data), ignore, target)
    if drop_missing:
        complete = table.complete()
        note(f"note: {len(table.rows) - len(complete.rows)} of {len(table.rows)} rows have missing values: dropped")
        if not complete.rows:
            raise tables.TableError(f"{table.source} has no row without missing values")
        table = complete
    problem = tables.problem(table, target, likelihood, kernel)
    how = "as given" if likelihood else "guessed; --likelihood chooses another"
    note(f"note: {target}: {problem.target.why}: {problem.target.likelihood} likelihood ({how})")
    for name in problem.left_out:
        note(f"note: column {name} never changes: left out")
    return problem


def _without(table: Table, ignore: list[str] | None, target: str) -> Table:
    for name in ignore or ():
        table.column(name)  # refuses a name that is not there
        if name == target:
            raise typer.BadParameter("the target cannot be ignored", param_hint="--ignore")
    return table.without(ignore or ())


def check_place(out: Path) -> None:
    """Say before the work, not after it, that a file cannot be written."""
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise typer.BadParameter(f"{out} is a folder, or in one that does not exist", param_hint="--out")


def _levels(text: str) -> tuple[float, ...]:
    try:
        levels = tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint="--quantiles") from None
    if not all(0 < level < 1 for level in levels):
        raise typer.BadParameter(f"must lie between 0 and 1; got {text}", param_hint="--quantiles")
    return levels


def _methods(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words or set(words) - set(METHODS):
        raise typer.BadParameter(f"some of {', '.join(METHODS)}; got {text}", param_hint="--methods")
    return words


# --- what comes out --------------------------------------------------------------------------------------------------


def _about(model: TableModel) -> dict[str, Any]:
    """A model for machines."""
    from quantprop import insight

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
    from quantprop import insight

    about = _about(model)
    lines = [
        f"{model.target} from {len(model.encoding.features)} features of {about['rows']} rows, {about['likelihood']} "
        "likelihood" + (f", labels {', '.join(model.labels)}" if model.labels else ""),
        f"log evidence {about['log_evidence']:.4f}, leave-one-out {about['loo']:.4f} a row",
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


def _in_chunks(model: TableModel, x: np.ndarray, levels: tuple[float, ...], report: Any) -> dict[str, np.ndarray]:
    import numpy as np

    parts = []
    for start in range(0, len(x), CHUNK):
        parts.append(model.forecast_at(x[start : start + CHUNK], levels))
        if report is not None:
            report("rows", min(start + CHUNK, len(x)), len(x))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _print_forecast(columns: dict[str, np.ndarray], out: Path | None, json: bool) -> None:
    from quantprop.storage.files import replace_file

    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([list(columns), *rows])
    if out is not None:
        replace_file(str(out.resolve()), file.getvalue().encode("utf-8"))
    if json:
        typer.echo(as_json([dict(zip(columns, row, strict=True)) for row in rows]))
    elif out is not None:
        typer.echo(f"wrote {out}")
    else:
        typer.echo(file.getvalue(), nl=False)


def _code(data: str, target: str, problem: Problem, ignore: list[str] | None, drop: bool, rest: str) -> str:
    """Python lines that repeat a comparison."""
    more = (f".without({ignore!r})" if ignore else "") + (".complete()" if drop else "")
    return "\n".join([
        "from quantprop import comparison, tables",
        "",
        f"table = tables.read({data!r}){more}",
        f"problem = tables.problem(table, {target!r}, {problem.target.likelihood!r}, {problem.kernel!r})",
        f"found = comparison.compare(problem, {rest})",
        "for one in found.all:",
        "    print(one.method, one.scores)",
    ])  # fmt: skip
