"""The command explain, and models as JSON and as text. What takes long to import is imported where it is used."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quantprop.cli.options import Debug, Json, check_place
from quantprop.cli.screen import as_json, plainly, prepared

if TYPE_CHECKING:
    from quantprop.comparison.insight import Trust
    from quantprop.runtime.listing import Listing
    from quantprop.tables import TableModel

RANKINGS = {
    "surprise": "most surprising rows, −log p(y | other rows)",
    "influence": "most influential rows, effect of each on f at its inputs, in nats (in a stack, on the model of "
    "largest weight)",
    "doubt": "rows with the least Gaussian f, largest error of a probability about f",
}

COMPONENTS = {"components": "of components", "columns": "of all components of a column"}
MAX_COMPONENTS = 10  # shown as text, from the largest


def explain(
    model: Annotated[Path, Argument(help="A model file written by fit.")],
    rows: Annotated[int, Option(min=0, help="Number of rows to list.")] = 5,
    levels: Annotated[str | None, Option(metavar="COLUMN", help="Print only the effects of its levels.")] = None,
    contrast: Annotated[
        str | None, Option(metavar="COLUMN:LEVEL", help="Print only the expected y at its levels against this one.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="Page of curves and surfaces to write; with --levels or --contrast, a CSV file."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show why a fit stopped, what it learned, how far to trust it, which features matter, and which rows are
    surprising or influential.
    """
    if levels is not None and contrast is not None:
        raise typer.BadParameter("use one of --levels and --contrast")
    if out is not None:
        check_place(out)
    with plainly(debug), prepared():
        import numpy as np

        from quantprop import tables
        from quantprop.comparison import insight

        learned = tables.load(model)
        if levels is not None or contrast is not None:
            _put(_listing(learned, levels, contrast), out, json)
            return
        trusts = [insight.trust(fitted.solution) for fitted in learned.fits]
        doubt = np.max([trust.doubt for trust in trusts], axis=0)  # the largest among the models of classes
        values = {"surprise": insight.surprise(learned), "influence": insight.influence(learned), "doubt": doubt}
        ranked = {
            name: [{"line": learned.lines[i], name: float(each[i])} for i in insight.greatest(each, rows)]
            for name, each in values.items()
        }
        if out is not None:
            _write_page(learned, model, out)
        if json:
            trusted = [_trust_record(trust) for trust in trusts]
            typer.echo(as_json({"page": out and str(out), **record(learned), **ranked, "trust": trusted}))
            return
        typer.echo("\n".join([*described(learned), *(f"trust: {trust}" for trust in trusts)]))
        for name, title in RANKINGS.items():
            if ranked[name]:  # no row has a doubt where the model has no correction
                typer.echo(f"{title}:")
            for row in ranked[name]:
                typer.echo(f"  line {row['line']:<6} {row[name]:.4f}")
        if out is not None:
            typer.echo(f"wrote {out}")


def _write_page(learned: TableModel, model: Path, out: Path) -> None:
    from quantprop import report

    likelihood = report.likelihood_called(learned.fits[0].solution.model.likelihood.name)
    about = f"{len(learned.lines)} rows, {len(learned.encoding.features)} features; {likelihood} likelihood."
    reading = report.Reading("What was learned", about, learned)
    report.write(out, f"{learned.target}: a model explained", f"The model in {model}.", [reading])


def _listing(model: TableModel, levels: str | None, contrast: str | None) -> Listing:
    """Effects of the levels of a column, or its contrasts, as `column:level` or `column` names them."""
    if levels is not None:
        return model.levels(levels)
    column, _, against = str(contrast).rpartition(":")
    return model.contrasts(column, against) if column else model.contrasts(against)


def _put(found: Listing, out: Path | None, json: bool) -> None:
    """Print a table, or write it as CSV."""
    if out is not None:
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([found.columns, *zip(*found.columns.values(), strict=True)])
    typer.echo(as_json(found.rows) if json else repr(found) if out is None else f"wrote {out}")


def _trust_record(trust: Trust) -> dict[str, Any]:
    import numpy as np

    if trust.refused:
        return {"refused": trust.refused, "modes": trust.modes}
    return {
        "evidence_shift": trust.shift,
        "doubt_median": float(np.median(trust.doubt)),
        "doubt_max": float(np.max(trust.doubt)),
        "modes": trust.modes,
    }


def record(model: TableModel) -> dict[str, Any]:
    """A model as JSON."""
    from quantprop.comparison import insight

    return {
        "target": model.target,
        "labels": model.labels,
        "likelihood": model.fits[0].solution.model.likelihood.name,
        "rows": len(model.lines),
        "features": model.encoding.features,
        "converged": model.converged,
        "log_evidence": float(sum(fitted.solution.log_evidence for fitted in model.fits)),
        "loo": float(-insight.surprise(model).mean()),
        "models": [_part(model, i) for i in range(len(model.fits))],
    }


def _part(model: TableModel, which: int) -> dict[str, Any]:
    from quantprop.comparison import insight

    fitted = model.fits[which]
    part = {
        "learning": str(fitted.status),
        "inference": str(fitted.solution.status),
        "hyperparameters": insight.hyperparameters(model, which),
    }
    if model.integrated:
        part["integration"] = str(model.integrated[which].status)
        part["integrated_log_evidence"] = model.integrated[which].log_evidence
        part["intervals"] = {name: asdict(one) for name, one in insight.intervals(model, which).items()}
    if model.stacks:
        stack = model.stacks[which]
        part["heaviest"] = stack.heaviest.name
        part["members"] = {
            one.name: {"weight": one.weight, "score": one.score, "learned": one.learned} for one in stack.members
        }
        part["left_out"] = stack.left_out
    if insight.has_terms(model):
        terms = insight.term_summary(model, which)
        part["kernel"], part["shares"] = terms.kernel, terms.shares
        part["fixed_effects"] = {name: effect._asdict() for name, effect in terms.fixed.items()}
    if (additive := insight.additive(model, which)) is not None:
        found, features = additive.solution.sobol(), model.encoding.features
        for name, shares in (("components", found.shares), ("columns", found.totals)):
            part[name] = {insight.component_named(key, features): share._asdict() for key, share in shares.items()}
    return part


def described(model: TableModel) -> Iterator[str]:
    """A model as lines of text."""
    from quantprop.comparison import insight

    known = record(model)
    yield (
        f"{model.target} from {len(model.encoding.features)} features of {known['rows']} rows, {known['likelihood']} "
        "likelihood" + (f", labels {', '.join(model.labels)}" if model.labels else "")
    )
    evidence = "" if model.stacks else f"log evidence {known['log_evidence']:.4f}, "
    yield f"{evidence}leave-one-out {known['loo']:.4f} per row"
    for i, part in enumerate(known["models"]):
        if len(known["models"]) > 1:
            yield f"{model.labels[i]} against the rest:"
        if "members" in part:
            yield from _members(part)
        yield from (f"learning {part['learning']}", f"inference {part['inference']}")
        ranked = insight.relevance(model, i)
        ranks = bool(ranked) or "components" in part
        shown = {k: v for k, v in part["hyperparameters"].items() if not (ranks and "lengthscale of " in k)}
        yield from _named((name, f"{value:.6g}") for name, value in shown.items())
        if "intervals" in part:
            yield from (f"integration {part['integration']}", "posteriors (median, 95 % interval; prior):")
            yield from _named(
                (name, f"{one['median']:.4g}, {one['lower']:.4g} to {one['upper']:.4g}; {one['prior']}")
                for name, one in part["intervals"].items()
            )
        if "kernel" in part:
            yield from _terms(part)
        of = " of the additive model" if "members" in part else ""
        for name, words in COMPONENTS.items() if "components" in part else ():
            yield f"fraction of the variance of f{of} with independent columns, {words} (95 % interval):"
            each = list(part[name].items())[:MAX_COMPONENTS]
            yield from _named((key, "{share:.1%}, {lower:.1%} to {upper:.1%}".format(**one)) for key, one in each)
        if ranked:
            yield "features by relevance (lengthscale of the standardised column):"
            yield from _named((name, f"{length:.6g}") for name, length in ranked.items())


def _members(part: dict[str, Any]) -> Iterator[str]:
    """The models of a stack, from the heaviest, and which of them the next lines are about."""
    yield "stacked models (weight; leave-one-out log density per row):"
    ranked = sorted(part["members"].items(), key=lambda pair: -pair[1]["weight"])
    yield from _named((name, f"{one['weight']:.2f}; {one['score']:.4f}") for name, one in ranked)
    yield from _named((name, f"left out, {reason}") for name, reason in part["left_out"].items())
    yield f"the model of largest weight, {part['heaviest']}:"


def _terms(part: dict[str, Any]) -> Iterator[str]:
    """The terms of a model, how much of f each explains, and linear effects."""
    yield from ("the learned kernel, as a formula:", f"  {part['kernel']}")
    yield "fraction of the variance of f that each term explains:"
    ranked = sorted(part["shares"].items(), key=lambda pair: -pair[1])
    yield from _named((name, f"{100.0 * share:.1f} %") for name, share in ranked)
    if part["fixed_effects"]:
        yield "linear effects (standard error, 95 % interval):"
        yield from _named(
            (name, f"{e['estimate']:.4g} ({e['error']:.2g}), {e['lower']:.4g} to {e['upper']:.4g}")
            for name, e in part["fixed_effects"].items()
        )


def _named(values: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"  {name:<28} {value}" for name, value in values)
