"""How far each method is from the truth: numbers, tables and pictures of docs/accuracy.md.

    python scripts/accuracy.py answers         # every method on every case: into build/answers.npz; an hour on one core
    python scripts/accuracy.py errors          # these against tests/oracles/ground_truth.npz
    python scripts/accuracy.py calibration     # simulation-based calibration, 500 data sets each; half an hour
    python scripts/accuracy.py page            # tables into docs/accuracy.md, pictures into docs/pictures

`errors` and `calibration` write docs/results/accuracy/*.csv, a row for each method and case. What `answers` and
`calibration` find there already they keep. Needs quantprop with its extra "plots".
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
from quantprop.reference.truths import Answer, Errors, answer, errors, read

ROOT = Path(__file__).resolve().parent.parent
TRUTHS = ROOT / "tests" / "oracles" / "ground_truth.npz"
ANSWERS = ROOT / "build" / "answers.npz"
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


# --- answers and errors ----------------------------------------------------------------------------------------------


def answers(path: Path) -> None:
    """Every method's answer to every case, added to what the file has; small data sets first."""
    store = dict(np.load(path)) if path.exists() else {}
    with np.load(TRUTHS) as stored:
        thetas = {key.removesuffix("/theta"): stored[key] for key in stored if key.endswith("/theta")}
    small_first = sorted(thetas, key=lambda case: len(cases.load(case.split("/")[0]).y))
    for name, method in METHODS.items():
        for case in small_first:
            key = f"{case}/{name}"
            if any(k.startswith(f"{key}/") for k in store):
                continue
            began = time.perf_counter()
            try:
                found = asdict(answer(cases.load(case.split("/")[0]), *thetas[case], method))
            except ValueError as error:  # the method does not exist for this likelihood
                found = {"reason": str(error)}
            store |= {f"{key}/{field}": np.asarray(value) for field, value in found.items()}
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(partial := path.with_suffix(".partial.npz"), **store)
            partial.replace(path)
            print(f"{key}: {found['reason']}; {time.perf_counter() - began:.1f} s", flush=True)


def error_rows(path: Path) -> Iterator[Row]:
    """The errors of every method on every case, or the reason why there are none."""
    store = dict(np.load(path))
    for truth in read(TRUTHS):
        for name in METHODS:
            start = f"{truth.dataset}/{truth.setting}/{name}/"
            fields = {key.removeprefix(start): value for key, value in store.items() if key.startswith(start)}
            about = {
                "dataset": truth.dataset,
                "setting": truth.setting,
                "method": name,
                "status": str(fields["reason"]),
            }
            if "mean" not in fields:
                yield about | dict.fromkeys(Errors.__dataclass_fields__, "")
                continue
            found = errors(truth, Answer(**fields))
            yield about | {name: f"{number:.6g}" for name, number in asdict(found).items()}


# --- calibration -----------------------------------------------------------------------------------------------------

CALIBRATED: dict[str, tuple[Likelihood, float]] = {
    "probit": (Probit(), 0.0), "poisson": cases.GENERATED["poisson"], **cases.GENERATED,
}  # fmt: skip


def calibrated() -> Iterator[tuple[Row, tuple[str, Method]]]:
    """EP and QP on every likelihood, VB and Laplace on the first two."""
    for name, method in METHODS.items():
        for likelihood in CALIBRATED:
            if name in ("EP", "QP") or (name in ("VB", "Laplace") and likelihood in ("probit", "poisson")):
                yield {"likelihood": likelihood, "method": name}, (likelihood, method)


def calibration_row(case: tuple[str, Method]) -> Row:
    """p-values and coverages."""
    name, method = case
    likelihood, mean = CALIBRATED[name]
    model = Model(kernels.SquaredExponential(2.0, 1.0), likelihood, mean)
    simulated = simulate(model, INPUTS, np.array([[4.1]]), DRAWS, seed=0)
    found = calibrate(simulated, method, observed=cases.censored if name == "censored" else None)
    row = {"failed": str(found.failed)}
    for test, (f, y) in {"p": found.p_values, "tail_p": found.tail_p_values}.items():
        row |= {f"{test}_f": f"{f:.4g}", f"{test}_y": f"{y:.4g}"}
    for level in LEVELS:
        f, y = found.coverage(level)
        row |= {f"f_{100 * level:.0f}": f"{f:.4f}", f"y_{100 * level:.0f}": f"{y:.4f}"}
    return row


def main(task: str) -> int:
    warnings.simplefilter("default")
    if task == "answers":
        answers(ANSWERS)
    elif task == "errors":
        write_rows(RESULTS / "errors.csv", list(error_rows(ANSWERS)))
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
