"""The problem of a search over many objectives of one form: one program evaluates a batch, each at its own θ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from quantprop.gaussian import Natural
from quantprop.inference.engine import Evaluation
from quantprop.inference.leave_one_out import loo_of
from quantprop.inference.status import CONVERGED, MAX_SWEEPS
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
)
from quantprop.learning.fitting import rule_for
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Objective
from quantprop.learning.quasi_newton import put
from quantprop.learning.search_state import Answers, End, Settings
from quantprop.learning.starts import further_start, units
from quantprop.learning.warm_starts import WarmStarts
from quantprop.methods import Method
from quantprop.parameters import box, packed, unpacked, values
from quantprop.runtime.batches import Rows, each, of, slots, stacked
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program

SWEEPS_AT_A_TIME = 25  # before the whole batch is looked at again: a slow problem does not keep the others waiting


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


class Inferring(NamedTuple):
    """What inference starts from: warm sites, or those that sweeps at the trial have reached."""

    warm: WarmStarts
    sites: Natural
    spent: Int[np.ndarray, " b"]  # sweeps at the trial
    cold: Bool[np.ndarray, " b"]  # whether it is tried from the likelihood's own sites, since warm ones failed


class BatchPoint(NamedTuple):
    """One problem's part of an evaluation; the seconds are its share of the batch's."""

    found: Found  # of the batch
    place: int
    reason: str
    sweeps: int
    seconds: float

    @property
    def out(self) -> Any:
        """How inference ended."""
        return of(self.found.out, self.place)


class Batch:
    """b objectives of one form."""

    def __init__(self, objectives: list[Landscape], settings: Settings) -> None:
        self.objective, self.objectives, self.settings = objectives[0], objectives, settings
        self.bounds, self.unit = box(self.objective.parts), units(self.objective)
        self.rule = rule_for(self.objective.parts, self.bounds / self.unit[:, None], settings.ftol)
        self.slots = slots(self.objective.task.cost, len(objectives))
        theta = np.array([packed(objective.parts) for objective in objectives])
        whole = [(one.unbounded, one.task.padded, one.task.data, one.task.weight) for one in objectives]
        with jax.enable_x64(True):
            parts, x, data, weight = jax.device_put(stacked(whole))
            self.batch = Question(parts, _inputs(theta, parts, x), data, weight)
            cold = to_numpy(_started(values(self.batch.parts.likelihood), self.batch.data))
        total = np.stack([objective.task.weight.total for objective in objectives])
        self.cold: Natural = jax.tree.map(lambda part: np.where(total > 0, total * part, 0.0), cold)
        self.first = theta

    def inference(self) -> Inferring:
        """What the first evaluations start from."""
        b = len(self.objectives)
        warm = WarmStarts.of(self.first, self.cold)
        return Inferring(warm, jax.tree.map(np.copy, self.cold), np.zeros(b, dtype=int), np.zeros(b, dtype=bool))

    def evaluate(self, inference: Inferring, rows: Rows, theta: np.ndarray, tol: np.ndarray) -> tuple[Any, Answers]:
        """The objectives of some problems, after some more sweeps. A trial that is still converging will be continued;
        one that failed from warm sites starts again from cold ones.
        """
        began, (warm, sites, spent, cold) = time.perf_counter(), jax.tree.map(np.copy, inference)
        theta = np.clip(theta, *self.bounds.T)
        fresh, afresh = (spent[rows] == 0)[:, None], cold[rows][:, None]
        start = jax.tree.map(
            lambda warm, cold, here: np.where(fresh, np.where(afresh, cold[rows], warm), here[rows]),
            warm.at(rows, theta), self.cold, sites,
        )  # fmt: skip
        found = self._found(rows, theta, start, tol)
        spent[rows] += found.out.sweeps
        usable = _usable(found)
        going = (found.out.reason == MAX_SWEEPS) & (spent[rows] < self.objective.max_sweeps)
        again = ~usable & ~going & ~cold[rows] & warm.seen[rows]
        finished = ~going & ~again
        seconds = (time.perf_counter() - began) / len(rows)
        points = [
            BatchPoint(found, i, how_it_ended(found.out.reason[i], found.adjoint_residual[i]), int(spent[row]), seconds)
            for i, row in enumerate(rows)
        ]
        warm = warm.add(rows[usable], theta[usable], of(found.out.at.sites, usable))
        sites = put(sites, rows[going], of(found.out.at.sites, going))
        spent[rows[~going]], cold[rows[finished]], cold[rows[again]] = 0, False, True
        answers = Answers(finished, found.value, self.unit * found.gradient, usable, found.out.at.residual, points)
        return Inferring(warm, sites, spent, cold), answers

    def _found(self, rows: Rows, theta: np.ndarray, start: Natural, tol: np.ndarray) -> Found:
        """Up to `slots` problems; the program always has all slots filled."""
        pick, one = np.resize(np.arange(len(rows)), self.slots), self.objective
        with jax.enable_x64(True):
            found = _evaluated(
                _picked(self.batch, rows[pick]), theta[pick], of(start, pick), tol[pick], SWEEPS_AT_A_TIME, len(rows),
                one.method, one.objective, exact=one.exact,
            )  # fmt: skip
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(rows)], found)

    def further_start(self, row: int, end: End) -> Any:
        """The rule and θ of one more start, if an end is suspicious."""
        return further_start(self.objectives[row], end.theta, self.bounds)

    def loo(self, ends: Sequence[Any]) -> dict[int, np.ndarray]:
        """Leave-one-out log densities at the ends at which inference converged."""
        good = [i for i, end in enumerate(ends) if end.why != "inference-failed"]
        if not good:
            return {}
        at = jax.tree.map(lambda *leaves: np.stack(leaves), *(ends[i].point.out.at for i in good))
        with jax.enable_x64(True):
            rows = _picked(self.batch, np.array(good))
            loo = _loo_at(rows, np.array([ends[i].theta for i in good]), at, self.objective.method)
        return dict(zip(good, np.asarray(loo), strict=True))


def _usable(found: Found) -> np.ndarray:
    """Where inference converged and everything is a number."""
    numbers = np.isfinite(found.value) & np.isfinite(found.gradient).all(axis=1)
    return (found.out.reason == CONVERGED) & (found.adjoint_residual <= ADJOINT) & numbers
