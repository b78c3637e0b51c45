"""A comparison in words and tables: the sections of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantprop.comparison import ClassForecast, Comparison, Evaluated
from quantprop.comparison.boosting import described
from quantprop.estimators.insight import greatest, hyperparameters, influence, surprise, trust
from quantprop.report.figures import gallery, pictures
from quantprop.report.names import (
    REGRESSIONS,
    SCORES,
    aligned,
    called,
    conclusion,
    counted,
    inference_ended,
    kernel_called,
    learning_ended,
    likelihood_called,
)  # fmt: skip
from quantprop.report.reading import checked, learned
from quantprop.runtime.markup import Markup, element, table

MEANINGS = {
    "error": "the fraction of rows whose class is not the most probable one",
    "rmse": "the root mean squared error of the mean",
    "mae": "the mean absolute error of the mean",
    "ntll": "the negative log-likelihood per row",
    "brier": "half the squared distance of probabilities from the outcome",
}
CALIBRATIONS = {  # True for class probabilities
    True: "the mean gap between stated probabilities and observed frequencies",
    False: "the mean gap between the levels of quantiles and the fraction of y below them",
}
PERFECT = (
    "“If perfect” is the calibration error of a model with the true probabilities, on as many rows: on "
    "average, and at most in 95 % of cases. "
)
PAIRED = (
    "A positive difference favours {}. Differences are paired row by row, so their errors exclude what makes rows "
    "hard for all methods alike. "
)
MAX_ROWS_SHOWN = 8  # surprising rows on a page
MAX_COLUMNS_SHOWN = 10


@dataclass(frozen=True)
class Study:
    """A comparison with a title, a sentence on its data, and the Python lines that repeat it."""

    title: str
    about: str
    comparison: Comparison
    code: str

    def section(self, key: str) -> Markup:
        """The section of a page; `key` makes its ids unique."""
        found = self.comparison
        first, scores, less = called(found.first.method), _score_cells(found), _difference_cells(found)
        return element(
            "section",
            element("h2", self.title), element("p", self.about), element("p", _fitted(found)),
            element("h3", "Conclusion"), element("p", conclusion(found)),
            *learned(found.first.model, f"{key}-learned"),
            element("h3", "Figures"), gallery(pictures(found), key),
            element("h3", "Scores"), table(scores[0], scores[1:], "Scores of left-out rows, all folds together"),
            element("p", meanings(found), _baselines(found), class_="note"),
            table(less[0], less[1:], f"Difference of scores from {first}, on the same rows"),
            element("p", PAIRED.format(first), _errors(found), class_="note"),
            element("h3", "Time"), _times(found),
            *checked(found.first.model, key),
            element("h3", "Hyperparameters, and stopping reasons"), _endings(found), _trusted(found), _numbers(found),
            element("h3", f"The rows that {first} expected least"), _rows(found),
            element("h3", "The same in Python"), element("pre", element("code", self.code)),
        )  # fmt: skip


def _fitted(found: Comparison) -> str:
    target, encoding = found.problem.target, found.problem.encoding
    fits = [fold for one in found.all if one.model is not None for fold in one.folds]
    failed = sum(not fold.converged for fold in fits)
    left = "".join(f" Column {name} {why}: omitted." for name, why in found.problem.left_out.items())
    end = "All of them converged." if not failed else f"{failed} of them did not converge: see below."
    return (
        f"{target.name}: {target.why}; {likelihood_called(target.likelihood)} likelihood. "
        f"{counted(len(found.problem.raw), 'row')}, {counted(len(encoding.features), 'feature')}; "
        f"{kernel_called(found.problem.kernel)}. {found.division.words}: "
        f"{counted(len(fits), 'fit')} are scored. {end}{left}"
    )


def meanings(found: Comparison) -> str:
    known = {**MEANINGS, "calibration": CALIBRATIONS[isinstance(found.first.forecast, ClassForecast)]}
    said = ", ".join(f"{SCORES[name]} is {known[name]}" for name in found.first.scores)
    return f"Smaller is better in every column. {said[0].upper()}{said[1:]}. {PERFECT}"


def _score_cells(found: Comparison) -> list[list[str]]:
    header, *rows = _cells([(one.method, one.scores) for one in found.all])
    perfect = ("{:.4f}, up to {:.4f}".format(*one.perfect) for one in found.all)
    return [[*header, "if perfect"], *([*row, cell] for row, cell in zip(rows, perfect, strict=True))]


def _difference_cells(found: Comparison) -> list[list[str]]:
    less = [(one.method, one.less(found.first)) for one in found.all[1:]]
    pairs = [(method, {name: (each.value, each.error) for name, each in scores.items()}) for method, scores in less]
    return _cells(pairs, "+")


def _cells(scores: list[tuple[str, dict[str, tuple[float, float]]]], sign: str = "") -> list[list[str]]:
    methods, each = zip(*scores, strict=True)
    columns = [_pairs([values[name] for values in each], sign) for name in each[0]]
    rows = zip(map(called, methods), *columns, strict=True)
    return [["method", *(SCORES[name] for name in each[0])], *map(list, rows)]


def _times(found: Comparison) -> Markup:
    rows = [[called(one.method), f"{one.compiling:.2f}", f"{one.seconds:.2f}"] for one in found.all]
    header = ("method", "to compile, once", "per fit, median")
    return table(header, rows, "Seconds. Programs compiled for an earlier method are not compiled again")


def _pairs(scores: list[tuple[float, float]], sign: str = "") -> list[str]:
    """Numbers with their standard errors: two digits of the smallest of these, five of the largest number at most."""
    errors = [error for _, error in scores if np.isfinite(error) and error > 0]
    largest = max((abs(value) for value, _ in scores if np.isfinite(value) and value), default=1.0)
    whole = int(np.floor(np.log10(largest)))
    digits = min(1 - int(np.floor(np.log10(min(errors)))), 4 - whole) if errors else 3 - whole
    form = f"{sign}.{digits}f" if 0 <= digits <= 8 else f"{sign}.3g"
    return [format(v, form) + (f" ± {format(e, form.lstrip('+'))}" if np.isfinite(e) else "") for v, e in scores]


def _baselines(found: Comparison) -> str:
    likelihood, first = found.problem.target.likelihood, called(found.first.method)
    known = f", which is {REGRESSIONS[likelihood]}" if likelihood in REGRESSIONS else ""
    return (
        f"Two simpler models are scored as well, with the same likelihood, by {first}: the constant has the same f in "
        f"all rows, the linear model an f that is linear in the features{known}. Gradient boosting is scikit-learn's "
        f"histogram-based version with its default settings and {described(likelihood)}."
    )


def _errors(found: Comparison) -> str:
    if len(found.first.folds) > 1:
        return (
            "± is the standard error over folds, corrected for overlapping training sets (Nadeau and Bengio 2003); "
            "95 % levels are by Student's t."
        )
    return "± is the standard error over the rows held out; it does not include variation of the training rows."


def _endings(found: Comparison) -> Markup:
    rows = []
    for one in found.all:
        if one.model is None:
            continue
        fits = one.model.fits
        worst = next((fitted for fitted in fits if not fitted.converged), fits[0])
        evidence = sum(fitted.solution.log_evidence for fitted in fits)
        learning = learning_ended(worst.status, one.model.encoding.features)
        inference = inference_ended(worst.solution.status)
        rows.append([called(one.method), _share(one), f"{evidence:.3f}", learning, inference])
    header = ("method", "fits converged", "log evidence", "learning", "inference")
    return table(header, rows, "Why learning and inference stopped")


def _trusted(found: Comparison) -> Markup:
    model = found.first.model
    names = [f"{label}: " for label in model.labels] if len(model.fits) > 1 else [""]
    pairs = zip(names, model.fits, strict=True)
    said = (element("p", f"{name}{trust(fitted.solution)}.", class_="note") for name, fitted in pairs)
    return element("div", element("h3", f"How far to trust {called(found.first.method)}"), *said)


def _share(one: Evaluated) -> str:
    return "" if one.model is None else f"{sum(fold.converged for fold in one.folds)} of {len(one.folds)}"


def _numbers(found: Comparison) -> Markup:
    """Learned hyperparameters, one row each, one column per method; a block per class where there are several."""
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
    names = [model.target, *(name for name in shown.names if name != model.target)][: MAX_COLUMNS_SHOWN + 1]
    columns = {name: shown.column(name) for name in names}
    rows = [
        (shown.where(i), f"{unexpected[i]:.3f}", f"{moved[i]:.3f}", *(columns[name][i] for name in names))
        for i in greatest(unexpected, MAX_ROWS_SHOWN)
    ]
    header = ("row", "surprise", "influence", *names)
    caption = "Leave-one-out: surprise is −log p(y | other rows), influence the effect of the row on f, in nats"
    return table(header, rows, caption)


def records(found: Comparison, which: Sequence[Evaluated] = ()) -> list[dict[str, Any]]:
    """One record per method (or baseline, where these are given): scores, differences from the first method, standard
    errors, time, fits that converged.
    """
    return [
        {
            "method": one.method,
            **{name: value for name, (value, _) in one.scores.items()},
            **{f"{name}_se": error for name, (_, error) in one.scores.items() if not np.isnan(error)},
            **{f"{name}_less_first": less.value for name, less in one.less(found.first).items()},
            **{f"{name}_less_first_se": less.error for name, less in one.less(found.first).items()},
            "calibration_if_perfect": one.perfect[0],
            "calibration_if_perfect_95": one.perfect[1],
            "seconds": one.seconds,
            "seconds_to_compile": one.compiling,
            "converged": None if one.model is None else sum(fold.converged for fold in one.folds),
            "folds": len(one.folds),
        }
        for one in which or found.methods
    ]


def lines(found: Comparison) -> Iterator[str]:
    """Scores, how much they differ from the first method's, and the conclusion, as text."""
    header, *rows = _score_cells(found)
    yield from aligned([
        [*header, "compile, s", "per fit, s", "converged"],
        *([*cells, f"{one.compiling:.2f}", f"{one.seconds:.2f}", _share(one)]
          for one, cells in zip(found.all, rows, strict=True)),
    ])  # fmt: skip
    header, *rows = _difference_cells(found)
    yield from ("", *aligned([[f"minus {called(found.first.method)}", *header[1:]], *rows]), "")
    yield from (_errors(found), conclusion(found))


def summary(studies: list[Study]) -> Iterator[str]:
    for study in studies:
        yield from (f"{study.title} ({study.comparison.division.words})", *lines(study.comparison), "")
