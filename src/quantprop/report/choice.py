"""A choice between kernels and likelihoods, as a section of a page and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quantprop.comparison import Choice
from quantprop.report.names import aligned, inference_ended, learning_ended
from quantprop.report.reading import learned
from quantprop.runtime.markup import Markup, element, table

MEANING = (
    "LOO is the log density of every row given all the others, summed over rows (larger is better), from the cavities "
    "of one fit. Differences are from the best, paired row by row, with their standard errors; a difference of less "
    "than about two standard errors is not significant. A row is unreliable if its cavity is improper, or if it is "
    "approximate and the log density is uncertain a posteriori (variance above 0.4, as for WAIC); under Gaussian noise "
    "cavities are exact."
)
HEADER = ("model", "LOO", "standard error", "minus the best", "standard error", "unreliable rows", "converged")


@dataclass(frozen=True)
class ChoiceStudy:
    """A choice with a title, a sentence on its data, and the Python lines that repeat it."""

    title: str
    about: str
    choice: Choice
    code: str

    def section(self, key: str) -> Markup:
        """The section of a page; `key` makes its ids unique."""
        found = self.choice
        best = found.best
        return element(
            "section",
            element("h2", self.title), element("p", self.about),
            element("h3", "Conclusion"), element("p", concluded(found)),
            element("h3", "Leave-one-out log density"), table(HEADER, _cells(found), "From the best"),
            element("p", MEANING, class_="note"),
            *(element("p", f"{warning}.", class_="note") for warning in found.warnings),
            *learned(best.model, key),
            element("h3", "Why learning stopped"), _endings(found),
            element("h3", "The same in Python"), element("pre", element("code", self.code)),
        )  # fmt: skip


def concluded(found: Choice) -> str:
    """The conclusion: which differences from the best are significant."""
    worse, alike = [], []
    for one in found.standings[1:]:
        less = one.less(found.best)
        (worse if -less.value > 2.0 * less.error else alike).append(one.name)
    parts = [f"{found.best.name} has the highest leave-one-out log density"]
    parts += [f"it is clearly better than {'; '.join(worse)}"] * bool(worse)
    parts += [f"its difference from {'; '.join(alike)} is not significant"] * bool(alike)
    return ". ".join(part[0].upper() + part[1:] if i else part for i, part in enumerate(parts)) + "."


def _cells(found: Choice) -> list[list[str]]:
    rows = []
    for one, record in zip(found.standings, choice_records(found), strict=True):
        numbers = [f"{record[name]:.2f}" for name in ("loo", "loo_se", "less_best", "less_best_se")]
        numbers[2:] = ["", ""] if one is found.best else numbers[2:]
        rows.append([one.name, *numbers, str(record["unreliable_rows"]), "yes" if one.model.converged else "no"])
    return rows


def _endings(found: Choice) -> Markup:
    rows = [
        (one.name, learning_ended(fitted.status, one.model.encoding.features), inference_ended(fitted.solution.status))
        for one in found.standings
        for fitted in one.model.fits
    ]
    return table(("model", "learning", "inference"), rows, "Status of every fit")


def choice_records(found: Choice) -> list[dict[str, Any]]:
    """One record per candidate, for machines."""
    return [
        {
            "model": one.name, "loo": one.total.value, "loo_se": one.total.error,
            "less_best": one.less(found.best).value, "less_best_se": one.less(found.best).error,
            "unreliable_rows": int(one.unreliable.sum()),
            "converged": one.model.converged,
        }
        for one in found.standings
    ]  # fmt: skip


def choice_lines(found: Choice) -> Iterator[str]:
    """The table and the conclusion as lines of text."""
    yield from aligned([list(HEADER), *_cells(found)])
    yield from ("", concluded(found), *(f"warning: {warning}" for warning in found.warnings))
