"""Table 1 from rows: ours beside the paper's, as Markdown, HTML, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from quantprop.experiments.documents import latex, markdown, page
from quantprop.experiments.published import Spread
from quantprop.experiments.rows import Row
from quantprop.experiments.sheets import FORECASTS, document
from quantprop.experiments.summary import MethodSummary, summarise
from quantprop.storage.files import replace_file

__all__ = ["summarise", "table_csv", "write"]


def write(folder: Path, rows: list[Row]) -> list[Path]:
    """Write table1.md, .html, .tex and .csv of the rows that a folder holds into it; return their paths."""
    if not rows:
        raise ValueError(f"there are no rows in {folder}: run the experiments first (quantprop reproduce table1)")
    summaries = summarise(rows)
    report = document(rows, summaries)
    texts = {"md": markdown(report), "html": page(report), "tex": latex(report), "csv": table_csv(summaries)}
    paths = [Path(folder) / f"table1.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        replace_file(str(path.resolve()), text.encode())
    return paths


def table_csv(summaries: Sequence[MethodSummary]) -> str:
    """One line per summary, numbers in full; empty where there is none."""
    records = [_record(summary) for summary in summaries]
    out = io.StringIO()
    writer = csv.DictWriter(out, records[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _record(summary: MethodSummary) -> dict[str, object]:
    key, paper, qp = summary.setting, summary.paper, summary.against_ep
    record: dict[str, object] = {**key._asdict(), "split": summary.split, "dataset": summary.dataset}
    record |= {"method": summary.method, "rounds": summary.rounds, "short_rounds": summary.short_rounds}
    record |= {"rows": summary.failed.total, "failed": summary.failed.count, "converged": summary.converged.count}
    record |= _columns("te", summary.te) | _columns("ntll", summary.ntll)
    record |= {"paper_m": paper and paper.m, "paper_n": paper and paper.n}
    record |= _columns("paper_te", paper and paper.te) | _columns("paper_ntll", paper and paper.ntll)
    record |= {"te_difference": summary.te_difference, "ntll_difference": summary.ntll_difference}
    for name in ("mean", "standard_error", "t", "p_value"):
        record |= {f"ntll_less_ep_{name}": summary.less_ep and getattr(summary.less_ep, name)}
    for name in ("ntll_below", "variance_at_ep", "variance_own"):
        fraction = getattr(qp, name, None)
        record |= {f"qp_{name}": fraction and fraction.count, f"qp_{name}_of": fraction and fraction.total}
    record |= {"qp_largest_variance_ratio": qp and qp.largest_ratio, "asterisk": qp and int(qp.asterisk)}
    record |= {"paper_asterisk": int(paper.asterisk) if paper and summary.method == "qp" else None}
    for name in FORECASTS:
        te, ntll = summary.forecasts.get(name, (None, None))
        record |= _columns(f"{name}_te", te) | _columns(f"{name}_ntll", ntll)
    return record


def _columns(name: str, spread: Spread | None) -> dict[str, object]:
    return {f"{name}_mean": spread and spread.mean, f"{name}_sd": spread and spread.sd}
