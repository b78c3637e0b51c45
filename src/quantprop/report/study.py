"""A comparison in words and tables: the sections of a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantprop.comparison import Comparison, Evaluated
from quantprop.insight import greatest, hyperparameters, influence, surprise
from quantprop.report.figures import pictures
from quantprop.report.html import Markup, element, joined, table
from quantprop.report.names import SCORES, called
from quantprop.report.svg import inline

MEANINGS = (
    "Smaller is better in every column. NTLL is the negative log-likelihood per row, Brier half the squared distance "
    "of probabilities from what came, calibration the mean gap between stated probabilities and shares that came. "
)
ROWS = 8  # of the most surprising and the most influential
CELLS = 10  # columns of a table that are shown beside them


@dataclass(frozen=True)
class Study:
    """A comparison with a title, a sentence on its data, and the Python lines that repeat it."""

    title: str
    about: str
    comparison: Comparison
    code: str


def section(study: Study, key: str) -> Markup:
    """All of a study; `key` sets its ids apart."""
    found = study.comparison
    figures = [
        element("figure", inline(picture.figure, picture.alt, f"{key}-{i}"), element("figcaption", picture.caption))
        for i, picture in enumerate(pictures(found))
    ]
    return element(
        "section",
        element("h2", study.title), element("p", study.about), element("p", _fitted(found)),
        element("h3", "Scores"), _scores(found), element("p", MEANINGS, _errors(found), class_="note"),
        element("h3", "Figures"), element("div", *figures, class_="figures"),
        element("h3", "What was learned, and how it ended"), _endings(found), _numbers(found),
        element("h3", f"The rows that {called(found.first.method)} expected least"), _rows(found),
        element("h3", "The same in Python"), element("pre", element("code", study.code)),
    )  # fmt: skip


def _fitted(found: Comparison) -> str:
    target, encoding = found.problem.target, found.problem.encoding
    fits = [fold for one in found.methods for fold in one.folds]
    failed = sum(not fold.converged for fold in fits)
    left = f" Left out, since they never change: {', '.join(found.problem.left_out)}." if found.problem.left_out else ""
    end = "All of them converged." if not failed else f"{failed} of them did not converge: see below."
    return (
        f"{target.name}: {target.why}; {target.likelihood} likelihood. {len(found.problem.raw)} rows, "
        f"{len(encoding.features)} feature{'s' * (len(encoding.features) > 1)}, standardised; squared-exponential "
        f"kernel ({found.problem.kernel}). {found.division.words}: {len(fits)} fits are scored. {end}{left}"
    )


def _scores(found: Comparison) -> Markup:
    names = list(found.first.scores)
    header = ["method", *(SCORES[name] for name in names), "seconds a fit"]
    rows = [[called(one.method), *map(_pair, one.scores.values()), f"{one.seconds:.2f}"] for one in found.methods]
    return table(header, rows, "Scores of rows not learned from")


def _pair(score: tuple[float, float]) -> str:
    value, error = score
    return f"{value:.4f}" + ("" if np.isnan(error) else f" ± {error:.4f}")


def _errors(found: Comparison) -> str:
    if len(found.first.folds) > 1:
        return "± is the standard error over folds; folds share rows, so it is a rough one. Seconds: the median fit."
    return "± is the standard error over the rows held out. Seconds: one fit, compilation included."


def _endings(found: Comparison) -> Markup:
    rows = [[called(one.method), _share(one), *_status(one)] for one in found.methods]
    header = ("method", "fits converged", "log evidence", "learning", "inference")
    return table(header, rows, "How learning and inference ended")


def _share(one: Evaluated) -> str:
    return f"{sum(fold.converged for fold in one.folds)} of {len(one.folds)}"


def _status(one: Evaluated) -> tuple[str, str, str]:
    fits = one.model.fits
    worst = next((fitted for fitted in fits if not fitted.converged), fits[0])
    evidence = sum(fitted.solution.log_evidence for fitted in fits)
    return f"{evidence:.3f}", str(worst.status), str(worst.solution.status)


def _numbers(found: Comparison) -> Markup:
    """Learned hyperparameters, one row each, one column a method; a block a class where there are several."""
    models = [one.model for one in found.methods]
    rows = []
    for which in range(len(models[0].fits)):
        of = f"{models[0].labels[which]}: " if len(models[0].fits) > 1 else ""
        learned = [hyperparameters(model, which) for model in models]
        rows += [[of + name, *(f"{numbers[name]:.4g}" for numbers in learned)] for name in learned[0]]
    return table(("hyperparameter", *(called(one.method) for one in found.methods)), rows, "Learned hyperparameters")


def _rows(found: Comparison) -> Markup:
    model, shown = found.first.model, found.problem.table.only(found.division.shown.tolist())
    unexpected, moved = surprise(model), influence(model)
    names = [model.target, *(name for name in shown.names if name != model.target)][: CELLS + 1]
    columns = {name: shown.column(name) for name in names}
    rows = [
        (shown.where(i), f"{unexpected[i]:.3f}", f"{moved[i]:.3f}", *(columns[name][i] for name in names))
        for i in greatest(unexpected, ROWS)
    ]
    header = ("row", "surprise", "influence", *names)
    caption = "Leave-one-out: surprise is −log p(y | other rows), influence how far the row moves f, in nats"
    return table(header, rows, caption)


# --- the same for machines and terminals -----------------------------------------------------------------------------


def records(found: Comparison) -> list[dict[str, Any]]:
    """One record a method: scores, standard errors, time and how many fits converged."""
    return [
        {
            "method": one.method,
            **{name: value for name, (value, _) in one.scores.items()},
            **{f"{name}_se": error for name, (_, error) in one.scores.items() if not np.isnan(error)},
            "seconds": one.seconds,
            "converged": sum(fold.converged for fold in one.folds),
            "folds": len(one.folds),
        }
        for one in found.methods
    ]


def lines(found: Comparison) -> Iterator[str]:
    """The table of scores as text."""
    names = list(found.first.scores)
    cells = [["method", *(SCORES[name] for name in names), "s a fit", "converged"]]
    for one in found.methods:
        cells.append([one.method, *map(_pair, one.scores.values()), f"{one.seconds:.2f}", _share(one)])
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def summary(studies: list[Study]) -> Iterator[str]:
    """The scores of several studies as text."""
    for study in studies:
        yield from (f"{study.title} ({study.comparison.division.words})", *lines(study.comparison), "")


def joined_sections(studies: list[Study]) -> Markup:
    """The sections of all studies."""
    return joined(section(study, f"s{i}") for i, study in enumerate(studies))
