"""Time and memory of quantprop against the number of rows, dense prior. Writes benchmarks/out/scaling.json."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from pinned import pinned

SIZES = (250, 500, 1000, 2000, 4000, 8000)
TAIL = 3  # largest sizes that an exponent is fitted to
HEAD = (
    f"{'rows':>6} {'infer s':>9} {'sweeps':>7} {'s a sweep':>10} {'evaluation s':>13} {'sweeps':>7}"
    f" {'infer MiB':>10} {'fit MiB':>8} {'n x n in fit':>13}"
)


def measure_scaling(out: Path, most: int, limit: float = 3600.0) -> None:
    """Print the table of sizes up to `most` and the exponents, and write them to the folder."""
    rows, failures = [], {}
    print(f"EP, probit, five features, one core\n{HEAD}")
    for n in (n for n in SIZES if n <= most):
        report = pinned(sys.executable, "peers/one_size.py", str(n), limit=limit)
        if report.failure:
            failures[n] = report.failure
            print(f"{n:>6} {report.failure}", flush=True)
            continue
        rows.append(report.rows[0] | {"sweep": report.rows[0]["infer"] / report.rows[0]["sweeps"]})
        print(line(rows[-1]), flush=True)
    found = exponents(rows)
    (out / "scaling.json").write_text(json.dumps({"rows": rows, "exponents": found, "failures": failures}, indent=1))
    for name, value in found.items():
        print(f"{name} grows as n^{value:.2f} over the {min(TAIL, len(rows))} largest sizes")


def line(row: dict) -> str:
    """One size in one line; memory also in matrices of n × n doubles beyond what was there before the data."""
    matrices = (row["memory_fit"] - row["memory_before"]) * 2**20 / (8 * row["n"] ** 2)
    return (
        f"{row['n']:>6} {row['infer']:>9.3f} {row['sweeps']:>7} {row['sweep']:>10.4f} {row['evaluation']:>13.3f}"
        f" {row['evaluation_sweeps']:>7} {row['memory_infer']:>10.0f} {row['memory_fit']:>8.0f} {matrices:>13.1f}"
    )


def exponents(rows: list[dict]) -> dict[str, float]:
    """Slopes of log(cost) on log(n) by least squares."""
    if len(rows) < 2:
        return {}
    tail = rows[-TAIL:]
    beyond = [row | {"memory": row["memory_fit"] - row["memory_before"]} for row in tail]
    kinds = {"infer": "infer", "sweep": "a sweep", "evaluation": "an evaluation of fit", "memory": "memory"}
    return {name: _slope([r["n"] for r in beyond], [r[key] for r in beyond]) for key, name in kinds.items()}


def _slope(x: list[float], y: list[float]) -> float:
    u, v = [math.log(a) for a in x], [math.log(max(b, 1e-9)) for b in y]
    mean_u, mean_v = sum(u) / len(u), sum(v) / len(v)
    above = sum((a - mean_u) * (b - mean_v) for a, b in zip(u, v, strict=True))
    return above / sum((a - mean_u) ** 2 for a in u)
