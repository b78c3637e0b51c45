"""What commands about a table say: a model for machines and for people, and the Python lines that repeat a command."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantprop.cli.options import Given
    from quantprop.comparison.insight import Trust
    from quantprop.tables import Problem, Roles, TableModel


def about(model: TableModel) -> dict[str, Any]:
    """A model for machines."""
    from quantprop.comparison import effects, insight

    terms = [effects.summary(model, i) for i in range(len(model.fits))] if effects.of_terms(model) else []
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
                **(
                    {
                        "integration": str(model.integrated[i].status),
                        "integrated_log_evidence": model.integrated[i].log_evidence,
                        "intervals": {name: asdict(one) for name, one in insight.intervals(model, i).items()},
                    }
                    if model.integrated
                    else {}
                ),
                **(
                    {
                        "kernel": terms[i].kernel,
                        "shares": terms[i].shares,
                        "fixed_effects": {name: effect._asdict() for name, effect in terms[i].fixed.items()},
                    }
                    if terms
                    else {}
                ),
            }
            for i, fitted in enumerate(model.fits)
        ],
    }


def trust_record(trust: Trust) -> dict[str, Any]:
    """How far a model is to be trusted, for machines."""
    if trust.refused:
        return {"refused": trust.refused, "modes": trust.modes}
    rows = sorted(trust.doubt.tolist())
    return {
        "evidence_shift": trust.shift,
        "doubt_median": 0.5 * (rows[(len(rows) - 1) // 2] + rows[len(rows) // 2]),
        "doubt_max": rows[-1],
        "modes": trust.modes,
    }


def told(model: TableModel) -> list[str]:
    """A model for people."""
    from quantprop.comparison import insight

    known = about(model)
    lines = [
        f"{model.target} from {len(model.encoding.features)} features of {known['rows']} rows, {known['likelihood']} "
        "likelihood" + (f", labels {', '.join(model.labels)}" if model.labels else ""),
        f"log evidence {known['log_evidence']:.4f}, leave-one-out {known['loo']:.4f} per row",
    ]
    for i, part in enumerate(known["models"]):
        if len(known["models"]) > 1:
            lines.append(f"{model.labels[i]} against the rest:")
        lines += [f"learning {part['learning']}", f"inference {part['inference']}"]
        ranked = insight.relevance(model, i)
        shown = {k: v for k, v in part["hyperparameters"].items() if not (ranked and "lengthscale of " in k)}
        lines += [f"  {name:<28} {value:.6g}" for name, value in shown.items()]
        if "intervals" in part:
            lines += [f"integration {part['integration']}", "posteriors (median, 95 % interval; prior):"]
            lines += [
                f"  {name:<28} {one['median']:.4g}, {one['lower']:.4g} to {one['upper']:.4g}; {one['prior']}"
                for name, one in part["intervals"].items()
            ]
        if "kernel" in part:
            lines += _terms_told(part)
        if ranked:
            lines.append("features from the one that counts most (lengthscale, of standardised columns):")
            lines += [f"  {one.feature:<28} {one.lengthscale:.6g}" for one in ranked]
    return lines


def _terms_told(part: dict[str, Any]) -> list[str]:
    """The terms of a model, how much of f each explains, and linear effects."""
    lines = ["the learned model, in the language of terms:", f"  {part['kernel']}"]
    lines += ["share of the variance of f that each term explains:"]
    ranked = sorted(part["shares"].items(), key=lambda pair: -pair[1])
    lines += [f"  {name:<28} {100.0 * share:.1f} %" for name, share in ranked]
    if part["fixed_effects"]:
        lines.append("linear effects (standard error, 95 % interval):")
        lines += [
            f"  {name:<28} {e['estimate']:.4g} ({e['error']:.2g}), {e['lower']:.4g} to {e['upper']:.4g}"
            for name, e in part["fixed_effects"].items()
        ]
    return lines


def choice_code(given: Given, roles: Roles, likelihoods: list[str | None], kernels: list[str], method: str) -> str:
    """Python lines that repeat a choice."""
    return "\n".join([
        "from quantprop import comparison, tables",
        "",
        f"roles = tables.{roles!r}",
        f"table = {_table_code(given, roles, kernels)}",
        f"made = comparison.candidates(lambda *which: tables.problem(table, {given.target!r}, *which, roles),",
        f"                             {likelihoods!r}, {kernels!r})",
        f"found = comparison.choose(made, {method!r})",
        "for one in found.standings:",
        "    print(one.name, one.total, one.less(found.best))",
    ])  # fmt: skip


def _table_code(given: Given, roles: Roles, kernels: list[str]) -> str:
    table = f"tables.read({given.data!r}{f', {given.decimal!r}' if given.decimal != '.' else ''})"
    table += f".without({given.ignore!r})" if given.ignore else ""
    if given.drop_missing:
        table = f"tables.complete({table}, {given.target!r}, {kernels!r}, tables.{roles!r}).table"
    return table + (f".sample({given.sample}, {given.seed})" if given.sample else "")


def comparison_code(given: Given, problem: Problem, rest: str) -> str:
    """Python lines that repeat a comparison."""
    how = [repr(given.target), repr(problem.target.likelihood), repr(given.kernel)]
    how += [f"tables.{problem.roles!r}"] if problem.roles != type(problem.roles)() else []
    how += [f"dates={given.dates!r}"] if given.dates != "number" else []
    return "\n".join([
        "from quantprop import comparison, tables",
        "",
        f"table = {_table_code(given, problem.roles, [given.kernel])}",
        f"problem = tables.problem(table, {', '.join(how)})",
        f"found = comparison.compare(problem, {rest})",
        "for one in found.all:",
        "    print(one.method, one.scores)",
    ])  # fmt: skip
