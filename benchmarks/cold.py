"""First fits: seconds from the start of a process to a fitted model, compilation included. Writes out/cold.json.

Unlike the comparison with peers, processes here may use all cores, as a user's do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CRABS = """
from quantprop import Model, datasets, fit, kernels, likelihoods
data = datasets.load("crabs")
X = (data.X - data.X.mean(0)) / data.X.std(0)
fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, data.y, "qp")
"""
THIRTY = """
import numpy as np
from quantprop import Model, fit, kernels, likelihoods
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-3, 3, 30))[:, None]
f = np.sin(2 * x[:, 0])
y = {y}
fit(Model(kernels.SquaredExponential(), likelihoods.{likelihood}), x, y, "{method}")
"""
KINDS = {
    "Probit()": "np.sign(f + 0.3 * rng.normal(size=30))",
    "Poisson()": "rng.poisson(np.exp(f)).astype(float)",
    "StudentT()": "f + 0.3 * rng.standard_t(3, size=30)",
}
METHODS = ("laplace", "ep", "qp")
CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def seconds(code: str, **environment: str) -> tuple[float, float]:
    """From the start of a process to the end of the code, by the clock; and all processor seconds of the process."""
    code += "\nimport time\nprint(time.time())"
    before, start = os.times(), time.time()
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, check=True, capture_output=True, text=True
    )
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return float(ran.stdout) - start, used


def measure_cold(out: Path) -> None:
    """Print the table and write it to the folder."""
    with tempfile.TemporaryDirectory() as folder:
        cache = CACHE | {"JAX_COMPILATION_CACHE_DIR": folder}
        crabs = {"QP on crabs": seconds(CRABS), "with an empty cache": seconds(CRABS, **cache),
                 "with a full cache": seconds(CRABS, **cache)}  # fmt: skip
    thirty = {
        f"{likelihood}, {method}, 30 rows": seconds(THIRTY.format(y=y, likelihood=likelihood, method=method))
        for likelihood, y in KINDS.items()
        for method in METHODS
    }
    print(f"{'first fit of a process':<32} {'seconds':>8} {'processor':>10}")
    for name, (wall, used) in (crabs | thirty).items():
        print(f"{name:<32} {wall:>8.2f} {used:>10.2f}")
    (out / "cold.json").write_text(json.dumps(crabs | thirty, indent=1))
