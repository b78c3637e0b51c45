"""The command compare. What takes long to import is imported where it is used."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from quantprop.cli.fit import terms_of_parameter
from quantprop.cli.options import (
    METHODS,
    SINGLE,
    Debug,
    Json,
    Kernels,
    Likelihoods,
    TableOptions,
    Varying,
    announce,
    announce_time,
    decimals,
    place,
    takes_table,
    words,
)
from quantprop.cli.screen import as_json, bars, plainly, prepared, put
from quantprop.runtime.names import nearest

if TYPE_CHECKING:
    from quantprop.tables import Problem, Roles

DEFAULT_FOLDS = 10


@takes_table
def compare(
    table: TableOptions,
    methods: Annotated[str, Option(help=f"Some of {', '.join(METHODS)}.")] = "qp,ep,vb,laplace",
    folds: Annotated[int | None, Option(min=2, help="Number of folds of the cross-validation.  [10]")] = None,
    origins: Annotated[
        int | None, Option(min=1, help="Number of rolling origins from which a series is predicted, by one method.")
    ] = None,
    horizon: Annotated[int, Option(min=1, help="Number of rows to predict from each of --origins.")] = 60,
    at: Annotated[
        str | None, Option(help="Times at which survival curves of --event are scored, with commas between them.")
    ] = None,
    likelihood: Likelihoods = None,
    kernel: Kernels = None,
    varying: Varying = None,
    out: Annotated[
        Path | None, place("The page to write, replaced if it exists.  [the first free of report.html, ...]")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare methods with each other and with simpler models by cross-validation; or several kernels or likelihoods,
    or a varying parameter with a constant one, by the first method, by leave-one-out log density. Writes a page about
    them. With --origins, compare forecasts of a series from rolling origins with a seasonal naive forecast and
    exponential smoothing. With --event and --at, compare models of a hazard with a Cox model by Brier scores and
    concordance.
    """
    chosen, kernels = _methods(methods), list(dict.fromkeys(kernel or [SINGLE]))
    likelihoods = list(dict.fromkeys(likelihood or [])) or [None]
    for option, value in (("--origins", origins), ("--at", at)):
        if value is not None and (out is not None or len(likelihoods) > 1):
            raise typer.BadParameter("takes one --likelihood, and prints scores without a page: omit --out",
                                     param_hint=option)  # fmt: skip
    if varying is not None and (origins is not None or at is not None):
        raise typer.BadParameter("is not supported with --origins or --at", param_hint="--varying")
    models = len(kernels) * len(likelihoods) * (1 if varying is None else 2)
    if folds is not None and at is None and (origins is not None or models > 1):
        why = "several are compared by leave-one-out densities of one fit each, and --origins has windows"
        raise typer.BadParameter(f"is for one kernel and one likelihood: {why}", param_hint="--folds")
    with plainly(debug), prepared():
        if at is not None:
            return _survive(table, kernel or [], chosen[0], folds or DEFAULT_FOLDS, decimals(at, "--at"), json)
        if origins is not None:
            return _backtest(table, likelihoods[0], kernel or [], chosen[0], (origins, horizon), json)
        others = (Path(f"report-{i}.html") for i in itertools.count(2))
        free = (place for place in itertools.chain([Path("report.html")], others) if not place.exists())
        page = next(free) if out is None else out  # a page is replaced only on request
        if models > 1:
            _compare_models(table, likelihoods, kernels, terms_of_parameter(varying), chosen[0], page, json)
        else:
            _compare_methods(table, likelihoods[0], kernels[0], chosen, folds or DEFAULT_FOLDS, page, json)


def _compare_methods(
    table: TableOptions, likelihood: str | None, kernel: str, methods: Sequence[str], folds: int, page: Path, json: bool
) -> None:
    from quantprop import comparison, report

    problem = table.problem(likelihood, kernel)
    announce_time(len(problem.raw))
    if folds > len(problem.raw):
        raise typer.BadParameter(f"must lie between 2 and the number of rows, {len(problem.raw)}; got {folds}",
                                 param_hint="--folds")  # fmt: skip
    with bars() as progress:
        found = comparison.compare(problem, methods, comparison.folds(problem, folds, table.seed), progress)
    record = {"likelihood": problem.target.likelihood, "conclusion": report.conclusion(found),
              "methods": report.records(found), "baselines": report.records(found, found.baselines)}  # fmt: skip
    title = f"{table.target}: {', '.join(map(report.called, methods))} compared"
    code = _methods_code(table, problem, f"{methods}, comparison.folds(problem, {folds}, {table.seed})")
    study = report.Study("Comparison", "", found, code)
    _publish(table, record, report.lines(found), page, title, study, json)


def _compare_models(
    table: TableOptions, likelihoods: Sequence[str | None], kernels: list[str], varying: dict[str, str], method: str,
    page: Path, json: bool,
) -> None:  # fmt: skip
    from quantprop import comparison, report

    rows, roles = table.read()
    problem_of = table.problems(rows, roles, kernels, varying)
    first = problem_of(likelihoods[0], kernels[0])
    announce(first, likelihoods[0])
    announce_time(len(first.raw))
    made = comparison.candidates(problem_of, likelihoods, kernels)
    with bars() as progress:
        found = comparison.choose(made, method, progress)
    record = {"conclusion": report.concluded(found), "models": report.choice_records(found), "warnings": found.warnings}
    title = f"{table.target}: {len(made)} models compared"
    about = f"{table.target}: {first.target.why}. {len(first.raw)} rows, learned by {report.called(method)}."
    code = _models_code(table, roles, likelihoods, kernels, varying, method)
    study = report.ChoiceStudy("Comparison", about, found, code)
    _publish(table, record, report.choice_lines(found), page, title, study, json)


def _backtest(
    table: TableOptions, likelihood: str | None, kernels: list[str], method: str, windows: tuple[int, int], json: bool
) -> None:
    """Print scores of forecasts; seasons are chosen on the rows before the first origin."""
    from quantprop import comparison

    rows, roles = table.read()
    problem_of = table.problems(rows, roles, kernels or [SINGLE])
    first = problem_of(likelihood, kernels[0] if kernels else SINGLE)
    announce(first, likelihood)
    division = comparison.origins(first, *windows)
    past = first.table.only(sorted(division.splits[0][0].tolist()))
    found = table.seasons(past, roles, likelihood, ())
    formulas = (
        {"series": found.formula} if found and not kernels else {kernel: kernel for kernel in kernels or [SINGLE]}
    )
    problems = {name: problem_of(likelihood, formula) for name, formula in formulas.items()}
    with bars() as progress:
        scores = comparison.backtest(problems, division, found.periods if found else {}, method, progress)
    put(scores, None, json)


def _survive(table: TableOptions, kernels: list[str], method: str, folds: int, at: list[float], json: bool) -> None:
    """Print scores of survival curves; times are split into ten periods."""
    from quantprop import comparison

    rows, roles = table.read()
    if roles.event is None:
        raise typer.BadParameter("scores survival curves: pass --event as well", param_hint="--at")
    found = comparison.survival_scores(rows, table.target, roles.event, at, observed=roles.observed, kernels=kernels,
                                       folds=folds, method=method, seed=table.seed)  # fmt: skip
    put(found, None, json)


def _publish(
    table: TableOptions, record: dict[str, Any], lines: Iterable[str], page: Path, title: str, study: Any, json: bool
) -> None:
    """Print the scores, then write the page: scores remain if it cannot be written."""
    from quantprop import report

    typer.echo(as_json({"page": str(page), "target": table.target, **record}) if json else "\n".join(lines))
    report.write(page, title, f"Data: {table.source}.", [study])
    if not json:
        typer.echo(f"wrote {page}")


def _methods(text: str) -> tuple[str, ...]:
    chosen = words(text)
    if unknown := [name for name in chosen or [""] if name not in METHODS]:
        raise typer.BadParameter(
            f"some of {', '.join(METHODS)}; got {text}{nearest(unknown[0], METHODS)}", param_hint="--methods"
        )
    return chosen


def _models_code(
    table: TableOptions, roles: Roles, likelihoods: Sequence[str | None], kernels: list[str], varying: dict[str, str],
    method: str,
) -> str:  # fmt: skip
    more = f", varying={varying!r}" if varying else ""
    return "\n".join([
        "from quantprop import comparison, tables",
        "",
        f"roles = tables.{roles!r}",
        f"table = {_table_code(table, roles, kernels)}",
        f"made = comparison.candidates(lambda *which: tables.problem(table, {table.target!r}, *which, roles{more}),",
        f"                             {likelihoods!r}, {kernels!r})",
        f"found = comparison.choose(made, {method!r})",
        "for model in found.standings:",
        "    print(model.name, model.total, model.less(found.best))",
    ])  # fmt: skip


def _methods_code(table: TableOptions, problem: Problem, rest: str) -> str:
    roles = problem.roles
    how = [repr(table.target), repr(problem.target.likelihood), repr(problem.kernel)]
    how += [f"tables.{roles!r}"] if roles != type(roles)() else []
    how += [f"dates={table.dates!r}"] if table.dates != "number" else []
    return "\n".join([
        "from quantprop import comparison, tables",
        "",
        f"table = {_table_code(table, roles, [problem.kernel])}",
        f"problem = tables.problem(table, {', '.join(how)})",
        f"found = comparison.compare(problem, {rest})",
        "for result in found.all:",
        "    print(result.method, result.scores)",
    ])  # fmt: skip


def _table_code(table: TableOptions, roles: Roles, kernels: list[str]) -> str:
    code = f"tables.read({table.data!r}{f', {table.decimal!r}' if table.decimal != '.' else ''})"
    code += f".without({table.ignore!r})" if table.ignore else ""
    if table.drop_missing:
        code = f"tables.complete({code}, {table.target!r}, {kernels!r}, tables.{roles!r}).table"
    return code + (f".sample({table.sample}, {table.seed})" if table.sample else "")
