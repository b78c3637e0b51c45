"""An objective as a function of the hyperparameters, with its gradient; sites are warm-started from call to call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import packed, values, without_bounds
from quantprop.core.records import changed
from quantprop.inference.continuation import by_newton, continued
from quantprop.inference.engine import PATIENCE, InferenceProblem
from quantprop.inference.leave_one_out import for_loo, loo_program
from quantprop.inference.task import Task, leaves_residuals, starting_sites
from quantprop.learning.evaluation import (
    PROGRAMS,
    Declared,
    Inputs,
    Precision,
    Question,
    Stages,
    declared_parts,
    evaluated,
    how_it_ended,
    inputs_of,
)
from quantprop.learning.fingerprints import of_rows, together
from quantprop.learning.objectives import Objective
from quantprop.learning.warm_starts import Memory, WarmStarts
from quantprop.likelihoods.base import Likelihood
from quantprop.methods import Method
from quantprop.model import Model, is_opaque
from quantprop.runtime.jobs import agreed, gathered, own_part
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import compile_ahead, program

R = TypeVar("R")

MAX_UNRESOLVED = 2  # evaluations that may fail with the small quadrature rule before it is given up
PREPARED = ("inputs", "question", "compiled")
SWEEPS_FAILED = ("max-sweeps", "stalled", "improper-cavities", "improper-start")
ONE = np.zeros(1, dtype=int)  # the only problem there is


class Point(NamedTuple):
    """One evaluation of an objective."""

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]
    reason: str  # how inference ended, and the equation for the gradient after it
    residual: float
    sweeps: int
    seconds: float
    likelihood: Any = None  # at θ
    out: Any = None  # an Outcome; None of a point that is only recorded

    @property
    def usable(self) -> bool:
        return self.reason == "converged" and math.isfinite(self.value) and bool(np.isfinite(self.gradient).all())


_inputs = program(inputs_of)


@dataclass
class Landscape:
    """objective(θ) for one model, data set and method. Sites are warm-started from the last usable points."""

    model: Model
    task: Task
    method: Method
    objective: Objective
    exact: bool = True
    tol: float = 1e-8
    max_sweeps: int = 200
    known_parts: Declared | None = None  # of the model, where another landscape has them already
    unresolved: int = 0  # evaluations at which the small quadrature rule was not accurate enough
    compiled: bool = False  # whether its programs have been compiled ahead
    continues: bool = False  # whether the search could begin only by what `infer` does where sweeps fail

    def __post_init__(self) -> None:
        if self.objective.name == "loo" and self.model.process.several_sites:
            raise ValueError(
                "objective='loo' is not supported for three or more classes: use objective='evidence'; solution.loo "
                "has the leave-one-out densities"
            )
        if self.objective.name == "loo" and leaves_residuals(self.model, self.method, self.task):
            raise ValueError(
                f"objective='loo' is not supported for {type(self.method).__name__} with "
                f"{type(self.model.process).__name__}, whose cavities do not leave single rows out: use EP or QP, or "
                "objective='evidence'"
            )

    @property
    def count(self) -> int:
        """Number of rows in this process."""
        return len(self.task.x)

    @property
    def total(self) -> int:
        """Number of rows in all processes, on which common decisions depend."""
        return self.task.total_rows

    @cached_property
    def parts(self) -> Declared:
        return declared_parts(self.model, self.task) if self.known_parts is None else self.known_parts

    @cached_property
    def unbounded(self) -> Declared:
        """The same parts, as compiled programs see them."""
        parts = without_bounds(self.parts)
        if self.task.mesh is None or not is_opaque(self.model.mean):
            return parts
        return parts._replace(mean=changed(parts.mean, value=self.task.placed(parts.mean.value)))

    @cached_property
    @float64
    def inputs(self) -> Inputs:
        return _inputs(packed(self.parts), self.unbounded, self.task.placed(self.task.padded))

    @cached_property
    def cold(self) -> Natural:
        """The likelihood's own starting sites."""
        return self.padded_sites(None)

    @cached_property
    def warm_starts(self) -> WarmStarts:
        return WarmStarts(packed(self.parts)[None], _one(self.cold))

    @cached_property
    @float64
    def question(self) -> Question:
        """All that defines the objective but θ, where it is computed."""
        return Question(self.unbounded, self.inputs, *self.task.placed((self.task.data, self.task.weight)))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is prepared of the inputs, which can be large and is soon computed again."""
        return {name: part for name, part in vars(self).items() if name not in PREPARED}

    def release(self) -> None:
        """Free the memory of what was prepared."""
        for name in PREPARED:
            vars(self).pop(name, None)

    @float64
    def padded_sites(self, sites: Natural | None) -> Natural:
        """Sites to start from, checked and padded; None for the likelihood's own."""
        return starting_sites(values(self.parts.likelihood), self.task, sites)

    def warmed(self, theta: Float[np.ndarray, " theta"], sites: Natural) -> None:
        """Warm-start the next evaluation from sites given for θ."""
        self.warm_starts.add(ONE, theta[None], _one(self.padded_sites(sites)))

    def memory(self) -> Memory:
        known = self.warm_starts.of_first(self.count)
        return known._replace(continues=self.continues, unresolved=self.unresolved)

    def recall(self, memory: Memory) -> None:
        """Go on as the landscape would have whose memory this is."""
        self.warm_starts.recall(memory)
        self.continues, self.unresolved = memory.continues, memory.unresolved

    @cached_property
    def fingerprint(self) -> str:
        """Tells its rows from others, in all processes together; where the prior mean is given by row, with that."""
        own, n = own_part(self.count), self.count
        mean = self.parts.mean.value if is_opaque(self.model.mean) else None
        rows = (self.task.data, self.task.weight, mean)
        given = [np.asarray(leaf)[:n] for leaf in jax.tree.leaves(rows) if np.ndim(leaf)]
        part = of_rows(own.start, self.task.x, *(column for column in given if len(column) == n))
        return together(np.concatenate([np.atleast_1d(each) for each in gathered(part)]))

    def from_cold(self, theta: Float[np.ndarray, " theta"]) -> Point:
        """The objective at θ, whatever was evaluated before."""
        return self._from(theta, self.cold, self.tol)

    def at(self, theta: Float[np.ndarray, " theta"], tol: float = 0.0) -> Point:
        """The objective at θ, from warm sites; if that fails, from cold ones, and with smaller rounding errors.

        Inference stops at `tol` where that is larger than the landscape's own.
        """
        tol, warm = max(tol, self.tol), self.warm_starts.at(ONE, theta[None])
        point = self._from(theta, Natural(warm.nu[0], warm.tau[0]), tol)
        if not point.usable and self.warm_starts.seen.any():
            point = self._from(theta, self.cold, tol)
        if not point.usable and point.reason == "max-sweeps":
            point = self._from(theta, self.cold, tol, PROGRAMS._replace(refined=self.model.process.refined))
        if not point.usable and point.reason in SWEEPS_FAILED:
            point = self._led_to(point, tol)
        if point.usable:
            self.warm_starts.add(ONE, point.theta[None], _one(point.out.at.sites))
        return point

    @float64
    def _led_to(self, point: Point, tol: float) -> Point:
        """If a search cannot begin because sweeps fail, evaluate from the end of the paths of `infer`, and by Newton's
        method from then on. A search that has begun by sweeps steps back instead.
        """
        paths = not self.warm_starts.seen.any()
        if self.task.mesh is not None or self.max_sweeps < PATIENCE or not (paths or self.continues):
            return point
        made, likelihood = PROGRAMS.prior(point.theta, self.unbounded, self.inputs)
        rows = (self.task.data, self.task.weight)
        problem = InferenceProblem.of(likelihood, self.method, self.model.process.refined(made), *rows)
        if len(self.task.padded) > problem.prior.largest_joint:
            return point
        warm = self.warm_starts.at(ONE, point.theta[None])
        start = to_numpy(point.out.at.sites) if paths else Natural(warm.nu[0], warm.tau[0])
        at, _ = (continued if paths else by_newton)(problem, start, self.tol)
        if at is None:
            return point
        self.continues = True
        return self._from(point.theta, at.sites, tol)

    @float64
    def compile(self, meanwhile: Callable[[], R] = lambda: None) -> R:
        """Compile what evaluations and the solution at the end need, unless already compiled for such a problem, and
        return what is to be done `meanwhile`. Where rows are divided among devices, programs are compiled when called.
        """
        if self.task.mesh is not None or self.compiled:
            return meanwhile()
        self.compiled = True
        theta = packed(self.parts)
        made, likelihood = PROGRAMS.prior.shapes(theta, self.unbounded, self.inputs)
        problem = InferenceProblem.of(likelihood, self.method, made, self.task.data, self.task.weight)
        problem = problem.with_few_nodes() if self.on_few_nodes else problem
        leaves, form = jax.tree.flatten((problem, self.objective, self.unbounded, self.inputs))
        key = (form, tuple(np.shape(leaf) for leaf in leaves), self.exact)
        left_out = for_loo(self.method, likelihood, self.task.weight)
        return compile_ahead(key, self._programs(theta, problem, left_out), meanwhile)

    def _programs(
        self, theta: Float[np.ndarray, " theta"], problem: InferenceProblem, left_out: tuple[Method | None, Likelihood]
    ) -> Iterator[Any]:
        """All programs that will be needed, the large ones first."""
        solving = (problem, self.cold, self.tol, self.max_sweeps)
        yield PROGRAMS.solved.ahead(*solving)
        yield PROGRAMS.prior.ahead(theta, self.unbounded, self.inputs)
        out, prior, factor = PROGRAMS.solved.shapes(*solving)
        differentiating = (replace(problem, prior=prior), self.objective, out.at, factor)
        yield PROGRAMS.gradient.ahead(*differentiating, exact=self.exact)
        value, by = PROGRAMS.gradient.shapes(*differentiating, exact=self.exact)
        yield PROGRAMS.pull_back.ahead(theta, self.unbounded, self.inputs, value, by)
        yield loo_program.ahead(*left_out, self.task.data, self.task.weight, out.at)

    @cached_property
    def careful(self) -> bool:
        """True if site updates integrate and the small quadrature rule may be accurate enough. Then a first step to the
        other end of the box is to be avoided, where they take hundreds of sweeps, and fail.
        """
        return self.method.on_few_nodes(values(self.parts.likelihood), self.task.weight)

    @property
    def on_few_nodes(self) -> bool:
        """True if the next evaluation is tried so."""
        return self.unresolved < MAX_UNRESOLVED and self.task.mesh is None and self.careful

    def _from(self, theta: Float[np.ndarray, " theta"], start: Natural, tol: float, stages: Stages = PROGRAMS) -> Point:
        """The objective at θ, by the small quadrature rule while it is accurate enough."""
        if not self.on_few_nodes:
            return self._evaluated(theta, start, Precision(tol, self.max_sweeps), stages)
        quick = stages._replace(posed=InferenceProblem.with_few_nodes)
        point = self._evaluated(theta, start, Precision(tol, min(self.max_sweeps, PATIENCE)), quick)
        if point.usable:
            return point
        point = self._evaluated(theta, start, Precision(tol, self.max_sweeps), stages)
        self.unresolved += point.usable
        return point

    @float64
    def _evaluated(
        self, theta: Float[np.ndarray, " theta"], start: Natural, precision: Precision, stages: Stages
    ) -> Point:
        began, theta = time.perf_counter(), np.array(theta, dtype=np.float64)
        if self.task.mesh is not None:  # on one device programs take NumPy arrays as they are, which is quicker
            start = self.task.placed(start)
        found = evaluated(self.question, theta, start, precision, self.method, self.objective, self.exact, stages)
        told = agreed(np.array([np.asarray(found.value), *np.asarray(found.gradient)], dtype=np.float64))
        # by NumPy, since `float` of JAX's numbers takes six times as long
        ended, left, residual, sweeps = map(
            np.asarray, (found.out.reason, found.adjoint_residual, found.out.at.residual, found.out.sweeps)
        )
        about = (how_it_ended(ended, float(left)), float(residual), int(sweeps), time.perf_counter() - began)
        return Point(theta, float(told[0]), told[1:], *about, found.likelihood, found.out)


def _one(sites: Natural) -> Natural:
    """Sites of one problem as a batch."""
    return jax.tree.map(lambda part: part[None], to_numpy(sites))
