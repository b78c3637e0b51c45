"""How far each method is from the truth: numbers, tables and pictures of docs/background/accuracy.md.

    python -m studies.accuracy.run answers      # every method on every case: build/answers.npz; an hour on one core
    python -m studies.accuracy.run errors       # these against tests/oracles/ground_truth.npz
    python -m studies.accuracy.run tails        # small class probabilities against it; ten minutes without answers
    python -m studies.accuracy.run calibration  # simulation-based calibration, 500 data sets each; half an hour
    python -m studies.accuracy.run page         # tables into docs/background/accuracy.md, pictures into docs/pictures

`errors` and `calibration` write studies/accuracy/*.csv, a row for each method and case, `tails` one for each test
input. What `answers`, `tails` and `calibration` find there already they keep. Needs quantprop with its extra "plots".
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quantprop import EP, QP, VB, Laplace, Model, PowerEP, kernels
from quantprop.likelihoods import Likelihood, Probit
from quantprop.methods import Method
from studies.shared.pages import ROOT
from tests.reference import cases
from tests.reference.calibration import LEVELS, calibrate, simulate
from tests.reference.truths import Answer, Errors, Truth, answer, errors, read

TRUTHS = ROOT / "tests" / "oracles" / "ground_truth.npz"
ANSWERS = ROOT / "build" / "answers.npz"
RESULTS = Path(__file__).resolve().parent
ROUNDING = 2.0**-25  # at most, of a stored probability near 1
METHODS: dict[str, Method] = {
    "EP": EP(), "QP": QP(), "power EP ½": PowerEP(0.5), "QP p = 1": QP(1.0), "VB": VB(), "Laplace": Laplace(),
}  # fmt: skip
TAILS = ("EP", "QP", "VB", "Laplace")  # methods whose small probabilities are shown
DRAWS, INPUTS = 500, np.linspace(0.0, 8.0, 32)[:, None]

Row = dict[str, str]


class Rare(NamedTuple):
    """The less likely class at test inputs where that has a small probability, and this is known well."""

    input: np.ndarray
    probability: np.ndarray
    standard_error: np.ndarray

    def of(self, answer: Answer, truth: Truth) -> np.ndarray:
        """A method's probabilities of the same."""
        p = answer.probability[self.input]
        return np.where(truth.probability.value[self.input] < 0.5, p, 1.0 - p)


def rare(truth: Truth, below: float = 0.01, known_to: float = 0.1) -> Rare:
    """Of a classification set. Probabilities near 1 are stored in single precision, which counts as an error too."""
    p = truth.probability.value
    small = np.minimum(p, 1.0 - p)
    error = truth.probability.standard_error + np.where(p < 0.5, 0.0, ROUNDING)
    (chosen,) = np.nonzero((small < below) & (error < known_to * small))
    return Rare(chosen, small[chosen], error[chosen])


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
    """Add a row for everything wanted that the file lacks or has with gaps, writing it after each."""
    rows = [row for row in read_rows(path) if all(row.values())]
    have = {tuple(row[name] for name in key) for row in rows}
    for about, case in wanted:
        if tuple(about[name] for name in key) not in have:
            began = time.perf_counter()
            rows.append(about | result(case))
            write_rows(path, rows)
            print(", ".join(rows[-1].values()), f"{time.perf_counter() - began:.1f} s", flush=True)


# --- answers and errors ----------------------------------------------------------------------------------------------


def answers(path: Path, methods: Sequence[str], truths: Sequence[Truth]) -> None:
    """These methods' answers to these cases, added to what the file has; small data sets first."""
    store = dict(np.load(path)) if path.exists() else {}
    thetas = {f"{truth.dataset}/{truth.setting}": (truth.variance, truth.lengthscale) for truth in truths}
    small_first = sorted(thetas, key=lambda case: len(cases.load(case.split("/")[0]).y))
    for name in methods:
        for case in small_first:
            key = f"{case}/{name}"
            if any(k.startswith(f"{key}/") for k in store):
                continue
            began = time.perf_counter()
            try:
                found = asdict(answer(cases.load(case.split("/")[0]), *thetas[case], METHODS[name]))
            except ValueError as error:  # the method does not exist for this likelihood
                found = {"reason": str(error)}
            store |= {f"{key}/{field}": np.asarray(value) for field, value in found.items()}
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(partial := path.with_suffix(".partial.npz"), **store)
            partial.replace(path)
            print(f"{key}: {found['reason']}; {time.perf_counter() - began:.1f} s", flush=True)


def fields_of(store: dict[str, np.ndarray], truth: Truth, method: str) -> dict[str, np.ndarray]:
    """What the file of answers has on a method and a case."""
    start = f"{truth.dataset}/{truth.setting}/{method}/"
    return {key.removeprefix(start): value for key, value in store.items() if key.startswith(start)}


def error_rows(path: Path) -> Iterator[Row]:
    """The errors of every method on every case, or the reason why there are none."""
    store = dict(np.load(path))
    for truth in read(TRUTHS):
        for name in METHODS:
            fields = fields_of(store, truth, name)
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


def tail_rows(path: Path, truths: Sequence[Truth]) -> Iterator[Row]:
    """Small probabilities of classes at test inputs, the truth's and each method's; none where it did not converge."""
    store = dict(np.load(path))
    for truth in truths:
        small = rare(truth)
        found = {name: Answer(**fields_of(store, truth, name)) for name in TAILS}
        said = {name: small.of(answer, truth) for name, answer in found.items() if answer.reason == "converged"}
        for k, row in enumerate(small.input):
            about = {"dataset": truth.dataset, "setting": truth.setting, "input": str(row)}
            about |= {"truth": f"{small.probability[k]:.4g}", "standard_error": f"{small.standard_error[k]:.2g}"}
            yield about | {name: f"{said[name][k]:.4g}" if name in said else "" for name in TAILS}


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
        answers(ANSWERS, list(METHODS), read(TRUTHS))
    elif task == "errors":
        write_rows(RESULTS / "errors.csv", list(error_rows(ANSWERS)))
    elif task == "tails":
        classes = [truth for truth in read(TRUTHS) if isinstance(truth.data.likelihood, Probit)]
        answers(ANSWERS, TAILS, classes)
        write_rows(RESULTS / "tails.csv", list(tail_rows(ANSWERS, classes)))
    elif task == "calibration":
        extend(RESULTS / "calibration.csv", ("likelihood", "method"), calibrated(), calibration_row)
    elif task == "page":
        from studies.accuracy.page import write

        found = {name: read_rows(RESULTS / f"{name}.csv") for name in ("errors", "tails", "calibration")}
        write(**found, truths=read(TRUTHS))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
