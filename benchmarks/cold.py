"""First fits: seconds from the start of a process to a fitted model, imports and compilation included.

    taskset -c 0,1 python benchmarks/run.py --only cold      # two cores, as the documentation has it

Every figure is the least of a few new processes: without kept programs, the same with all programs compiled at once,
with an empty folder, with a full one. Unlike the comparison with peers, processes here may use all cores they are
given, as a user's do. Writes out/cold.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from timing import process_seconds

REPEATS = 3
WAYS = ("none", "empty", "full")
CRABS = """
from quantprop import datasets
data = datasets.load("crabs")
X = (data.X - data.X.mean(0)) / data.X.std(0)
"""
FIT = """
from quantprop import Model, fit, kernels, likelihoods
fit(Model(kernels.SquaredExponential(), likelihoods.{likelihood}), X, {y}, "{method}")
"""
VARYING = """
from quantprop import Model, fit, kernels, likelihoods
both = kernels.PerParameter(kernels.SquaredExponential(), kernels.SquaredExponential())
fit(Model(both, likelihoods.Varying(likelihoods.{likelihood}, "scale")), X, {y}, "ep")
"""
ESTIMATOR = """
from quantprop import GaussianProcessClassifier
GaussianProcessClassifier().fit(X, data.y)
"""
SERIES = """
import numpy as np
rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, {rows}))[:, None]
f = np.sin(2 * X[:, 0])
"""
Y = {
    "Gaussian()": "f + 0.3 * rng.normal(size=len(f))",
    "Probit()": "np.sign(f + 0.3 * rng.normal(size=len(f)))",
    "Poisson()": "rng.poisson(np.exp(f)).astype(float)",
    "StudentT()": "f + 0.3 * rng.standard_t(3, size=len(f))",
}
KEEP = "import quantprop\nquantprop.cache()\n"
TELL = "\nimport time\nprint(time.time())"


def series(likelihood: str, method: str, rows: int) -> str:
    """A fit of so many rows of one input."""
    return SERIES.format(rows=rows) + FIT.format(likelihood=likelihood, y=Y[likelihood], method=method)


def varying(likelihood: str, rows: int) -> str:
    """A fit of so many rows whose scale varies with x."""
    return SERIES.format(rows=rows) + VARYING.format(likelihood=likelihood, y=Y[likelihood])


SCRIPTS = {
    "fit, EP, crabs": CRABS + FIT.format(likelihood="Probit()", y="data.y", method="ep"),
    "fit, QP, crabs": CRABS + FIT.format(likelihood="Probit()", y="data.y", method="qp"),
    "fit, QP, Poisson, 100 rows": series("Poisson()", "qp", 100),
    "fit, QP, Student-t, 100 rows": series("StudentT()", "qp", 100),
    "fit, EP, Gaussian, varying scale, 100 rows": varying("Gaussian()", 100),
    "fit, EP, Student-t, varying scale, 100 rows": varying("StudentT()", 100),
    "GaussianProcessClassifier().fit, crabs": CRABS + ESTIMATOR,
}
IMPORTS = {
    "import jax": "import jax",
    "import what a fit needs": "from quantprop import Model, fit, kernels, likelihoods",
    "import an estimator": "from quantprop import GaussianProcessClassifier",
}


def least(command: list[str], environment: dict[str, str], repeats: int = REPEATS) -> tuple[float, float]:
    """The least of several processes, by the clock and of processor seconds."""
    clock, used = zip(*(process_seconds(command, environment) for _ in range(repeats)), strict=True)
    return min(clock), min(used)


def in_three_ways(command: list[str], keeping: list[str]) -> dict[str, tuple[float, float]]:
    """A command without cached programs, and with a cache that is empty, and one that is full."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "none": least(command, {"QUANTPROP_CACHE": "off"}),
            "empty": least(keeping, {"QUANTPROP_CACHE": folder}, 1),
            "full": least(keeping, {"QUANTPROP_CACHE": folder}),
        }


def on_the_command_line(folder: Path) -> list[str]:
    """`quantprop fit` of one kernel to a small table."""
    table = folder / "small.csv"
    rows = [f"{x / 10},{int(x % 7 > 3 or x > 60)}" for x in range(80)]
    table.write_text("x,y\n" + "\n".join(rows) + "\n")
    out = folder / "small.safetensors"
    return [sys.executable, "-m", "quantprop.cli", "fit", str(table), "--target", "y", "--kernel", "isotropic",
            "--out", str(out)]  # fmt: skip


def measure_cold(out: Path) -> None:
    """Print the tables and write them to the folder."""
    python = [sys.executable, "-c"]
    found: dict[str, dict[str, tuple[float, float]]] = {
        name: {"none": least([*python, code + TELL], {})} for name, code in IMPORTS.items()
    }
    _print("import", found, ("none",))
    for name, code in SCRIPTS.items():
        found[name] = in_three_ways([*python, code + TELL], [*python, KEEP + code + TELL])
        _print(name, {name: found[name]}, WAYS)
    with tempfile.TemporaryDirectory() as folder:
        command = on_the_command_line(Path(folder))
        name = "quantprop fit --kernel isotropic, 80 rows, to the end"
        found[name] = in_three_ways(command, command)
        _print(name, {name: found[name]}, WAYS)
    thirty = {
        f"{likelihood}, {method}, 30 rows": {"none": least([*python, series(likelihood, method, 30) + TELL], {}, 1)}
        for likelihood in Y
        for method in ("laplace", "ep", "qp")
    }
    _print("30 rows", thirty, ("none",))
    (out / "cold.json").write_text(json.dumps(found | thirty, indent=1))


def _print(title: str, table: dict[str, dict[str, tuple[float, float]]], ways: tuple[str, ...]) -> None:
    print(f"\n{title:<42}" + "".join(f"{way:>8} {'(CPU)':>8}" for way in ways))
    for name, row in table.items():
        print(f"{name:<42}" + "".join(f"{row[way][0]:>8.2f} {row[way][1]:>8.2f}" for way in ways), flush=True)
