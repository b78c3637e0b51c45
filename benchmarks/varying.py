"""A parameter that varies with x: seconds of fits over a yardstick in the same process. Writes out/varying.json.

Gaussian noise whose scale varies against an EP probit fit of as many rows; other families against the same family with
a constant parameter, by evaluations of the objective with its gradient, since the searches differ in length.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import ratio

from quantprop import Model, fit, kernels, likelihoods

ROWS = {"fits": 1_000, "evaluations": 400}
ROUNDS = 3
FAMILIES = {
    "student-t": (likelihoods.StudentT(), "scale"),
    "negative binomial": (likelihoods.NegativeBinomial(0.5), "dispersion"),
    "gamma": (likelihoods.Gamma(2.0), "shape"),
}
MOST = {"ep": 4.0, "qp": 6.0}  # of Gaussian noise, over a probit fit by EP
MOST_INTEGRATED = 20.0


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, f and the logarithm of a parameter that doubles across x."""
    x = np.sort(np.random.default_rng(seed).uniform(-3.0, 3.0, n))
    return x[:, None], np.sin(2.0 * x), np.log(2.0) * x / 6.0


def varying(likelihood: Any, parameter: str) -> Model:
    """Squared exponential kernels for f and for the parameter."""
    kernel = kernels.PerParameter(kernels.SquaredExponential(), kernels.SquaredExponential())
    return Model(kernel, likelihoods.Varying(likelihood, parameter))


def gaussian(method: str) -> tuple[Callable, Callable]:
    """Fits with a varying scale, and of labels by EP, each of the same rows."""
    x, f, g = rows(ROWS["fits"])
    rng = np.random.default_rng(1)
    y = f + 0.3 * np.exp(g) * rng.standard_normal(len(f))
    labels = np.sign(f + 0.3 * rng.standard_normal(len(f)))
    probit = Model(kernels.SquaredExponential(), likelihoods.Probit())
    return (lambda: fit(varying(likelihoods.Gaussian(), "scale"), x, y, method).theta,
            lambda: fit(probit, x, labels, "ep").theta)  # fmt: skip


def evaluations(name: str, method: str) -> tuple[Callable, Callable]:
    """CPU seconds per evaluation, with a parameter that varies and with a constant one."""
    likelihood, parameter = FAMILIES[name]
    x, f, g = rows(ROWS["evaluations"])
    model = varying(likelihood, parameter)
    ones = np.ones(len(f))
    y = model.likelihood.at(g).draw(np.random.default_rng(1), likelihoods.Datum(ones, ones, ones), f)

    def each(model: Model) -> Callable[[], float]:
        def measured() -> float:
            start = time.process_time()
            fitted = fit(model, x, y, method, max_evaluations=12)
            return (time.process_time() - start) / len(fitted.trace)

        return measured

    return each(model), each(Model(model.kernel.function, likelihood))


def measure_varying(out: Path) -> None:
    """Print the table and write it to the folder."""
    found = []
    print(f"{'what':<52} {'s':>9} {'yardstick s':>12} {'ratio':>6} {'at most':>8}")
    for method, most in MOST.items():
        line = ratio(*gaussian(method), rounds=ROUNDS)
        found.append((f"fit, Gaussian, varying scale, {method}, over probit, ep", line, most))
        _print(*found[-1])
    for name in FAMILIES:
        for method in MOST:
            own, constant = evaluations(name, method)
            own(), constant()
            a, b = np.median([[own(), constant()] for _ in range(ROUNDS)], axis=0).tolist()
            found.append((f"evaluation, {name}, {method}, over a constant", (a, b, a / b), MOST_INTEGRATED))
            _print(*found[-1])
    lines = [{"what": what, "seconds": line[0], "yardstick_seconds": line[1], "ratio": line[2], "bound": most}
             for what, line, most in found]  # fmt: skip
    (out / "varying.json").write_text(json.dumps(lines, indent=1))


def _print(what: str, line: tuple[float, float, float], most: float) -> None:
    verdict = "" if line[2] <= most else "  OVER"
    print(f"{what:<52} {line[0]:>9.3f} {line[1]:>12.3f} {line[2]:>6.2f} {most:>8.2f}{verdict}", flush=True)
