"""The demonstration: four methods on bundled data, classes and counts, in a table each and in one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quantprop import comparison, datasets, report, tables
from quantprop.comparison.compare import Report

METHODS = ("qp", "ep", "vb", "laplace")
LEAD = (
    "Gaussian-process models fitted by Quantile Propagation (QP), expectation propagation (EP), variational Bayes (VB) "
    "and Laplace's method to the same rows of the same data, each with its own learned hyperparameters."
)
CODE = """from quantprop import comparison, tables
from quantprop.report import demo

problem = tables.problem(demo.bundled({0.name!r}), "y", {0.likelihood!r})
division = comparison.{0.division}(problem, {0.parts})
found = comparison.compare(problem, {methods!r}, division)
for result in found.all:
    print(result.method, result.scores)"""


@dataclass(frozen=True)
class Part:
    """A bundled data set, its likelihood, and how it is divided: by a function of `comparison` and its number."""

    name: str
    title: str
    likelihood: str
    division: str
    parts: int


# Compiling takes longest. One split of ionosphere needs one shape; all folds of mining, and the whole, share one.
PARTS = (
    Part("ionosphere", "Ionosphere: two classes", "probit", "held_out", 10),
    Part("mining", "Coal mining: counts", "poisson", "folds", 5),
)


def bundled(name: str) -> tables.Table:
    """A bundled data set as a table with the target y."""
    data = datasets.load(name)
    columns = dict(zip(data.feature_names, data.X.T, strict=True))
    return tables.from_columns({**columns, "y": data.y}, f"bundled {name}")


def main(out: Path, progress: Report) -> list[report.Study]:
    """Compare the methods on each part and write the page."""
    studies = [_study(part, progress) for part in PARTS]
    report.write(out, "quantprop: a demonstration", LEAD, studies)
    return studies


def _study(part: Part, progress: Report) -> report.Study:
    problem = tables.problem(bundled(part.name), "y", part.likelihood)
    division = getattr(comparison, part.division)(problem, part.parts)
    named = lambda method, *count: progress(f"{part.name}, {method}", *count)  # noqa: E731
    found = comparison.compare(problem, METHODS, division, named, threads=len(METHODS))
    about = datasets.load(part.name).description
    return report.Study(part.title, about, found, CODE.format(part, methods=METHODS))
