"""What the library makes of an adversarial problem, and whether that is acceptable."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from fuzz.problems import NEW_ROWS, Problem

from quantprop import infer
from quantprop.inference.solution import Solution

LARGEST = np.log(np.finfo(float).max)
# Quantiles of the others take seconds per row, those of huge counts minutes.
QUICK_QUANTILES = ("gaussian", "probit", "logit", "heaviside", "double-exponential", "ordinal")
EXPONENTIAL = (
    "poisson, exp", "negative-binomial, exp", "gamma, exp", "weibull", "log-logistic", "zero-inflated-poisson, exp",
    "zero-inflated-negative-binomial, exp",
)  # fmt: skip  # E[y] is of the size of exp(f)


@dataclass(frozen=True)
class Verdict:
    """How one problem ended. `faults` are what must not be: NaN, a negative variance, an exception, no remedy."""

    number: int
    family: str
    method: str
    log_concave: bool
    resolvable: bool  # in double precision; else only honesty is asked for
    reason: str  # of the status; "refused" after a ValueError; "raised" after any other exception
    sweeps: int
    residual: float
    faults: tuple[str, ...]
    about: str
    seconds: float

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def verdict(problem: Problem, thorough: bool = False) -> Verdict:
    """Solve a problem and judge all that comes back; `thorough` also asks for quantiles."""
    began = time.perf_counter()
    faults: list[str] = []
    reason, sweeps, residual = "raised", 0, float("nan")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = problem
            solution = infer(p.model, p.x, p.y, p.method, p.schedule, **p.options)
            reason, sweeps, residual = solution.status.reason, solution.sweeps, solution.status.residual
            faults += faults_of(problem, solution, thorough)
    except ValueError as error:
        reason = "refused"
        faults.append(f"refused: {error}")
    except Exception as error:
        faults.append(f"{type(error).__name__}: {str(error)[:300]}")
    p = problem
    about = (p.number, p.family, p.method, p.log_concave, p.resolvable)
    return Verdict(*about, reason, sweeps, residual, tuple(faults), p.about, time.perf_counter() - began)


def faults_of(problem: Problem, solution: Solution, thorough: bool) -> list[str]:
    """What is wrong with a solution and its predictions."""
    found = list(_solution_faults(problem, solution))
    latent = solution.predict(problem.new)
    found += _not("predict.mean", np.isfinite(latent.mean)) + _not("predict.variance", np.isfinite(latent.variance))
    found += _not("predict.variance at least 0", ~(latent.variance < 0))
    if found:
        return found
    exposed = {name: problem.options[name][:1] for name in ("exposure", "trials") if name in problem.options}
    y_dist = solution.predict_y(problem.new, **exposed)
    if problem.y.ndim == 1:  # else y is an interval
        overflows = _overflows(problem, latent.mean, latent.variance)
        for name, power in (("mean", 1), ("variance", 2)):
            values = getattr(y_dist, name)
            undefined = name == "variance" and problem.family == "student-t"  # infinite for 2 degrees of freedom
            fine = np.isfinite(values) | ((values == np.inf) & (overflows(power) | undefined))
            student = problem.family == "student-t" and float(problem.model.plain_likelihood.df) <= power
            found += [] if student else _not(f"predict_y.{name}", fine)
            found += _not(f"predict_y.{name} at least 0", ~(values < 0)) if name == "variance" else []
        found += _not("predict_y.log_prob", np.isfinite(y_dist.log_prob(np.repeat(problem.y[:1], NEW_ROWS))))
    if thorough and problem.family in QUICK_QUANTILES and (latent.mean + 3.0 * np.sqrt(latent.variance) < 15.0).all():
        ends = y_dist.quantile(np.array([0.1, 0.9]))
        fine = np.isfinite(ends) | ((ends == np.inf) & _overflows(problem, latent.mean, latent.variance)(1))
        found += _not("predict_y.quantile", fine) + _not("predict_y.quantile in order", ~(ends[0] > ends[1]))
    return found


def _solution_faults(problem: Problem, solution: Solution) -> Iterator[str]:
    status = solution.status
    if not solution.converged and not (status.remedy and status.remedy in str(status)):
        yield f"no remedy for {status.reason}"
    if solution.converged and not status.residual <= status.tol:
        yield f"converged with a residual of {status.residual}"
    arrays = {
        "sites.nu": solution.sites.nu, "sites.tau": solution.sites.tau, "marginals.mean": solution.marginals.mean,
        "marginals.variance": solution.marginals.variance, "log_evidence": np.array([solution.log_evidence]),
    }  # fmt: skip
    for name, values in arrays.items():
        yield from _not(name, np.isfinite(values))
    yield from _not("marginals.variance at least 0", ~(solution.marginals.variance < 0))
    # Where sites may be negative, or have not converged, a plain cavity may be improper, and loo is NaN there.
    excused = not (problem.log_concave and solution.converged)
    yield from _not("loo", np.isfinite(solution.loo) | (np.isnan(solution.loo) & excused))


def _overflows(problem: Problem, mean: np.ndarray, variance: np.ndarray) -> Callable[[int], np.ndarray]:
    """Whether E[y^power] is really beyond double precision, which infinity then says rightly."""
    exponential = problem.family in EXPONENTIAL
    return lambda power: exponential & (power * mean + 0.5 * power**2 * variance > LARGEST - 60.0)


def _not(name: str, fine: np.ndarray) -> list[str]:
    return [] if np.all(fine) else [f"{name}: {int(np.sum(~fine))} of {np.size(fine)}"]
