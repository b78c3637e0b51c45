"""Evaluations of an objective: what is tried, in one declared order, until inference and the gradient succeed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.core.records import changed
from quantprop.inference.continuation import by_newton, continued
from quantprop.inference.engine import PATIENCE, InferenceProblem, Outcome
from quantprop.learning.evaluation import PROGRAMS, Precision, Stages, evaluated, how_it_ended
from quantprop.learning.warm_starts import WarmStarts
from quantprop.runtime.jobs import agreed
from quantprop.runtime.precision import float64, to_numpy

MAX_UNRESOLVED = 2  # evaluations after which the small quadrature rule is not tried any more
SWEEPS_FAILED = ("max-sweeps", "stalled", "improper-cavities", "improper-start")


class Point(NamedTuple):
    """One evaluation of an objective."""

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]
    likelihood: Any  # at θ
    out: Any  # an Outcome
    reason: str  # why inference ended, or the equation for the gradient after it
    seconds: float
    way: str = ""  # the strategy that succeeded

    @property
    def usable(self) -> bool:
        """True if inference converged and everything is finite."""
        return self.reason == "converged" and math.isfinite(self.value) and bool(np.isfinite(self.gradient).all())

    @property
    def schedule(self) -> str:
        """How the sites were reached, as a solution's status says it."""
        return "parallel, then continuation" if self.way == "continuation" else "parallel"

    def alone(self) -> Point:
        """The point itself: it is not one of a batch."""
        return self

    @property
    def residual(self) -> float:
        """How far the sites are from convergence."""
        return float(self.out.at.residual)

    @property
    def sweeps(self) -> int:
        """How many sweeps inference took."""
        return int(self.out.sweeps)


class Memory(NamedTuple):
    """All that an evaluation takes from those before it."""

    warm: WarmStarts
    unresolved: int = 0  # evaluations for which the small quadrature rule was not accurate enough
    continues: bool = False  # True if the search could begin only by Newton's method or a path


class Request(NamedTuple):
    """An objective, and how and where to evaluate it."""

    objective: Any  # a `landscape.Landscape`
    theta: Float[np.ndarray, " theta"]
    tol: float
    memory: Memory


def small_rule(ask: Request, failed: Point | None) -> Point | None:
    """Sweeps from warm sites with the small quadrature rule, while that is accurate enough."""
    objective = ask.objective
    if not objective.integrates or objective.task.mesh is not None or ask.memory.unresolved >= MAX_UNRESOLVED:
        return None
    stages = PROGRAMS._replace(posed=InferenceProblem.with_few_nodes)
    return _swept(ask, ask.memory.warm.at(ask.theta), stages, min(objective.max_sweeps, PATIENCE))


def warm(ask: Request, failed: Point | None) -> Point | None:
    """Sweeps from sites extrapolated from those at other θ."""
    return _swept(ask, ask.memory.warm.at(ask.theta))


def cold(ask: Request, failed: Point) -> Point | None:
    """Sweeps from the likelihood's own sites."""
    return _swept(ask, ask.objective.cold) if ask.memory.warm.seen else None


def refined(ask: Request, failed: Point) -> Point | None:
    """Sweeps with smaller rounding errors of the prior."""
    if failed.reason != "max-sweeps":
        return None
    return _swept(ask, ask.objective.cold, PROGRAMS._replace(refined=ask.objective.model.process.refined))


@float64
def by_equations(ask: Request, failed: Point) -> Point | None:
    """If a search cannot begin because sweeps fail, sweeps from the end of the paths of `infer`; if it began like that,
    from where Newton's method ends. A search that has begun by sweeps steps back instead.
    """
    objective, begins = ask.objective, not ask.memory.warm.seen
    if failed.reason not in SWEEPS_FAILED or objective.max_sweeps < PATIENCE or objective.task.mesh is not None:
        return None
    if not (begins or ask.memory.continues):
        return None
    made, likelihood = PROGRAMS.prior(ask.theta, objective.unbounded, objective.inputs)
    rows = (objective.task.data, objective.task.weight)
    problem = InferenceProblem.of(likelihood, objective.method, objective.model.process.refined(made), *rows)
    if len(objective.task.padded) > problem.prior.largest_joint:
        return None
    start = to_numpy(failed.out.at.sites) if begins else ask.memory.warm.at(ask.theta)
    at, _ = (continued if begins else by_newton)(problem, start, objective.tol)
    return None if at is None else _swept(ask, at.sites)


Strategy = Callable[[Request, Any], Point | None]
STRATEGIES: dict[str, Strategy] = {
    "small rule": small_rule, "warm": warm, "cold": cold, "refined": refined, "continuation": by_equations,
}  # fmt: skip


def attempted(ask: Request) -> tuple[Point, Memory]:
    """The objective by the first strategy that succeeds, and what the next evaluation takes from this one."""
    point: Any = None
    memory, small = ask.memory, False
    for way, strategy in STRATEGIES.items():
        found = strategy(ask, point)
        if found is None:
            continue
        point, small = found._replace(way=way), small or way == "small rule"
        if point.usable:
            unresolved = memory.unresolved + (small and way != "small rule")
            warm = memory.warm.add(point.theta, to_numpy(point.out.at.sites))
            return point, Memory(warm, unresolved, memory.continues or way == "continuation")
    return point, memory


@float64
def _swept(ask: Request, start: Natural, stages: Stages = PROGRAMS, max_sweeps: int | None = None) -> Point:
    """The objective after sweeps from these sites; all processes of a job continue with the numbers of the first."""
    began, one = time.perf_counter(), ask.objective
    precision = Precision(ask.tol, one.max_sweeps if max_sweeps is None else max_sweeps)
    if one.task.mesh is not None:  # on one device programs take NumPy arrays as they are, which is quicker
        start = one.task.placed(start)
    found = evaluated(one.question, ask.theta, start, precision, one.method, one.objective, one.exact, stages)
    told = agreed(np.array([np.asarray(found.value), *np.asarray(found.gradient)], dtype=np.float64))
    out = _with_numbers(found.out)
    reason = how_it_ended(out.reason, float(np.asarray(found.adjoint_residual)))
    return Point(ask.theta, float(told[0]), told[1:], found.likelihood, out, reason, time.perf_counter() - began)


def _with_numbers(out: Outcome) -> Outcome:
    """The outcome with NumPy's numbers for a search: `float` of JAX's takes six times as long."""
    at = changed(out.at, residual=np.asarray(out.at.residual))
    return changed(out, at=at, sweeps=np.asarray(out.sweeps), reason=np.asarray(out.reason))
