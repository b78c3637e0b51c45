"""Tables of docs/background/objectives.md from rows of `studies.objectives.run` and `studies.integration.run`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quantprop.experiments.protocol import TEST_TO_TRAIN
from quantprop.experiments.summary import Difference, difference
from studies.shared.more_sets import EVERY
from studies.shared.pages import DOCS, between, holm, table
from studies.shared.parts import Row

PAGE = DOCS / "background/objectives.md"

NAMES = {
    "integrated": "integrated", "loo": "leave-one-out density", "loo-brier": "leave-one-out Brier",
    "corrected": "corrected evidence", "corrected forecasts": "evidence, corrected forecasts",
    "vb at ep": "EP's evidence, VB's posterior",
}  # fmt: skip
FEWEST = 5  # divisions for a difference

Key = tuple[str, int, int]  # set, round, fold
Scores = dict[str, dict[Key, Row]]  # rule, then division


def scores_of(rows: list[Row]) -> Scores:
    """What was scored, by rule and division; times in seconds of the CPU, those of a fit by the evidence included."""
    found: Scores = {"evidence": {}, "integrated": {}, **{rule: {} for rule in NAMES}}
    for row in rows:
        if row["what"] == "scores" and "judged" in row:
            point, mixed = row["judged"]
            found["evidence"][_key(row)] = point | {"cpu_s": row["fit_s"]}
            found["integrated"][_key(row)] = mixed | {"cpu_s": row["fit_s"] + row["integrate_s"]}
    for row in rows:
        if row["what"] == "objectives":
            found[row["rule"]][_key(row)] = row
    return found


def _key(row: Row) -> Key:
    return row["set"], row["round"], row["fold"]


def differences(scores: Scores, rule: str, score: str) -> Iterator[tuple[str, Difference]]:
    """Of each set with enough divisions: a rule's score less that of the evidence, in pairs."""
    for name in EVERY:
        both = [key for key in scores[rule] if key in scores["evidence"] and key[0] == name]
        if len(both) >= FEWEST:
            own, base = (np.array([scores[which][key][score] for key in both]) for which in (rule, "evidence"))
            yield name, difference(own, base, TEST_TO_TRAIN["year" if name == "mining" else "fold"])


def difference_table(scores: Scores, score: str, unit: float) -> str:
    """Rows are sets, columns rules: mean difference ± standard error, with the number of divisions, and a mark where it
    is significant among all of its column.
    """
    every = {rule: dict(differences(scores, rule, score)) for rule in NAMES}
    sets = [name for name in EVERY if any(name in found for found in every.values())]
    significant, lines = {(rule, name) for rule in every for name in beyond_chance(every[rule])}, []
    for name in sets:
        base = [row[score] for key, row in scores["evidence"].items() if key[0] == name]
        cells = [
            _cell(every[rule][name], unit, (rule, name) in significant) if name in every[rule] else "–"
            for rule in NAMES
        ]
        lines.append([name, f"{np.mean(base):.4f}", *cells])
    return table(("set", "evidence", *NAMES.values()), lines)


def beyond_chance(found: dict[str, Difference]) -> list[str]:
    """The sets on which a rule differs significantly, Holm's correction for all of them made."""
    known = {name: less.p_value for name, less in found.items() if np.isfinite(less.p_value)}
    return [name for name, p in zip(known, holm(list(known.values())), strict=True) if p < 0.05]


def _cell(less: Difference, unit: float, significant: bool) -> str:
    text = f"{unit * less.mean:+.1f} ± {unit * less.standard_error:.1f}{' *' * significant} ({less.divisions})"
    return text.replace("-", "−")


def summary_table(scores: Scores) -> str:
    """A line for each rule: on how many sets it is better or worse, by more than a standard error, and its time."""
    lines = []
    for rule, name in NAMES.items():
        found = dict(differences(scores, rule, "ntll"))
        if not found:
            continue
        better = sum(less.mean < 0 for less in found.values())
        clearly = [sum(sign * less.mean > less.standard_error for less in found.values()) for sign in (-1, 1)]
        shared = [key for key in scores[rule] if key in scores["evidence"]]
        ratio = np.median([scores[rule][key]["cpu_s"] / scores["evidence"][key]["cpu_s"] for key in shared])
        mean = 1e3 * np.mean([less.mean for less in found.values()])
        lines.append([name, f"{better} of {len(found)}", *(str(n) for n in clearly), f"{mean:+.1f}".replace("-", "−"),
                      f"{ratio:.1f}"])  # fmt: skip
    head = ("learned by", "better than the evidence", "by more than one s.e.", "worse by more than one s.e.",
            "mean difference of NTLL, 1e−3", "CPU time, in fits")  # fmt: skip
    return table(head, lines)


def page(rows: list[Row]) -> None:
    """Renew the page's tables, and print them."""
    scores, text = scores_of(rows), PAGE.read_text(encoding="utf-8")
    tables = {
        "summary": summary_table(scores), "ntll": difference_table(scores, "ntll", 1e3),
        "gap": difference_table(scores, "gap", 1e2),
    }  # fmt: skip
    for name, made in tables.items():
        print(f"{name}\n\n{made}")
        text = between(text, name, made)
    PAGE.write_text(text, encoding="utf-8")
