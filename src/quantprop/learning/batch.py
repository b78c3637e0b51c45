"""Many objectives of one form, evaluated by one program, each at its own hyperparameters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import packed, unpacked, values
from quantprop.inference.engine import Evaluation
from quantprop.inference.engine.fixed_point import CONVERGED, MAX_SWEEPS
from quantprop.inference.leave_one_out import loo_of
from quantprop.learning.evaluation import (
    ADJOINT,
    Declared,
    Found,
    Precision,
    Question,
    Stages,
    evaluated,
    how_it_ended,
    inputs_of,
)  # fmt: skip
from quantprop.learning.objectives import Objective
from quantprop.learning.problem import Problem
from quantprop.learning.search import End, SearchState
from quantprop.learning.warm_starts import WarmStarts, extrapolated
from quantprop.methods import Method
from quantprop.runtime.batches import each, of, slots, stacked
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program

SWEEPS_AT_A_TIME = 25  # before the whole batch is looked at again: one slow problem does not keep the others waiting


def _evaluate(picked: Question, theta, start: Natural, tol, sweeps, used, method, objective: Objective, exact: bool):
    """The objectives of some problems, each at its own θ, from its own sites, to its own tolerance."""

    def one(question: Question, theta, start, tol) -> Found:
        return evaluated(question, theta, start, Precision(tol, sweeps), method, objective, exact, Stages())

    return each(one, used, picked, theta, start, tol)


def _loo(batch: Question, theta, at: Evaluation, method: Method):
    """Leave-one-out log densities of converged problems; a program of its own, since only ends need it."""

    def one(parts: Declared, data, weight, theta, at):
        return loo_of(method, unpacked(parts, theta).likelihood, data, weight, at)

    return jax.vmap(one)(batch.parts, batch.data, batch.weight, theta, at)


_inputs = program(lambda theta, parts, x: each(inputs_of, len(x), theta, parts, x))
_evaluated, _loo_at = program(_evaluate, static_argnames="exact"), program(_loo)
_picked = program(lambda batch, rows: of(batch, rows))  # apart, so that their number does not matter to the other
_started = program(
    lambda likelihood, data: jax.vmap(lambda one, rows: Natural(*jax.vmap(one.start)(rows)))(likelihood, data)
)


class BatchMemory(NamedTuple):
    """What a problem's next evaluation starts from: warm sites, or those that sweeps at the trial have reached."""

    warm: WarmStarts
    cold: Natural
    sites: Natural | None = None  # of sweeps that are to be continued
    spent: int = 0  # sweeps at the trial
    from_cold: bool = False  # True if warm sites have failed at the trial

    def start(self, warm: Natural) -> Natural:
        """The sites to start from, given warm ones at the trial."""
        return self.cold if self.from_cold and self.sites is None else warm if self.sites is None else self.sites


class BatchPoint(NamedTuple):
    """One problem's part of an evaluation; the seconds are its share of the batch's."""

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]
    reason: str
    residual: float
    sweeps: int
    seconds: float
    usable: bool
    found: Any  # of the batch
    place: int
    schedule: str = "parallel"

    def alone(self) -> BatchPoint:
        """The same without the rest of the batch."""
        return self._replace(found=jax.tree.map(np.copy, of(self.found, [self.place])), place=0)

    @property
    def out(self) -> Any:
        """How inference ended."""
        return of(self.found.out, self.place)


class Batch:
    """b objectives of one form."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems, self.first = problems, problems[0].objective
        objectives = [problem.objective for problem in problems]
        self.slots = slots(self.first.task.cost, len(objectives))
        self.theta = np.array([packed(one.parts) for one in objectives])
        whole = [(one.unbounded, one.task.padded, one.task.data, one.task.weight) for one in objectives]
        with jax.enable_x64(True):
            parts, x, data, weight = jax.device_put(stacked(whole))
            self.batch = Question(parts, _inputs(self.theta, parts, x), data, weight)
            cold = to_numpy(_started(values(self.batch.parts.likelihood), self.batch.data))
        total = np.stack([one.task.weight.total for one in objectives])
        self.cold: Natural = jax.tree.map(lambda part: np.where(total > 0, total * part, 0.0), cold)

    def memory(self, i: int) -> BatchMemory:
        """What a problem's first evaluation starts from."""
        cold = of(self.cold, i)
        return BatchMemory(WarmStarts.of(self.theta[i], cold), cold)

    def evaluate(self, rows: list[int], states: list[SearchState]) -> list[tuple[BatchPoint | None, BatchMemory]]:
        """Some more sweeps at the trials of up to `slots` problems. A trial that is still converging is continued by
        the next call; one that failed from warm sites starts again from cold ones.
        """
        began, memories = time.perf_counter(), [state.memory for state in states]
        theta = np.stack([self.problems[i].theta(state.trial) for i, state in zip(rows, states, strict=True)])
        warm = extrapolated([one.warm for one in memories], theta)
        starts = [one.start(of(warm, i)) for i, one in enumerate(memories)]
        start = Natural(np.stack([one.nu for one in starts]), np.stack([one.tau for one in starts]))
        found = self._found(np.array(rows), theta, start, np.array([state.tol for state in states]))
        seconds = (time.perf_counter() - began) / len(rows)
        columns = (found.value, found.out.reason, found.adjoint_residual, found.out.at.residual, found.out.sweeps)
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        finite = np.isfinite(found.value) & np.isfinite(found.gradient).all(axis=1)
        usable = ((found.out.reason == CONVERGED) & (found.adjoint_residual <= ADJOINT) & finite).tolist()
        answers: list[tuple[BatchPoint | None, BatchMemory]] = []
        for i, (value, code, adjoint, residual, sweeps) in enumerate(numbers):
            memory, sites = memories[i], of(found.out.at.sites, i)
            spent = memory.spent + sweeps
            if code == MAX_SWEEPS and spent < self.first.max_sweeps:
                answers.append((None, memory._replace(sites=sites, spent=spent)))
            elif not usable[i] and memory.warm.seen and not memory.from_cold:
                answers.append((None, memory._replace(sites=None, spent=0, from_cold=True)))
            else:
                reason = how_it_ended(code, adjoint)
                point = BatchPoint(theta[i], value, found.gradient[i], reason, residual, spent, seconds, usable[i],
                                   found, i)  # fmt: skip
                warm_starts = memory.warm.add(theta[i], sites) if usable[i] else memory.warm
                answers.append((point, BatchMemory(warm_starts, memory.cold)))
        return answers

    def _found(self, rows: np.ndarray, theta: np.ndarray, start: Natural, tol: np.ndarray) -> Found:
        """Up to `slots` problems; the program always has all slots filled."""
        pick, one = np.resize(np.arange(len(rows)), self.slots), self.first
        with jax.enable_x64(True):
            found = _evaluated(
                _picked(self.batch, rows[pick]), theta[pick], of(start, pick), tol[pick], SWEEPS_AT_A_TIME, len(rows),
                one.method, one.objective, exact=one.exact,
            )  # fmt: skip
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(rows)], found)

    def loo(self, ends: Sequence[End]) -> dict[int, np.ndarray]:
        """Leave-one-out log densities at the ends at which inference converged."""
        good = [i for i, end in enumerate(ends) if end.usable]
        if not good:
            return {}
        at = jax.tree.map(lambda *leaves: np.stack(leaves), *(ends[i].point.out.at for i in good))
        with jax.enable_x64(True):
            rows = _picked(self.batch, np.array(good))
            loo = _loo_at(rows, np.array([ends[i].theta for i in good]), at, self.first.method)
        return dict(zip(good, np.asarray(loo), strict=True))
