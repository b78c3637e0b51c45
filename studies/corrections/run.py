"""Errors before and after correction, and their rank correlations: tables of docs/background/corrections.md.

    python -m studies.corrections.run rows --jobs 12   # EP and QP on every stored truth; half an hour on one core
    python -m studies.corrections.run page             # tables into docs/background/corrections.md

`rows` writes studies/corrections/corrections.csv, a row for each method and case, and keeps what it finds there:
remove the file to have all by one version. Names of data sets after `rows` restrict it to them. A job is one process on
one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from quantprop import datasets, infer
from quantprop.experiments.pool import ENVIRONMENT, in_processes
from quantprop.reference.truths import TOL, Truth, read
from studies.accuracy.run import METHODS, TRUTHS, Row, read_rows, write_rows
from studies.shared.pages import DOCS, between, table

FILE = Path(__file__).with_name("corrections.csv")
PAGE = DOCS / "background/corrections.md"
SETTINGS = {"learned": "learned", "times-10": "× 10", "times-100": "× 100"}
CLASSES = [name for name in datasets.names() if name != "mining"]


Case = tuple[Truth, str]


def key(row: Row) -> tuple[str, ...]:
    """What a row is of."""
    return row["dataset"], row["setting"], row["method"]


def about(case: Case) -> Row:
    """The same of a case."""
    truth, method = case
    return {"dataset": truth.dataset, "setting": truth.setting, "method": method}


def extend(names: Sequence[str], jobs: int) -> None:
    """Add a row for every case that the file lacks, writing it after each; large data sets first, since they last."""
    rows = [row for row in read_rows(FILE) if all(row.values())]
    have = {key(row) for row in rows}
    truths = [truth for truth in read(TRUTHS) if not names or truth.dataset in names]
    cases = [(truth, method) for truth in truths for method in ("EP", "QP")]
    left = sorted((case for case in cases if key(about(case)) not in have), key=_size, reverse=True)
    for (_, case), row in in_processes(_numbered, list(enumerate(left)), jobs, ENVIRONMENT | {"JAX_PLATFORMS": "cpu"}):
        rows.append(about(case) | row)
        write_rows(FILE, sorted(rows, key=key))
        print(", ".join(rows[-1].values()), flush=True)


def _size(case: Case) -> int:
    return len(case[0].posterior_mean.value)


def _numbered(case: tuple[int, Case]) -> Row:
    return result(case[1])


def result(case: Case) -> Row:
    """What a method and its correction say of a case, beside the truth."""
    truth, method = case
    data, spread = truth.data, truth.posterior_variance
    model = data.model(truth.variance, truth.lengthscale)
    solution = infer(model, data.x, data.y, METHODS[method], tol=TOL, max_sweeps=1000)
    better = solution.corrected()
    forecasts = [np.exp(one.predict_y(data.x_new).log_prob(data.y_new)) for one in (solution, better)]

    def pair(name: str, before: Any, after: Any) -> dict[str, float]:
        return {name: float(before), f"{name}_corrected": float(after)}

    marginals = (solution.marginals, better.marginals)
    off = [(q.mean - truth.posterior_mean.value) / np.sqrt(spread.value) for q in marginals]
    missed = [np.max(np.abs(p - truth.probability.value)) for p in forecasts]
    found = {
        **pair("evidence", solution.log_evidence - truth.evidence, better.log_evidence - truth.evidence),
        "evidence_se": truth.evidence_error,
        **pair("variance", *(np.median(np.abs(q.variance / spread.value - 1.0)) for q in marginals)),
        "variance_se": float(np.median(spread.standard_error / spread.value)),
        **pair("mean", *(np.sqrt(np.mean(o**2)) for o in off)),
        **pair("probability", *missed),
        "probability_se": float(truth.probability.standard_error.max()),
        "doubt_median": float(np.median(better.doubt)),
        "doubt_max": float(better.doubt.max()),
        "said_variance": float(np.median(np.abs(1.0 - solution.marginals.variance / better.marginals.variance))),
        "said_probability": float(np.max(np.abs(forecasts[1] - forecasts[0]))),
        "other_modes": solution.modes().others,
    }
    return {name: f"{number:.6g}" for name, number in found.items()}


# --- the page --------------------------------------------------------------------------------------------------------


def number(value: float, style: str) -> str:
    return format(value, style).replace("-", "−")


def sizes(rows: list[Row], method: str) -> list[tuple[Row, dict[str, float]]]:
    """The rows of a method, with their numbers."""
    order = {truth.dataset: i for i, truth in enumerate(read(TRUTHS))}
    chosen = sorted((r for r in rows if r["method"] == method), key=lambda r: (order[r["dataset"]], r["setting"]))
    words = ("dataset", "setting", "method")
    return [(row, {name: float(value) for name, value in row.items() if name not in words}) for row in chosen]


def case_table(rows: list[Row], method: str) -> str:
    """Errors before and after, case by case."""
    head = ("data", "setting", "evidence", "corrected", "s.e.", "variance", "corrected", "s.e.", "mean", "corrected",
            "p(y)", "corrected", "other modes")  # fmt: skip
    lines = []
    for row, n in sizes(rows, method):
        lines.append([
            row["dataset"], SETTINGS[row["setting"]],
            number(n["evidence"], "+.4f"), number(n["evidence_corrected"], "+.4f"), f"{n['evidence_se']:.3f}",
            f"{n['variance']:.4f}", f"{n['variance_corrected']:.4f}", f"{n['variance_se']:.4f}",
            f"{n['mean']:.4f}", f"{n['mean_corrected']:.4f}",
            f"{n['probability']:.4f}", f"{n['probability_corrected']:.4f}",
            f"{100 * n['other_modes']:.2g} %" if n["other_modes"] > 1e-3 else "–",
        ])  # fmt: skip
    return table(head, lines)


def summary_table(rows: list[Row]) -> str:
    """The nine classification sets at their learned hyperparameters, in medians and counts."""
    lines = []
    for method in ("EP", "QP"):
        nine = [n for row, n in sizes(rows, method) if row["dataset"] in CLASSES and row["setting"] == "learned"]
        if not nine:
            continue
        evidence = [abs(n["evidence_corrected"]) / abs(n["evidence"]) for n in nine]
        worse = max(abs(n["evidence_corrected"]) - abs(n["evidence"]) for _, n in sizes(rows, method))
        kept = [n["variance_corrected"] <= max(0.5 * n["variance"], 2.0 * n["variance_se"]) for n in nine]
        closer = [n["mean_corrected"] < n["mean"] for n in nine]
        lines.append([
            method, f"{np.median(evidence):.3f}", number(worse, "+.3f"), f"{sum(kept)} of {len(nine)}",
            f"{np.median([n['variance'] for n in nine]):.3f}",
            f"{np.median([n['variance_corrected'] for n in nine]):.3f}", f"{sum(closer)} of {len(nine)}",
            f"{max(n['probability'] for n in nine):.4f}", f"{max(n['probability_corrected'] for n in nine):.4f}",
        ])  # fmt: skip
    head = ("method", "evidence error left, median", "worse by at most, all cases", "variances at most half as wrong",
            "variance error, median", "corrected", "means closer", "largest p error", "corrected")  # fmt: skip
    return table(head, lines)


def ranked(said: list[float], true: list[float]) -> float:
    """Spearman's rank correlation."""
    found: Any = spearmanr(said, true)
    return float(found.statistic)


def trust_table(rows: list[Row]) -> str:
    """Rank correlations of what is said with what is true, over the cases without other modes and over all."""
    pairs = (
        ("evidence, nats", "shift of the log evidence", "error of the log evidence",
         lambda n: abs(n["evidence_corrected"] - n["evidence"]), lambda n: abs(n["evidence"])),
        ("variances", "median change of variances", "median error of variances",
         lambda n: n["said_variance"], lambda n: n["variance"]),
        ("probabilities", "largest change of p(y_new)", "largest error of p(y_new)",
         lambda n: n["said_probability"], lambda n: n["probability"]),
        ("doubt", "median doubt of rows", "median error of variances",
         lambda n: n["doubt_median"], lambda n: n["variance"]),
    )  # fmt: skip
    lines = []
    for method in ("EP", "QP"):
        every = [n for _, n in sizes(rows, method)]
        one = [n for n in every if n["other_modes"] <= 1e-3]
        for name, says, means, said, true in pairs if every else ():
            found = [ranked([said(n) for n in some], [true(n) for n in some]) for some in (one, every)]
            lines.append([method, name, says, means, *(f"{r:.2f}" for r in found), f"{len(one)}, {len(every)}"])
    head = ("method", "number", "what it says", "what it is compared with", "one mode", "all cases", "cases")
    return table(head, lines)


def page() -> None:
    """Renew the page's tables."""
    rows, text = read_rows(FILE), PAGE.read_text(encoding="utf-8")
    for name, made in {
        "summary": summary_table(rows), "ep": case_table(rows, "EP"), "qp": case_table(rows, "QP"),
        "trust": trust_table(rows),
    }.items():  # fmt: skip
        text = between(text, name, made)
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rows", "page"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if given.what == "rows":
        extend(given.names, given.jobs)
    else:
        page()


if __name__ == "__main__":
    main()
