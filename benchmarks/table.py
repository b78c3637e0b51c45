"""The comparison as text: one table for each data set, then geometric means of the ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable

HEAD = (
    f"{'program':<13} {'method':<8} {'likelihood':<10} {'cold s':>8} {'warm s':>9} {'x EP':>7} {'objective':>11}"
    f" {'NTLL':>8} {'evals':>6} {'start s':>8} {'cached s':>9}"
)
NOTES = """\
cold: first fit of a new process; warm: median of later fits; x EP: warm over quantprop EP's warm; objective: negative
log evidence (vb: negative bound) at the learned variance and lengthscale; NTLL: mean negative log probability of
held-out labels; start: from the start of the process to the first fitted model, imports included; cached: the same with
JAX's compiled programs on disk."""
SHORT = 0.1
QUOTIENTS = (
    ("GPy EP / quantprop EP", ("gpy", "ep"), ("quantprop", "ep")),
    ("GPy VB / quantprop VB", ("gpy", "vb"), ("quantprop", "vb")),
    ("scikit-learn Laplace / quantprop EP", ("scikit-learn", "laplace"), ("quantprop", "ep")),
    ("GPBoost Laplace / quantprop EP", ("gpboost", "laplace"), ("quantprop", "ep")),
    ("scikit-learn Laplace / quantprop Laplace", ("scikit-learn", "laplace"), ("quantprop", "laplace")),
    ("GPBoost Laplace / quantprop Laplace", ("gpboost", "laplace"), ("quantprop", "laplace")),
    ("GPflow VB / quantprop VB", ("gpflow", "vb"), ("quantprop", "vb")),
    ("GPyTorch VB / quantprop VB", ("gpytorch", "vb"), ("quantprop", "vb")),
    ("quantprop QP / quantprop EP", ("quantprop", "qp"), ("quantprop", "ep")),
)


def print_tables(rows: list[dict]) -> None:
    """Print all there is to say about the rows."""
    for name in dict.fromkeys(row["set"] for row in rows):
        here = [row for row in rows if row["set"] == name]
        ours = _warm(here, "quantprop", "ep", name)
        print(f"\n{name}\n{HEAD}")
        for row in here:
            print(line(row, ours))
    print(f"\n{NOTES}")
    print_quotients(rows)
    print_differences(rows)


def line(row: dict, ours: float | None) -> str:
    """One row of a set's table."""
    start = f"{row['program']:<13} {row['method']:<8} {row['likelihood']:<10}"
    if "failure" in row:
        return f"{start} {row['failure']}"
    times = f"{row['cold']:>8.2f} {row['warm']:>9.3f} {_number(row['warm'] / ours if ours else None, 7, 2)}"
    ends = f"{row['objective']:>11.4f} {row['ntll']:>8.4f} {_number(row['evaluations'], 6, 0)}"
    return f"{start} {times} {ends} {row['from_start']:>8.2f} {_number(row.get('from_start_cached'), 9, 2)}"


def print_quotients(rows: list[dict]) -> None:
    """Ratios of warm seconds: geometric means over the sets that both have."""
    print(f"\n{'warm seconds, geometric mean of ratios':<44} {'ratio':>8}  sets")
    for name, above, below in QUOTIENTS:
        ratios = quotients(rows, above, below)
        sets = ", ".join(each + ("*" if stopped_short(rows, above, below, each) else "") for each in ratios)
        print(f"{name:<44} {_number(geometric_mean(ratios.values()) if ratios else None, 8, 2)}  {sets}")
    print(f"* the first of the two ended more than {SHORT} above the optimum that the second found")


def quotients(rows: list[dict], above: tuple[str, str], below: tuple[str, str]) -> dict[str, float]:
    """Warm seconds of one (program, method) over those of another, by set."""
    sets = dict.fromkeys(row["set"] for row in rows)
    pairs = {name: (_warm(rows, *above, name), _warm(rows, *below, name)) for name in sets}
    return {name: a / b for name, (a, b) in pairs.items() if a and b}


def stopped_short(rows: list[dict], above: tuple[str, str], below: tuple[str, str], name: str) -> bool:
    """Whether the first ended clearly above the second, where both minimise the same thing."""
    one, other = _row(rows, *above, name), _row(rows, *below, name)
    same = above[1] == below[1] and one["likelihood"] == other["likelihood"]
    return same and one["objective"] > other["objective"] + SHORT


def print_differences(rows: list[dict]) -> None:
    """quantprop's objective minus GPy's where both minimise the same thing; below 0, quantprop's is the better."""
    objective = {(r["program"], r["method"], r["set"]): r["objective"] for r in rows if "objective" in r}
    print("\nobjective of quantprop minus GPy's")
    for method in ("ep", "vb"):
        for (_, _, name), value in ((k, v) for k, v in objective.items() if k[:2] == ("gpy", method)):
            ours = objective.get(("quantprop", method, name))
            if ours is not None:
                print(f"{method} {name:<12} {ours - value:>12.2e}")


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm."""
    values = list(values)
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _row(rows: list[dict], program: str, method: str, name: str) -> dict:
    found = [r for r in rows if (r["program"], r["method"], r["set"]) == (program, method, name)]
    return found[0] if found else {}


def _warm(rows: list[dict], program: str, method: str, name: str) -> float | None:
    return _row(rows, program, method, name).get("warm")


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"
