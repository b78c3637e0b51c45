"""Approximate processes beside the exact one: both on some of the rows, under the same hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int
from scipy.spatial import KDTree

from quantprop.inference.inferring import infer
from quantprop.inference.solution import Solution
from quantprop.model import DEFAULT_PROCESS
from quantprop.priors import Inducing, Neighbours
from quantprop.priors.neighbours.sets import scaled
from quantprop.runtime.arguments import a, checked, whole
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import run_once

PLACES = 4  # around which rows are taken, so that they are as close to each other as all rows are
HELD_OUT = 3  # every third row
MAX_POINTS = 2_000  # with more rows than this, dense inference is no longer cheap


@dataclass(frozen=True)
class Closeness:
    """An approximate process and the exact one on the same rows.

    Attributes:
        rows: number of rows of both.
        evidence: log evidence with the approximate process.
        exact_evidence: log evidence with the exact process.
        density: mean log density of further rows with the approximate process.
        exact_density: mean log density of further rows with the exact process.
    """

    rows: int
    evidence: float
    exact_evidence: float
    density: float
    exact_density: float

    def __str__(self) -> str:
        return (f"on {self.rows} rows log evidence {self.evidence:.2f} (exact {self.exact_evidence:.2f}), held-out log "
                f"density {self.density:.4f} per row (exact {self.exact_density:.4f})")  # fmt: skip


@checked(solution=a(Solution), rows=whole(1), seed=whole(0))
@float64
def closeness(solution: Solution, rows: int = 400, seed: int = 0) -> Closeness:
    """Compare a process that approximates with the exact one, under the hyperparameters of a solution.

    Both are conditioned on the rows around a few places, and predict further rows there. With more inducing points than
    `rows`, as many rows as points are used.

    Args:
        solution: Result of inference or learning with `Inducing` or `Neighbours`.
        rows: Number of rows to condition on.
        seed: Seed of the choice of rows.

    Returns:
        Log evidence and mean held-out log density of both.

    >>> import numpy as np
    >>> from quantprop import Inducing, Model, closeness, infer, kernels, likelihoods
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(20))
    >>> found = closeness(infer(model, X, np.sign(np.sin(2 * X[:, 0])), "ep"), rows=100)
    >>> abs(found.evidence - found.exact_evidence) < 0.01
    True
    """
    if why := refusal(solution):
        raise ValueError(f"closeness: {why}")
    known = vars(solution).setdefault("_closeness", {})  # as a cached property's; not pickled
    if (rows, seed) not in known:
        known[rows, seed] = _compared(solution, rows, seed)
    return known[rows, seed]


def _compared(solution: Solution, rows: int, seed: int) -> Closeness:
    some, held = _rows(solution, max(rows, _points(solution)), seed)
    data: Any = solution.data
    scales = {name: getattr(data, name) for name in ("exposure", "trials") if (getattr(data, name) != 1.0).any()}
    weights = np.ones(len(solution.X)) if solution.weights is None else solution.weights
    found = []
    with run_once():
        for process in (solution.model.process, DEFAULT_PROCESS):
            own = {name: column[some] for name, column in scales.items()}
            one = infer(replace(solution.model, process=process), solution.X[some], data.y[some], solution.method,
                        weights=weights[some], **own)  # fmt: skip
            ahead = one.predict_y(solution.X[held], **{name: column[held] for name, column in scales.items()})
            found.append((one.log_evidence, np.average(ahead.log_prob(data.y[held]), weights=weights[held])))
    return Closeness(len(some), *(float(part) for pair in zip(*found, strict=True) for part in pair))


def refusal(solution: Any) -> str:
    """Why a solution cannot be compared with exact inference; empty if it can."""
    process = getattr(getattr(solution, "model", None), "process", None)
    if not isinstance(solution, Solution) or not isinstance(process, (Inducing, Neighbours)):
        return f"solution must have process=Inducing(...) or Neighbours(...), and one function; got {process!r}"
    if solution.data is None or solution.posterior is not None or getattr(process, "message", None) is not None:
        return "solution must hold all its rows: use infer or fit with all of them, in one process"
    if _points(solution) > MAX_POINTS:
        return f"solution may have at most {MAX_POINTS} inducing points; got {_points(solution)}"
    return ""


def _points(solution: Solution) -> int:
    process: Any = solution.model.process
    points = process.points if isinstance(process, Neighbours) else process
    return 0 if points is None else points.count


def _rows(solution: Solution, count: int, seed: int) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " k"]]:
    """Rows to condition on, and further ones among them, of those that count."""
    rows = np.arange(len(solution.X)) if solution.weights is None else np.flatnonzero(solution.weights > 0)
    _, places = scaled(solution.model.plain_kernel, solution.X)
    draw, total = np.random.default_rng(seed), min(len(rows), -(-HELD_OUT * count // (HELD_OUT - 1)))
    centres = draw.choice(len(rows), min(PLACES, len(rows)), replace=False)
    _, near = KDTree(places[rows]).query(places[rows[centres]], k=total, workers=-1)
    picked = draw.permutation(_first(near.reshape(len(centres), -1).T.ravel(), total))
    held = np.arange(len(picked)) % HELD_OUT == HELD_OUT - 1
    return rows[picked[~held]], rows[picked[held]]


def _first(found: Int[np.ndarray, " k"], count: int) -> Int[np.ndarray, " n"]:
    """The first different ones, which are nearest to one of the centres."""
    _, first = np.unique(found, return_index=True)
    return found[np.sort(first)][:count]
