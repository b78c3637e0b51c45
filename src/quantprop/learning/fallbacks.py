"""Evaluations of an objective: what is tried, in one declared order, until inference and the gradient succeed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.gaussian import Natural
from quantprop.inference.continuation import by_newton, continued
from quantprop.inference.engine import PATIENCE, InferenceProblem, Outcome
from quantprop.learning.evaluation import PROGRAMS, Precision, Stages, evaluated, how_it_ended
from quantprop.learning.warm_starts import WarmStarts
from quantprop.records import changed
from quantprop.runtime.jobs import agreed
from quantprop.runtime.precision import float64, to_numpy

Objective = Any  # at data: `landscape.Landscape`
MAX_UNRESOLVED = 2  # evaluations for which the small rule was not accurate enough, after which it is not tried any more
SWEEPS_FAILED = ("max-sweeps", "stalled", "improper-cavities", "improper-start")
ONE = np.zeros(1, dtype=int)  # the only problem there is


class Point(NamedTuple):
    """One evaluation of an objective."""

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]
    likelihood: Any  # at θ
    out: Any  # an Outcome
    reason: str  # how inference ended, and the equation for the gradient after it
    seconds: float

    @property
    def usable(self) -> bool:
        """True if inference converged and everything is finite."""
        return self.reason == "converged" and math.isfinite(self.value) and bool(np.isfinite(self.gradient).all())

    @property
    def sweeps(self) -> int:
        """How many sweeps inference took."""
        return int(self.out.sweeps)


class Memory(NamedTuple):
    """All that an evaluation takes from those before it."""

    warm: WarmStarts
    unresolved: int = 0  # evaluations for which the small quadrature rule was not accurate enough
    continues: bool = False  # whether the search could begin only by Newton's method or a path

    @property
    def seen(self) -> bool:
        """True if there are converged sites at any θ."""
        return bool(self.warm.seen.any())

    def sites(self, theta: Float[np.ndarray, " theta"]) -> Natural:
        """Warm sites at θ."""
        warm = self.warm.at(ONE, theta[None])
        return Natural(warm.nu[0], warm.tau[0])

    def with_sites(self, theta: Float[np.ndarray, " theta"], sites: Natural) -> Memory:
        """The memory with the converged sites at one more θ."""
        return self._replace(warm=self.warm.add(ONE, theta[None], one_problem(sites)))


def one_problem(sites: Natural) -> Natural:
    """Sites of one problem as a batch."""
    return Natural(np.asarray(sites.nu)[None], np.asarray(sites.tau)[None])


Tried = tuple[Point | None, Memory]


def _warm(of: Objective, theta: np.ndarray, tol: float, memory: Memory, failed: Point | None) -> Tried:
    """Sweeps from sites extrapolated from those at other θ."""
    return once(of, theta, memory.sites(theta), tol, memory)


def _cold(of: Objective, theta: np.ndarray, tol: float, memory: Memory, failed: Point) -> Tried:
    """Sweeps from the likelihood's own sites."""
    return once(of, theta, of.cold, tol, memory) if memory.seen else (None, memory)


def _refined(of: Objective, theta: np.ndarray, tol: float, memory: Memory, failed: Point) -> Tried:
    """Sweeps with smaller rounding errors of the prior."""
    if failed.reason != "max-sweeps":
        return None, memory
    return once(of, theta, of.cold, tol, memory, PROGRAMS._replace(refined=of.model.process.refined))


@float64
def _by_equations(of: Objective, theta: np.ndarray, tol: float, memory: Memory, failed: Point) -> Tried:
    """If a search cannot begin because sweeps fail, the end of the paths of `infer`; if it began like that, Newton's
    method from then on. A search that has begun by sweeps steps back instead.
    """
    paths = not memory.seen
    if failed.reason not in SWEEPS_FAILED or of.max_sweeps < PATIENCE or not (paths or memory.continues):
        return None, memory
    if of.task.mesh is not None:
        return None, memory
    made, likelihood = PROGRAMS.prior(theta, of.unbounded, of.inputs)
    rows = (of.task.data, of.task.weight)
    problem = InferenceProblem.of(likelihood, of.method, of.model.process.refined(made), *rows)
    if len(of.task.padded) > problem.prior.largest_joint:
        return None, memory
    start = to_numpy(failed.out.at.sites) if paths else memory.sites(theta)
    at, _ = (continued if paths else by_newton)(problem, start, of.tol)
    if at is None:
        return None, memory
    return once(of, theta, at.sites, tol, memory._replace(continues=True))


STRATEGIES: Sequence[Callable[..., Tried]] = (_warm, _cold, _refined, _by_equations)


def tried(of: Objective, theta: Float[np.ndarray, " theta"], tol: float, memory: Memory) -> tuple[Point, Memory]:
    """The objective at θ by the first strategy that succeeds, and what the next evaluation starts from."""
    point: Any = None
    for strategy in STRATEGIES:
        found, memory = strategy(of, theta, tol, memory, point)
        point = point if found is None else found
        if point.usable:
            return point, memory.with_sites(point.theta, to_numpy(point.out.at.sites))
    return point, memory


def once(
    of: Objective, theta: np.ndarray, start: Natural, tol: float, memory: Memory, stages: Stages = PROGRAMS
) -> tuple[Point, Memory]:
    """The objective at θ; by the small quadrature rule as long as that is accurate enough."""
    if of.integrates and of.task.mesh is None and memory.unresolved < MAX_UNRESOLVED:
        quick = stages._replace(posed=InferenceProblem.with_few_nodes)
        point = _at_stages(of, theta, start, Precision(tol, min(of.max_sweeps, PATIENCE)), quick)
        if point.usable:
            return point, memory
        point = _at_stages(of, theta, start, Precision(tol, of.max_sweeps), stages)
        return point, memory._replace(unresolved=memory.unresolved + point.usable)
    return _at_stages(of, theta, start, Precision(tol, of.max_sweeps), stages), memory


@float64
def _at_stages(of: Objective, theta: np.ndarray, start: Natural, precision: Precision, stages: Stages) -> Point:
    """The objective at θ; all processes of a job go on with the numbers of the first."""
    began = time.perf_counter()
    theta = np.array(theta, dtype=np.float64)
    if of.task.mesh is not None:  # on one device programs take NumPy arrays as they are, which is quicker
        start = of.task.placed(start)
    found = evaluated(of.question, theta, start, precision, of.method, of.objective, of.exact, stages)
    reported = agreed(np.array([np.asarray(found.value), *np.asarray(found.gradient)], dtype=np.float64))
    out = _with_numbers(found.out)
    reason = how_it_ended(out.reason, float(np.asarray(found.adjoint_residual)))
    return Point(theta, float(reported[0]), reported[1:], found.likelihood, out, reason, time.perf_counter() - began)


def _with_numbers(out: Outcome) -> Outcome:
    """The outcome with what a search asks of it as NumPy's numbers: `float` of JAX's takes six times as long."""
    at = changed(out.at, residual=np.asarray(out.at.residual))
    return changed(out, at=at, sweeps=np.asarray(out.sweeps), reason=np.asarray(out.reason))
