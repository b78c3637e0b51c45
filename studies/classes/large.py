"""Many rows of several classes: joint EP and QP by inducing points beside a softmax SVGP with as many.

    python -m studies.classes.large joint satimage --data FOLDER --points 512 --method ep --out results.jsonl
    python -m studies.classes.large svgp satimage --data FOLDER --points 512 --seconds 120 --out results.jsonl
    python -m studies.classes.large sweep letter --data FOLDER --out results.jsonl   # where the time goes

FOLDER holds NAME.npz with X and y (codes 0, 1, ...). A fifth of the rows is held out; features are standardised by the
others. Every result is one JSON object, printed and appended to the file: the mean log-probability of the held-out
classes, their error and calibration error, and the seconds that learning took, compilation included.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from quantprop import Inducing, Model, fit, infer, kernels, likelihoods
from quantprop.inference.classes import factors_of
from quantprop.inference.engine.fixed_point import InferenceProblem, swept
from quantprop.inference.prediction import prior_at
from quantprop.inference.task import prepare, settled, starting_sites
from quantprop.learning.fitting import watched
from quantprop.methods import by_name as method_by_name
from quantprop.runtime.precision import float64
from studies.classes.run import Counts
from studies.classes.softmax_svgp import learned_by_svgp


def divided(name: str, folder: Path, seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training inputs and classes, then those held out."""
    with np.load(folder / f"{name}.npz") as file:
        X, y = file["X"], file["y"].astype(int)
    order = np.random.default_rng(seed).permutation(len(y))[: rows or None]
    test, train = np.split(order, [len(order) // 5])
    centre, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - centre) / np.where(spread > 0, spread, 1.0)
    return X[train], y[train], X[test], y[test]


def start_of(X: np.ndarray, given: argparse.Namespace) -> kernels.Kernel:
    """Variance 4, and the typical distance between rows as the lengthscale, of all features or of each."""
    scale = np.sqrt(X.shape[1])
    return kernels.SquaredExponential(4.0, np.full(X.shape[1], scale) if given.ard else scale)


def tell(out: Path | None, **numbers: Any) -> None:
    line = json.dumps(numbers | {"device": jax.devices()[0].device_kind})
    print(line, flush=True)
    if out is not None:
        with open(out, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def scored(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    log_prob, error, calibration = Counts.of(probabilities, y).scores()
    return {"log-likelihood": round(log_prob, 5), "error": round(error, 5), "calibration": round(calibration, 5)}


def joint(name: str, given: argparse.Namespace) -> None:
    """Learn by EP, whose gradient costs least; with another method, infer by it at what EP has learned."""
    X, y, new, label = divided(name, given.data, given.seed, given.rows)
    began, seen = time.perf_counter(), []
    model = Model(start_of(X, given), likelihoods.MultinomialProbit(int(y.max()) + 1), process=Inducing(given.points))
    with watched(lambda step, count: seen.append((round(time.perf_counter() - began, 1), step.value, step.sweeps))):
        learned_by = given.method if given.exact else "ep"
        fitted = fit(model, X, y, learned_by, max_evaluations=given.evaluations)
    learning = time.perf_counter() - began
    solution = fitted.solution
    if given.method != learned_by:
        solution = infer(fitted.model, X, y, given.method, sites=solution.sites)
    inference = time.perf_counter() - began - learning
    p = solution.predict_y(new).probabilities
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    tell(given.out, data=name, rows=len(y), classes=int(y.max()) + 1, points=given.points, ard=given.ard,
         model=f"joint {given.method}, learned by {learned_by}", **scored(p, label), seconds=round(learning, 1),
         inference=round(inference, 1), prediction=round(time.perf_counter() - began - learning - inference, 1),
         evaluations=len(seen), sweeps=sum(sweeps for *_, sweeps in seen), first=seen[0][0],
         evidence=fitted.objective_value, status=fitted.status.reason, converged=bool(solution.converged),
         seed=given.seed, GB=round(memory / 1e9, 2),
         theta=[round(float(t), 3) for t in fitted.theta[:8]])  # fmt: skip


@float64
def sweep(name: str, given: argparse.Namespace) -> None:
    """Seconds of one sweep, once it is compiled."""
    X, y, _, _ = divided(name, given.data, given.seed, given.rows)
    model = Model(start_of(X, given), likelihoods.MultinomialProbit(int(y.max()) + 1), process=Inducing(given.points))
    model, rows, ones = factors_of(model, X, y)
    model, method = settled(model, rows), method_by_name("ep")
    task = prepare(model, rows, ones, method, None, None, None)
    problem = InferenceProblem.of(model.plain_likelihood, method, prior_at(model, task), task.data, task.weight)
    sites = starting_sites(problem.likelihood, task, None)
    once, seconds = jax.jit(lambda problem, sites: swept(problem, sites)[0].evidence), []
    for _ in range(3):
        began = time.perf_counter()
        float(once(problem, sites))
        seconds.append(round(time.perf_counter() - began, 3))
    tell(given.out, data=name, rows=len(y), points=given.points, sweep=seconds)


def svgp(name: str, given: argparse.Namespace) -> None:
    X, y, new, label = divided(name, given.data, given.seed, given.rows)
    points = Inducing(given.points).settled(kernels.SquaredExponential(), X).points
    for seconds, steps, p in learned_by_svgp(X, y, np.asarray(points), new, given):
        tell(given.out, data=name, rows=len(y), classes=int(y.max()) + 1, points=given.points, ard=given.ard,
             model=f"softmax SVGP, points {'learned' if given.learn else 'as they are'}", **scored(p, label),
             seconds=round(seconds, 1), steps=steps, seed=given.seed)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("joint", "svgp", "sweep"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--method", default="ep")
    parser.add_argument("--exact", action="store_true", help="learn by the method itself")
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--ard", action="store_true", help="a lengthscale for each feature")
    parser.add_argument("--rows", type=int, default=0, help="take so many rows at random; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120.0, help="of the SVGP")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=0.01, help="of Adam")
    parser.add_argument("--draws", type=int, default=16, help="of the latent values in the SVGP's bound")
    parser.add_argument("--learn", action="store_true", help="the SVGP's points too")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.names:
        {"joint": joint, "svgp": svgp, "sweep": sweep}[given.what](name, given)
