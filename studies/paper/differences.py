"""Each method's NTLL minus EP's, by the corrected resampled t-test, from the stored rows of docs/results.

    python -m studies.paper.differences

writes docs/results/*/differences.md, and the tables of docs/background/paper.md between its markers.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

from quantprop.experiments.documents import Document, Section, markdown
from quantprop.experiments.published import method_name
from quantprop.experiments.rows import Row
from quantprop.experiments.summary import MethodSummary, summarise
from quantprop.experiments.tables import less_ep
from studies.shared.pages import DOCS, between, table

RESULTS = {"clean": "clean", "paper": "paper", "two-cores": "paper"}  # folder and variant
ABOUT = (
    "Standard errors and p-values are those of Nadeau and Bengio's (2003) corrected resampled t-test: divisions of one "
    "data set overlap and are not independent. p-values are of one data set each, and not corrected for how many there "
    "are."
)


def read(path: Path, variant: str) -> list[Row]:
    """The rows of a file that studies/paper/compact_rows.py made; what it leaves out is empty."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        return [_row(line, variant) for line in csv.DictReader(file)]


def _row(line: dict[str, str], variant: str) -> Row:
    return Row(
        dataset=line["dataset"], variant=variant, kernel="isotropic", objective="evidence",
        split="year" if line["dataset"] == "mining" else "fold", round=int(line["round"]), fold=int(line["fold"]),
        method=line["method"], seed=0, te=float(line["te"]) if line["te"] else None,
        ntll=float(line["ntll"]) if line["ntll"] else None, hyperparameters={}, evidence=None, sweeps=None,
        evaluations=None, status="", converged=line["converged"] == "1", seconds=0.0, versions={}, forecasts={},
        test={},
    )  # fmt: skip


def side_by_side(summaries: list[MethodSummary]) -> str:
    """A line a data set: difference to EP ± standard error, and p, of each method."""
    methods = list(dict.fromkeys(summary.method for summary in summaries if summary.less_ep))
    head = ["data"]
    for method in methods:
        head += [f"{method_name(method)} − EP", "p"]
    lines = []
    for dataset in dict.fromkeys(summary.dataset for summary in summaries):
        of = {summary.method: summary for summary in summaries if summary.dataset == dataset}
        sheets = [less_ep([of[method]]).lines[0] for method in methods]
        lines.append([dataset, *(cell for line in sheets for cell in (f"{line[2]} ± {line[3]}", line[5]))])
    return table(head, lines)


def main() -> int:
    page = DOCS / "background/paper.md"
    text = page.read_text(encoding="utf-8")
    for folder, variant in RESULTS.items():
        summaries = summarise(read(DOCS / "results" / folder / "rows.csv.gz", variant))
        section = Section(f"Variant {variant}", ABOUT, (less_ep(summaries),))
        made = "Made by studies/paper/differences.py from the rows.csv.gz beside this page."
        report = Document("Differences to EP", "NTLL in 1e-3 nats a test point.", (section,), (made,))
        (DOCS / "results" / folder / "differences.md").write_text(markdown(report), encoding="utf-8")
        if folder != "two-cores":
            text = between(text, f"differences-{folder}", side_by_side(summaries))
    page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
