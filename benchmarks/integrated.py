"""Hyperparameters integrated: calibration, scores against the point estimate, long chains, time.

    python benchmarks/integrated.py calibration --jobs 16 --draws 500   # simulation-based: θ, f and y
    python benchmarks/integrated.py scores --jobs 16 --folds 100        # NTLL against the point estimate, ten sets
    python benchmarks/integrated.py chains --jobs 8 --draws 20000       # posteriors of θ and forecasts, two small sets
    python benchmarks/integrated.py time                                # in fits, one after another

Each prints a table; --out also writes the rows behind it as CSV. Every job is one process on one core.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joint_chains import Target, chain, split_rhat

from quantprop import LogNormal, Model, Parameter, datasets, fit, integrate, kernels, likelihoods
from quantprop.experiments.pool import ENVIRONMENT, in_processes
from quantprop.experiments.protocol import TEST_TO_TRAIN, Experiment, model_of, split
from quantprop.experiments.resampled import difference
from quantprop.likelihoods.base import Datum
from quantprop.reference.uniformity import anderson_darling

PRIORS = {"variance": LogNormal(1.0, 1.0), "lengthscale": LogNormal(1.0, 0.7)}  # of simulated data
ROWS = 60
LIKELIHOODS = {"probit": likelihoods.Probit(), "poisson": likelihoods.Poisson()}
LEVELS = (0.5, 0.9)
SMALL = {"pima": 100, "mining": 112}  # rows of the sets of `chains`


def model(likelihood: Any, mean: float = 0.0, priors: dict[str, LogNormal] = PRIORS) -> Model:
    """A squared-exponential kernel with these priors, starting at their medians."""
    numbers = {name: Parameter(prior.median, prior=prior) for name, prior in priors.items()}
    return Model(kernels.SquaredExponential(**numbers), likelihood, mean)


def alone(work: Any, tasks: Sequence[Any], jobs: int) -> list[Any]:
    """Every task's result, in order, by processes of one thread each."""
    found = {}
    for task, result in in_processes(work, tasks, jobs, ENVIRONMENT):
        found[task] = result
        print(f"\r{len(found)} of {len(tasks)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [found[task] for task in tasks]


def one_core() -> None:
    """This process on one core, so that integration does not spread over all."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {mine[os.getpid() % len(mine)]})


# --- simulation-based calibration (Talts et al. 2018) ----------------------------------------------------------------


def simulated(task: tuple[str, str, int, int]) -> list[dict[str, float]]:
    """Several data sets (likelihood, method, first seed, count): where the true θ, f and y lie in their posteriors."""
    one_core()
    name, method, first, count = task
    return [_placed(LIKELIHOODS[name], method, seed) for seed in range(first, first + count)]


def _placed(likelihood: Any, method: str, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([seed, 24])
    theta = {name: np.log(p.median) + p.deviation * rng.standard_normal() for name, p in PRIORS.items()}
    x = np.append(np.sort(rng.uniform(0.0, 8.0, ROWS)), rng.uniform(0.0, 8.0))[:, None]
    k = np.exp(theta["variance"] - 0.5 * (x - x.T) ** 2 * np.exp(-2.0 * theta["lengthscale"]))
    f = np.linalg.cholesky(k + 1e-8 * k[0, 0] * np.eye(ROWS + 1)) @ rng.standard_normal(ROWS + 1)
    ones = np.ones(ROWS + 1)
    y = np.asarray(likelihood.draw(rng, Datum(ones, ones, ones), f), dtype=float)
    found = integrate(fit(model(likelihood), x[:-1], y[:-1], method))
    row = {name: float(found.marginal(f"kernel.{name}").cdf(value)[0]) for name, value in theta.items()}
    new = found.predict_y(x[-1:])
    lower, upper = new.cdf(y[-1] - 0.5)[0], new.cdf(y[-1])[0]
    row |= {"f": float(new.latent.cdf(f[-1])[0]), "y": float(lower + rng.uniform() * (upper - lower))}
    return {"seed": seed, **row, "effective": found.status.effective, "converged": float(found.converged)}


def calibration(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each likelihood and quantity: p-values of uniformity, and coverage."""
    from scipy.stats import kstest

    rows: list[dict[str, Any]] = []
    for name in LIKELIHOODS:
        piece = max(1, -(-options.draws // (2 * options.jobs)))
        starts = range(0, options.draws, piece)
        tasks = [(name, options.method, k, min(piece, options.draws - k)) for k in starts]
        found = [row for part in alone(simulated, tasks, options.jobs) for row in part]
        rows += [{"likelihood": name, **row} for row in found]
        print(f"{name}: {len(found)} data sets, {sum(row['converged'] for row in found):.0f} converged")
        print("| | Kolmogorov p | Anderson p | " + " | ".join(f"{100 * q:.0f} %" for q in LEVELS) + " |")
        for part in (*PRIORS, "f", "y"):
            u = np.array([row[part] for row in found])
            held = [np.mean(np.abs(u - 0.5) < 0.5 * level) for level in LEVELS]
            tests = kstest(u, "uniform").pvalue, anderson_darling(u)[1]
            print(f"| {part} | {tests[0]:.3f} | {tests[1]:.3f} | " + " | ".join(f"{100 * h:.1f}" for h in held) + " |")
    return rows


# --- scores against the point estimate -------------------------------------------------------------------------------


def scored(task: tuple[str, str, int, int]) -> dict[str, Any]:
    """One division (set, method, round, fold): NTLL and seconds of the point estimate and of the average."""
    one_core()
    name, method, turn, fold = task
    experiment = Experiment(name, "clean", split="year" if name == "mining" else "fold", round=turn, fold=fold)
    parts = split(experiment)
    start = model_of(experiment, method, parts.x.shape[1])
    began = time.perf_counter()
    fitted = fit(start, parts.x, parts.y, method)
    middle = time.perf_counter()
    found = integrate(fitted)
    end = time.perf_counter()
    pair = [-float(one.predict_y(parts.x_test).log_prob(parts.y_test).mean()) for one in (fitted.solution, found)]
    return {
        "set": name, "round": turn, "fold": fold, "point": pair[0], "integrated": pair[1], "fit_s": middle - began,
        "integrate_s": end - middle, "points": found.status.points, "status": found.status.reason,
    }  # fmt: skip


def scores(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each set: both NTLL, their difference with its standard error, and time in fits."""
    rows: list[dict[str, Any]] = []
    print("NTLL in nats a test point; differences are integrated less point, with corrected standard errors")
    print("| set | point | integrated | difference | p | median time in fits | not converged |")
    for name in options.sets or datasets.names():
        turns = (
            [(k, 0) for k in range(options.folds)]
            if name == "mining"
            else [divmod(k, 10) for k in range(options.folds)]
        )
        found = alone(scored, [(name, options.method, *turn) for turn in turns], options.jobs)
        rows += found
        point, mixed = (np.array([row[key] for row in found]) for key in ("point", "integrated"))
        less = difference(mixed, point, TEST_TO_TRAIN["year" if name == "mining" else "fold"])
        ratio = np.median([row["integrate_s"] / row["fit_s"] for row in found])
        bad = sum(row["status"] != "converged" for row in found)
        print(f"| {name} | {point.mean():.4f} | {mixed.mean():.4f} | {less.mean:+.5f} ± {less.standard_error:.5f} | "
              f"{less.p_value:.3f} | {ratio:.1f} | {bad} |", flush=True)  # fmt: skip
    return rows


# --- long chains -----------------------------------------------------------------------------------------------------


def small(name: str) -> tuple[Target, Model]:
    """The first rows of a set, and the model of them; half of the rest, or years between, are new."""
    data = datasets.load(name, "clean")
    count = name == "mining"
    x = (data.X - data.X.mean(0)) / data.X.std(0)
    size = SMALL[name]
    new = np.linspace(x.min(), x.max(), 25)[:, None] if count else x[size : size + 50]
    x, y = x[:size], np.asarray(data.y[:size], dtype=float)
    mean = float(np.log(y.mean())) if count else 0.0
    priors = {"variance": LogNormal(1.0, 1.5), "lengthscale": LogNormal(1.0 if count else 3.0, 1.0)}
    centre, deviation = (np.array([getattr(p, part) for p in priors.values()]) for part in ("median", "deviation"))
    likelihood = "poisson" if count else "probit"
    target = Target(x, y, new, likelihood, mean, np.log(centre), deviation)
    return target, model(LIKELIHOODS[likelihood], mean, priors)


def chains(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Means and deviations of θ by chains and by integration, and the largest difference of forecasts."""
    rows = []
    for name in SMALL:
        target, start = small(name)
        tasks = [(target, options.draws, options.draws // 5, seed) for seed in range(options.jobs)]
        found = [result for _, result in in_processes(chain, tasks, options.jobs, ENVIRONMENT)]
        theta, seen = (np.stack([part[key] for part in found]) for key in ("theta", "forecast"))
        ours = integrate(fit(start, target.x, target.y, options.method))
        centre = ours.weights @ ours.theta
        spread = np.sqrt(ours.weights @ (ours.theta - centre) ** 2)
        y = ours.predict_y(target.x_new)
        forecast = y.mean if target.likelihood == "poisson" else np.exp(y.log_prob(1.0))
        apart, error = np.abs(forecast - seen.mean((0, 1))), seen.mean(1).std(0, ddof=1) / np.sqrt(len(found))
        print(f"{name}, {target.likelihood}, {len(target.y)} rows: R-hat {split_rhat(theta):.4f}; {ours.status}")
        print(f"forecasts apart by at most {apart.max():.4f} (standard error {error.max():.4f}), in the median "
              f"{np.median(apart):.4f}")  # fmt: skip
        print("| θ | mean, chains | mean, ours | sd, chains | sd, ours | standard error |")
        for i, label in enumerate(PRIORS):
            draws, noise = theta[:, :, i], theta[:, :, i].mean(1).std(ddof=1) / np.sqrt(len(theta))
            cells = (draws.mean(), centre[i], draws.std(), spread[i], noise)
            print(f"| log {label} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")
            rows.append({"set": name, "theta": label, "mean": draws.mean(), "ours": centre[i], "sd": draws.std(),
                         "our_sd": spread[i], "error": noise, "apart": apart.max()})  # fmt: skip
    return rows


# --- time ------------------------------------------------------------------------------------------------------------


def times(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of a fit and of integration after the first call, in this process, on all of its cores."""
    rows = []
    print("| set | rows | fit, s | integrate, s | in fits | points |")
    for name in options.sets or ("crabs", "ionosphere", "pima"):
        experiment = Experiment(name, "clean")
        parts = split(experiment)
        start = model_of(experiment, options.method, parts.x.shape[1])
        for _ in range(2):
            began = time.perf_counter()
            fitted = fit(start, parts.x, parts.y, options.method)
            middle = time.perf_counter()
            found = integrate(fitted)
            end = time.perf_counter()
        row = {"set": name, "rows": len(parts.y), "fit": middle - began, "integrate": end - middle}
        rows.append({**row, "points": found.status.points})
        print(f"| {name} | {len(parts.y)} | {row['fit']:.2f} | {row['integrate']:.2f} | "
              f"{row['integrate'] / row['fit']:.1f} | {found.status.points} |", flush=True)  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calibration", "scores", "chains", "time"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--folds", type=int, default=100)
    parser.add_argument("--method", default="ep")
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = {"calibration": calibration, "scores": scores, "chains": chains, "time": times}[options.what](options)
    if options.out is not None:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
