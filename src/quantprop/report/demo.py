"""The demonstration: a table by the default of `quantprop fit`, counts by four methods, and a page about both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quantprop import comparison, datasets, report, tables
from quantprop.comparison.compare import Report

LEAD = (
    "Gaussian-process models of two bundled data sets, with hyperparameters learned from the same rows, scored on "
    "held-out rows. First a table by the default of quantprop fit, and the effects of its columns; then "
    "counts by Quantile Propagation (QP), expectation propagation (EP), variational Bayes (VB) and Laplace's method."
)
CODE = """from quantprop import comparison
from quantprop.report import demo

problem = demo.problem(demo.{0})
found = comparison.compare(problem, {1.methods!r}, comparison.folds(problem, {1.folds}))
for result in found.all:
    print(result.method, result.scores)"""


@dataclass(frozen=True)
class Part:
    """A bundled data set and how it is modelled.

    Attributes:
        name: of the data set.
        title: of its section.
        about: what is to be seen.
        target: the name of y, whose values are called by the words of `labels`, if there are any.
        likelihood: by name.
        kernel: by name.
        methods: what is compared.
        folds: of the cross-validation.
    """

    name: str
    title: str
    about: str
    target: str
    likelihood: str
    kernel: str
    methods: tuple[str, ...]
    labels: Mapping[float, str] = field(default_factory=dict)
    folds: int = 5


GLASS = Part(
    "glass", "Glass: is a splinter from a window?",
    "214 splinters of glass, their refractive index (RI) and their content of eight elements (German 1987). Here EP "
    "learns a stack of several models, from straight lines to curves and surfaces, weighted by how well each predicts "
    "left-out rows. In five splits of these rows into five folds, of which the first is shown, its negative "
    "log-likelihood (NTLL) was lower than gradient boosting's and a linear model's each time.",
    "window", "probit", "auto", ("ep",), {-1.0: "yes", 1.0: "no"},
)  # fmt: skip
MINING = Part(
    "mining", "Coal mining: counts",
    "Explosions in British coal mines that killed ten or more, by year from 1851 to 1962 (Jarrett 1979). Four methods "
    "learn the same model.",
    "disasters", "poisson", "isotropic", ("qp", "ep", "vb", "laplace"), folds=10,
)  # fmt: skip


def problem(part: Part) -> tables.Problem:
    data = datasets.load(part.name)
    columns: dict[str, Any] = dict(zip(data.feature_names, data.X.T, strict=True))
    y = [part.labels.get(value, value) for value in data.y.tolist()]
    table = tables.from_columns({**columns, part.target: y}, f"bundled {part.name}")
    return tables.problem(table, part.target, part.likelihood, part.kernel)


def main(out: Path, progress: Report) -> list[report.Study]:
    """Compare the methods on each part and write the page."""
    studies = [_study(name, part, progress) for name, part in (("GLASS", GLASS), ("MINING", MINING))]
    report.write(out, "quantprop: a demonstration", LEAD, studies)
    return studies


def _study(name: str, part: Part, progress: Report) -> report.Study:
    posed = problem(part)
    named = lambda method, *count: progress(f"{part.name}, {method}", *count)  # noqa: E731
    division = comparison.folds(posed, part.folds)
    if part.kernel == "auto":  # another number of rows, such as all of them, would compile every member again
        words = f"{division.words}, of which the first gives the model shown"
        division = replace(division, shown=division.splits[0][0], words=words)
    found = comparison.compare(posed, part.methods, division, named, threads=len(part.methods))
    return report.Study(part.title, part.about, found, CODE.format(name, part))
