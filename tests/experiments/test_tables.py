"""Tables from rows: every number against a plain computation by hand, and any name in every form."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from quantprop.experiments import published, tables
from quantprop.experiments.documents import Document, Section, Sheet, latex, markdown, page
from quantprop.experiments.published import Spread
from quantprop.experiments.rows import Row, appending, lines, read
from quantprop.experiments.summary import Fraction, compare, pairs

VERSIONS = {"quantprop": "0.1.0", "jax": "9.8.7", "machine": "abacus", "device": "beads"}
HOSTILE = '*[<b>&amp; "x"</b>] $a_1$ 50% {#} \\end{document} ~^ `c` |p| 名\nnext, line'


def row(dataset="crabs", method="ep", round=0, fold=0, te=0.1, ntll=0.2, **more) -> Row:
    """A row that is right in form; numbers that a test is about are given by it."""
    usual = {
        "variant": "paper", "kernel": "isotropic", "objective": "evidence", "split": "fold", "seed": 10 * round,
        "hyperparameters": {"variance": 1.0}, "evidence": -3.0, "sweeps": 4, "evaluations": 9,
        "status": "converged after 9 evaluations", "converged": True, "seconds": 1.5, "versions": VERSIONS,
        "forecasts": {}, "test": {"y": [1.0], "mean": [0.5], "variance": [2.0], "log_prob": [-0.4]},
    }  # fmt: skip
    if method == "qp":
        usual["test"] = usual["test"] | {"variance_at_ep": [1.5]}
    return Row(dataset, method=method, round=round, fold=fold, te=te, ntll=ntll, **{**usual, **more})


def failed(**more) -> Row:
    nothing = {"te": None, "ntll": None, "test": {}, "converged": False}
    return row(**{**nothing, "status": "failed: no usable point", **more})


def only(rows, **named):
    """The one summary with the named attributes."""
    found = [s for s in tables.summarise(rows) if all(getattr(s, name) == value for name, value in named.items())]
    assert len(found) == 1
    return found[0]


def write(folder, rows) -> dict[str, str]:
    with appending(folder) as append:
        append(lines(rows))
    return {path.suffix[1:]: path.read_text(encoding="utf-8") for path in tables.write(folder, read(folder))}


# --- what the paper prints -------------------------------------------------------------------------------------------


def test_the_published_table():
    assert len(published.TABLE_1) == 30
    assert published.entry("sonar", "vb") == published.Entry(
        "sonar", 208, 60, "vb", Spread(25.7, 3.9), Spread(693.1, 0.0), False
    )
    assert published.entry("mining", "qp").ntll == Spread(1606.5, 116.3)
    assert published.entry("ionosphere", "qp").te == Spread(7.9, 0.5)
    starred = [entry.dataset for entry in published.TABLE_1 if entry.asterisk]
    assert starred == ["cancer", "pima", "sonar", "glass", "wine1", "wine2", "wine3"]
    assert all(entry.method == "qp" for entry in published.TABLE_1 if entry.asterisk)
    # Sums of the printed columns, added up apart from the table.
    assert sum(e.ntll.mean for e in published.TABLE_1 if e.method == "ep") == pytest.approx(2854.3)
    assert sum(e.te.mean for e in published.TABLE_1 if e.method == "vb") == pytest.approx(249.1)
    assert published.entry("crabs", "laplace") is None
    assert published.entry("irises", "ep") is None


# --- summaries -------------------------------------------------------------------------------------------------------


def test_means_over_folds_then_over_rounds():
    scores = {(0, 0): (0.10, 0.5), (0, 1): (0.30, 0.7), (1, 0): (0.00, 0.1), (1, 1): (0.10, 0.3), (2, 0): (0.5, 0.9)}
    rows = [row(round=r, fold=f, te=te, ntll=ntll) for (r, f), (te, ntll) in scores.items()]
    summary = only(rows[::-1])
    assert summary.te.mean == pytest.approx(100 * (0.20 + 0.05 + 0.5) / 3)
    assert summary.te.sd == pytest.approx(100 * statistics.pstdev([0.20, 0.05, 0.5]))
    assert summary.ntll.mean == pytest.approx(1000 * (0.6 + 0.2 + 0.9) / 3)
    assert summary.ntll.sd == pytest.approx(1000 * statistics.pstdev([0.6, 0.2, 0.9]))
    assert (summary.rounds, summary.short_rounds) == (3, 1)
    assert summary.te_difference == pytest.approx((25.0 - 2.7) / 0.5)
    assert summary.ntll_difference == pytest.approx((1700 / 3 - 64.4) / 8.2)


def test_one_round_has_no_standard_deviation_and_a_printed_zero_no_difference():
    assert only([row(te=0.25)]).te == Spread(25.0, None)
    wine = only([row("wine2", te=0.0, ntll=0.0192)])
    assert wine.te_difference is None
    assert wine.ntll_difference == pytest.approx((19.2 - 18.0) / 1.2)
    assert only([row("irises")]).ntll_difference is None


def test_failed_rows_are_counted_and_nothing_stands_in_for_them():
    rows = [row(fold=0, te=0.1), failed(fold=1), row(round=1, fold=0, te=0.3), row(round=1, fold=1, te=0.5)]
    rows += [failed(round=2, fold=0), failed(round=2, fold=1), row(round=1, fold=2, te=0.4, converged=False)]
    summary = only(rows)
    assert summary.te.mean == pytest.approx(100 * (0.1 + 0.4) / 2)
    assert (summary.rounds, summary.short_rounds) == (2, 1)
    assert summary.failed == Fraction(3, 7)
    assert summary.converged == Fraction(3, 7)
    nothing = only([failed()])
    assert (nothing.te, nothing.ntll, nothing.rounds, nothing.ntll_difference) == (None, None, 0, None)


def test_an_infinite_log_likelihood_stays_infinite():
    summary = only([row(ntll=math.inf), row(round=1, ntll=0.5)])
    assert summary.ntll == Spread(math.inf, None)
    assert summary.te.sd == 0.0


def test_settings_splits_and_methods_stand_apart_in_the_papers_order():
    rows = [row("mining", split="event"), row("mining", split="year"), row(method="vb"), row(method="qp"), row()]
    rows += [row(variant="clean"), row(variant="code"), row(kernel="ard"), row(objective="loo"), row("a new set")]
    found = [(*s.setting, s.dataset, s.split, s.method) for s in tables.summarise(rows)]
    assert found == [
        ("paper", "isotropic", "evidence", "crabs", "fold", "ep"),
        ("paper", "isotropic", "evidence", "crabs", "fold", "qp"),
        ("paper", "isotropic", "evidence", "crabs", "fold", "vb"),
        ("paper", "isotropic", "evidence", "mining", "year", "ep"),
        ("paper", "isotropic", "evidence", "mining", "event", "ep"),
        ("paper", "isotropic", "evidence", "a new set", "fold", "ep"),
        ("paper", "isotropic", "loo", "crabs", "fold", "ep"),
        ("paper", "ard", "evidence", "crabs", "fold", "ep"),
        ("code", "isotropic", "evidence", "crabs", "fold", "ep"),
        ("clean", "isotropic", "evidence", "crabs", "fold", "ep"),
    ]


def test_forecasts_of_counts():
    both = [
        {"negative-binomial": {"te": 1.0, "ntll": 1.6}, "exact": {"te": 0.8, "ntll": 1.5}},
        {"negative-binomial": {"te": 1.4, "ntll": 1.8}, "exact": {"te": 0.9, "ntll": 1.1}},
    ]
    summary = only([row("mining", split="year", round=i, forecasts=both[i]) for i in (0, 1)])
    means = {name: tuple(score.mean for score in pair) for name, pair in summary.forecasts.items()}
    assert means == {"negative-binomial": pytest.approx((120, 1700)), "exact": pytest.approx((85, 1300))}
    assert summary.forecasts["exact"][1].sd == pytest.approx(200)


# --- QP against EP ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "of", "asterisk"), [(9, 10, False), (10, 10, True), (91, 100, True), (90, 100, False)]
)
def test_the_asterisk_needs_more_than_ninety_percent(better, of, asterisk):
    rows = [row(round=i, ntll=0.5) for i in range(of)]
    rows += [row(method="qp", round=i, ntll=0.4 if i < better else 0.5) for i in range(of)]
    qp = only(rows, method="qp").against_ep
    assert qp.ntll_below == Fraction(better, of)
    assert qp.asterisk is asterisk
    assert only(rows, method="ep").against_ep is None


def test_only_experiments_with_both_numbers_are_compared():
    rows = [row(fold=0, ntll=0.5), failed(fold=1), row(fold=2, ntll=0.5), row(fold=3, ntll=0.1)]
    rows += [row(method="qp", fold=i, ntll=0.4) for i in (0, 1, 3)] + [failed(method="qp", fold=2)]
    assert only(rows, method="qp").against_ep.ntll_below == Fraction(1, 2)
    alone = [row(method="qp", variant="clean"), row()]
    assert only(alone, method="qp").against_ep is None


def test_latent_variances():
    ep, qp = {"variance": [1.0, 2.0, 4.0]}, {"variance": [0.5, 2.5, 5.0], "variance_at_ep": [1.0, 1.9, 4.4]}
    rows = [row(test=ep), row(method="qp", test=qp)]
    rows += [
        row(fold=1, test={"variance": [3.0]}),
        row(method="qp", fold=1, test={"variance": [3.0], "variance_at_ep": [1.5]}),
    ]
    # QP without a variance at EP's hyperparameters, where it did not converge there
    rows += [row(fold=2, test={"variance": [2.0]}), row(method="qp", fold=2, test={"variance": [9.0]})]
    against = only(rows, method="qp").against_ep
    assert against.variance_at_ep == Fraction(3, 4)
    assert against.variance_own == Fraction(2, 5)
    assert against.largest_ratio == pytest.approx(1.1)


def test_differences_to_ep_are_those_of_the_corrected_test():
    """Over the divisions in which both gave numbers; halves of mining count as such."""
    ep, vb = [0.50, 0.40, 0.60, 0.30], [0.45, 0.42, 0.50, 0.25]
    rows = [row(fold=i, ntll=x) for i, x in enumerate(ep)] + [
        row(method="vb", fold=i, ntll=x) for i, x in enumerate(vb)
    ]
    rows += [row(fold=4, ntll=9.0), failed(method="vb", fold=4)]
    mining = [replace(one, dataset="mining", split="year", round=one.fold, fold=0) for one in rows]
    differences = [1000 * (b - a) for a, b in zip(ep, vb, strict=True)]
    for data, ratio in ((rows, 1 / 9), (mining, 1.0)):
        found = only(data, method="vb").less_ep
        assert found.mean == pytest.approx(statistics.fmean(differences))
        assert found.standard_error == pytest.approx(statistics.stdev(differences) * math.sqrt(1 / 4 + ratio))
        assert found.divisions == 4
    assert only(rows, method="ep").less_ep is None


def test_no_difference_without_two_finite_pairs():
    one = [row(ntll=0.5), row(method="vb", ntll=0.4)]
    assert only(one, method="vb").less_ep is None
    infinite = [*one, row(fold=1, ntll=0.5), row(method="vb", fold=1, ntll=math.inf)]
    assert only(infinite, method="vb").less_ep is None


def test_nothing_to_compare_has_no_share():
    against = compare(pairs([failed()], [row(method="qp")]))
    assert (against.ntll_below.share, against.largest_ratio, against.asterisk) == (None, None, False)


def test_rows_of_different_runs_are_refused():
    rows = [row(round=3, test={"variance": [1.0, 2.0]}), row(method="qp", round=3)]
    with pytest.raises(ValueError, match=r"crabs, paper, round 3, fold 0.*different numbers of test points"):
        tables.summarise(rows)


# --- files -----------------------------------------------------------------------------------------------------------


def example() -> list[Row]:
    rows = [row(round=i, te=0.024 + 0.008 * i, ntll=0.06 + 0.002 * i) for i in (0, 1)]
    rows += [row(method="qp", round=i, te=0.02, ntll=0.05) for i in (0, 1)]
    rows += [row(method="vb", te=0.04, ntll=math.inf, converged=False, status="max-sweeps after 7 sweeps")]
    rows += [failed(method="vb", round=i, status=f"failed: value {i}.5e-{i}") for i in (1, 2)]
    return [*rows, row(method="laplace", ntll=0.07)]


def cells(text: str, first: str, second: str) -> list[str]:
    """The cells of a Markdown line that begins with two given ones."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {first} | {second} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_as_it_is_read(tmp_path):
    text = write(tmp_path, example())["md"]
    ep = ["2.8 ± 0.4", "2.7 ± 0.5", "+0.2", "61.0 ± 1.0", "64.4 ± 8.2", "−0.4", "2", "0 of 2", "100.0 %"]
    qp = ["2.0 ± 0.0", "2.7 ± 0.5", "−1.4", r"50.0 ± 0.0 \*", "64.3 ± 8.4", "−1.7", "2", "0 of 2", "100.0 %"]
    vb = ["4.0", "3.7 ± 0.7", "+0.4", "∞", "164.7 ± 7.5", "+∞", "1", "2 of 3", "0.0 %"]
    assert cells(text, "crabs", "EP")[2:] == ep
    assert "| crabs | QP | " + " | ".join(qp) in text
    assert "| crabs | QP | −11.0 | 1.1 | −9.9 | 0.064 | 2 |" in text
    assert text.count("| crabs | VB |") == 3  # its scores, and two kinds of trouble
    assert "| crabs | VB | " + " | ".join(vb) in text
    assert "| crabs | VB | no numbers | 2 | round 1, fold 0: failed: value 1.5e-1 |" in text
    assert "| crabs | VB | numbers kept | 1 | round 0, fold 0: max-sweeps after 7 sweeps |" in text
    assert cells(text, "crabs", "100.0 % (2 of 2)")[2:] == [
        r"\*",
        "",
        "100.0 % (2 of 2)",
        "0.750000",
        "100.0 % (2 of 2)",
    ]
    assert "Made from 8 rows" in text
    assert "8 rows with quantprop 0.1.0, jax 9.8.7, machine abacus, device beads" in text


def test_a_csv_reads_back_in_full(tmp_path):
    rows = example()
    read = list(csv.DictReader(io.StringIO(write(tmp_path, rows)["csv"])))
    assert [line["method"] for line in read] == ["ep", "qp", "vb", "laplace"]
    for line, summary in zip(read, tables.summarise(rows), strict=True):
        assert float(line["te_mean"]) == summary.te.mean
        assert float(line["ntll_mean"]) == summary.ntll.mean
        assert int(line["failed"]) == summary.failed.count
        assert int(line["rows"]) == summary.failed.total
    ep, qp, vb, laplace = read
    assert (ep["paper_m"], ep["paper_n"], ep["paper_ntll_sd"], ep["asterisk"]) == ("200", "7", "8.2", "")
    assert (qp["asterisk"], qp["paper_asterisk"], qp["qp_ntll_below"], qp["qp_ntll_below_of"]) == ("1", "0", "2", "2")
    assert float(qp["qp_largest_variance_ratio"]) == 0.75
    assert float(qp["ntll_less_ep_mean"]) == pytest.approx(-11.0)
    assert float(qp["ntll_less_ep_p_value"]) == tables.summarise(rows)[1].less_ep.p_value
    assert (ep["ntll_less_ep_t"], vb["ntll_less_ep_t"], laplace["ntll_less_ep_t"]) == ("", "", "")
    assert (vb["te_sd"], vb["ntll_mean"], laplace["paper_te_mean"]) == ("", "inf", "")


def test_no_rows_is_an_error_and_files_are_replaced_whole(tmp_path):
    with pytest.raises(ValueError, match=r"no rows in .*run the experiments first"):
        tables.write(tmp_path, read(tmp_path))
    first = write(tmp_path, example())
    assert write(tmp_path, []) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rows.jsonl", "table1.csv", "table1.html", "table1.md", "table1.tex",
    ]  # fmt: skip


class Texts(HTMLParser):
    """The texts of table cells, and every tag that was opened."""

    def __init__(self, text: str):
        super().__init__()
        self.cells, self.tags, self.inside = [], set(), False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "td":
            self.cells, self.inside = [*self.cells, ""], True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "td"

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data


SHOWN = Document("t", "l", (Section("s", "a", (Sheet("h", "lp", ("x", "y"), ((HOSTILE, HOSTILE),)),)),), ("n",))


def test_a_hostile_name_is_text_in_html():
    found = Texts(page(SHOWN))
    assert found.cells == [HOSTILE, HOSTILE]
    assert not found.tags & {"b", "script", "link", "img"}


def test_a_hostile_name_is_text_in_markdown():
    (line,) = (line for line in markdown(SHOWN).splitlines() if "50%" in line)
    bars = re.findall(r"(?<!\\)(?:\\\\)*\|", line)
    assert len(bars) == 3
    unescaped = re.sub(r"\\(.)", r"\1", line)
    assert unescaped == f"| {HOSTILE} | {HOSTILE} |".replace("\n", " ")
    assert re.search(r"(?<!\\)[<>*_`$\[\]]", line) is None


def test_a_hostile_name_is_text_in_latex():
    text = latex(SHOWN)
    assert text.isascii()
    assert text.count(r"\end{document}") == 1
    (line,) = (line for line in text.splitlines() if "50" in line)
    assert line.endswith(r" \\")
    bare = re.sub(r"\\[$&#_%{}]|\\text\w+\{\}|\{[\[\]*`]\}", "", line.removesuffix(r" \\"))
    assert bare.count("&") == 1  # between the two columns
    assert not set(bare) & set('\\$#_%{}~^*[]<>|"`')
    assert "U+540D" in bare


def test_a_hostile_name_passes_through_a_csv(tmp_path):
    (line,) = csv.DictReader(io.StringIO(write(tmp_path, [replace(row(), dataset=HOSTILE)])["csv"]))
    assert line["dataset"] == HOSTILE
