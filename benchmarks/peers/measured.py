"""What the scripts of this folder share: read a split, time fits, print one line of results.

Needs NumPy alone, so that it runs in every peer's environment. `cold` is the first fit, with compilation and without
imports; `from_start` counts from the start of the process; `warm` are fits after so many that nothing is compiled any
more.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PREFIX = "RESULT "  # as in pinned.py, which reads it
REPEATS = 5  # warm fits, of which the median counts: some programs draw numbers, so that their fits differ
WARMING = 4  # fits before them: quantprop compiles what few rows need by then
LONG = 10.0  # seconds of a fit that is repeated only once


@dataclass(frozen=True)
class Fit:
    """A fitted model: what it minimised and how low it came, and log p(y) of labels ±1 at new inputs."""

    objective: float
    objective_name: str
    log_prob: Callable[[np.ndarray, np.ndarray], np.ndarray]
    kernel: tuple[float, float]  # variance, lengthscale
    evaluations: int | None = None
    status: str = ""


def from_probability(probability: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """log p(y) from a function that gives the probability of y = +1."""

    def log_prob(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = np.ravel(probability(x))
        with np.errstate(divide="ignore"):
            return np.log(np.where(y > 0, p, 1.0 - p))

    return log_prob


def report(fit: Callable[[np.ndarray, np.ndarray, str], Fit]) -> None:
    """Carry out `script splits.npz set method [cold]` and print the row."""
    path, name, method, *only = sys.argv[1:]
    with np.load(path) as file:
        x, y, x_test, y_test = (file[f"{name}.{key}"] for key in ("x", "y", "x_test", "y_test"))
    fitted, cold = _timed(fit, x, y, method)
    row = {"cold": cold, "from_start": time.time() - float(os.environ["BENCH_STARTED"])}
    if not only:
        for _ in range(WARMING if cold <= LONG else 0):
            fit(x, y, method)
        row["warm"] = typical(lambda: _timed(fit, x, y, method)[1])
    row |= {
        "objective": fitted.objective,
        "objective_name": fitted.objective_name,
        "ntll": float(-np.mean(fitted.log_prob(x_test, y_test))),
        "variance": fitted.kernel[0],
        "lengthscale": fitted.kernel[1],
        "evaluations": fitted.evaluations,
        "status": fitted.status,
    }
    emit(row)


def emit(row: dict) -> None:
    """Print a row where the parent process finds it."""
    print(PREFIX + json.dumps(row), flush=True)


def typical(seconds: Callable[[], float], repeats: int = REPEATS) -> float:
    """The median of a few measurements, fewer if one takes long."""
    taken = [seconds()]
    while len(taken) < repeats and max(taken) <= LONG:
        taken.append(seconds())
    return float(np.median(taken))


def _timed(fit: Callable, x: np.ndarray, y: np.ndarray, method: str) -> tuple[Fit, float]:
    began = time.perf_counter()
    fitted = fit(x, y, method)
    return fitted, time.perf_counter() - began
