"""How far each method is from the truth: numbers, tables and pictures of docs/accuracy.md.

    python scripts/accuracy.py errors          # every method on every case of tests/oracles/ground_truth.npz
    python scripts/accuracy.py calibration     # simulation-based calibration, 500 data sets each
    python scripts/accuracy.py page            # tables into docs/accuracy.md, pictures into docs/pictures

The first two write docs/results/accuracy/*.csv, a row for each method and case; rows that are there already are kept.
Needs quantprop with its extra "plots".
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from quantprop import EP, QP, VB, Laplace, Model, PowerEP, kernels
from quantprop.likelihoods import Likelihood, Probit
from quantprop.methods import Method
from quantprop.reference import cases
from quantprop.reference.calibration import LEVELS, calibrate, simulate
from quantprop.reference.truths import Errors, Truth, errors, read

ROOT = Path(__file__).resolve().parent.parent
TRUTHS = ROOT / "tests" / "oracles" / "ground_truth.npz"
RESULTS = ROOT / "docs" / "results" / "accuracy"
METHODS: dict[str, Method] = {
    "EP": EP(), "QP": QP(), "power EP ½": PowerEP(0.5), "QP p = 1": QP(1.0), "VB": VB(), "Laplace": Laplace(),
}  # fmt: skip
DRAWS, INPUTS = 500, np.linspace(0.0, 8.0, 32)[:, None]

Row = dict[str, str]


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def extend(path: Path, key: tuple[str, ...], wanted: Iterator[tuple[Row, object]], result) -> None:
    """Add a row for everything wanted that the file lacks, writing it after each."""
    rows = read_rows(path)
    have = {tuple(row[name] for name in key) for row in rows}
    for about, case in wanted:
        if tuple(about[name] for name in key) not in have:
            began = time.perf_counter()
            rows.append(about | result(case))
            write_rows(path, rows)
            print(", ".join(rows[-1].values()), f"{time.perf_counter() - began:.1f} s", flush=True)


# --- errors ----------------------------------------------------------------------------------------------------------


def judged() -> Iterator[tuple[Row, tuple[Truth, Method]]]:
    """Every method on every case."""
    for truth in read(TRUTHS):
        for name, method in METHODS.items():
            yield {"dataset": truth.dataset, "setting": truth.setting, "method": name}, (truth, method)


def error_row(case: tuple[Truth, Method]) -> Row:
    """The errors of a method, or the reason why there are none."""
    truth, method = case
    nothing = dict.fromkeys(Errors.__dataclass_fields__, "")
    try:
        solution = truth.infer(method)
    except ValueError as error:  # the method does not exist for this likelihood
        return {"status": str(error)} | nothing
    if not np.isfinite(solution.marginals.variance).all():
        return {"status": str(solution.status)} | nothing
    return {"status": solution.status.reason} | {k: f"{v:.6g}" for k, v in asdict(errors(truth, solution)).items()}


# --- calibration -----------------------------------------------------------------------------------------------------

CALIBRATED: dict[str, tuple[Likelihood, float]] = {"probit": (Probit(), 0.0), **cases.GENERATED}


def calibrated() -> Iterator[tuple[Row, tuple[str, Method]]]:
    """EP and QP on every likelihood; the others on the two that all of them can do."""
    for likelihood in CALIBRATED:
        for name in METHODS if likelihood in ("probit", "poisson") else ("EP", "QP"):
            yield {"likelihood": likelihood, "method": name}, (likelihood, METHODS[name])


def calibration_row(case: tuple[str, Method]) -> Row:
    """p-values and coverages."""
    name, method = case
    likelihood, mean = CALIBRATED[name]
    model = Model(kernels.SquaredExponential(2.0, 1.0), likelihood, mean)
    simulated = simulate(model, INPUTS, np.array([[4.1]]), DRAWS, seed=0)
    found = calibrate(simulated, method, observed=cases.censored if name == "censored" else None)
    p_f, p_y = found.p_values
    row = {"failed": str(found.failed), "p_f": f"{p_f:.4g}", "p_y": f"{p_y:.4g}"}
    for level in LEVELS:
        f, y = found.coverage(level)
        row |= {f"f_{100 * level:.0f}": f"{f:.4f}", f"y_{100 * level:.0f}": f"{y:.4f}"}
    return row


def main(task: str) -> int:
    warnings.simplefilter("default")
    if task == "errors":
        extend(RESULTS / "errors.csv", ("dataset", "setting", "method"), judged(), error_row)
    elif task == "calibration":
        extend(RESULTS / "calibration.csv", ("likelihood", "method"), calibrated(), calibration_row)
    elif task == "page":
        from accuracy_page import write

        write(read_rows(RESULTS / "errors.csv"), read_rows(RESULTS / "calibration.csv"), read(TRUTHS))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
