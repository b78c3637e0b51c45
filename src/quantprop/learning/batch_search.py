"""The search of `fit_many`: one program evaluates a batch of problems, each at its own hyperparameters."""

from __future__ import annotations

import time

import jax
import numpy as np

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import unpacked, values
from quantprop.inference.engine import Evaluation
from quantprop.inference.engine.fixed_point import CONVERGED, MAX_SWEEPS
from quantprop.inference.leave_one_out import loo_of
from quantprop.inference.results import Fitted, Step
from quantprop.learning.ascent import GOING, REASONS, Ascent, projected, steepness
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
from quantprop.learning.fitting import ending_of, fitted_at, learn, starting_point
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.objectives import Objective
from quantprop.learning.remaining import GRADIENT_TOL, Seen, remaining_gain
from quantprop.learning.search import FTOL, End
from quantprop.learning.starts import further_start, start_by
from quantprop.learning.trials import loose, rough
from quantprop.learning.warm_starts import WarmStarts
from quantprop.methods import Method
from quantprop.methods.base import each_row
from quantprop.runtime.batches import Rows, chunks, each, of, slots, stacked
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program

SPELL = 25  # sweeps before the whole batch is looked at again: one slow problem does not keep the others waiting


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
    lambda likelihood, data: jax.vmap(lambda one, rows: Natural(*each_row(one.start, rows)))(likelihood, data)
)


class BatchSearch:
    """Learning of b problems of one shape: an ascent, the sites it has seen, and those that each trial starts from."""

    def __init__(self, surfaces: list[Landscape], most: int, ftol: float) -> None:
        first, b = surfaces[0], len(surfaces)
        self.surfaces, self.first = surfaces, first
        theta, self.box = np.array([starting_point(s.parts)[0] for s in surfaces]), starting_point(first.parts)[1]
        self.ascent = Ascent(theta, self.box, 0.5 * GRADIENT_TOL, ftol, most)
        whole = [(s.unbounded, s.task.padded, s.task.data, s.task.weight) for s in surfaces]
        with jax.enable_x64(True):
            parts, x, data, weight = jax.device_put(stacked(whole))
            self.batch = Question(parts, _inputs(theta, parts, x), data, weight)
            cold = to_numpy(_started(values(self.batch.parts.likelihood), self.batch.data))
        self.slots = slots(first.task.cost, b)
        total = np.stack([s.task.weight.total for s in surfaces])
        self.cold: Natural = jax.tree.map(lambda part: np.where(total > 0, total * part, 0.0), cold)
        self.start: Natural = jax.tree.map(np.copy, self.cold)
        self.warm_starts = WarmStarts(theta, self.cold)
        self.spent = np.zeros(b, dtype=int)  # sweeps at the current trial
        self.warm = np.zeros(b, dtype=bool)  # whether it started from extrapolated sites
        self.seen = np.full(b, np.inf)  # slope at the current trial, where that is worth more sweeps
        self.traces: list[list[Step]] = [[] for _ in surfaces]
        self.known: list[list[Seen]] = [[] for _ in surfaces]
        self.ends: dict[int, Found] = {}  # the last evaluation of problems that ended as precisely as is asked

    def evaluate(self, rows: Rows, theta: np.ndarray, tol: np.ndarray) -> Found:
        """The objectives of up to `slots` problems; the program always has all slots filled."""
        pick, first = np.resize(np.arange(len(rows)), self.slots), self.first
        start = jax.tree.map(lambda part: part[rows[pick]], self.start)
        with jax.enable_x64(True):
            found = _evaluated(
                _picked(self.batch, rows[pick]), theta[pick], start, tol[pick], SPELL, len(rows), first.method,
                first.objective, exact=first.exact,
            )  # fmt: skip
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(rows)], found)

    def step(self) -> None:
        """One evaluation of as many unfinished problems as there are slots.

        A trial that is still converging, or not precise enough yet, is continued; one that failed from extrapolated
        sites starts again from cold ones; all others are reported to the ascent, which proposes the next trial.
        """
        began, first = time.perf_counter(), self.first
        rows = self.ascent.unfinished()[: self.slots]
        theta = self.ascent.trial[rows]
        incline = np.where(self.ascent.evaluations[rows] > 0, self.ascent.incline(rows), np.inf)
        incline = np.minimum(incline, self.seen[rows])
        found = self.evaluate(rows, theta, loose(first, incline))
        self.spent[rows] += found.out.sweeps
        usable = _usable(found)
        here = steepness(found.gradient, theta, self.box)
        finer = first.exact & usable & rough(found.out.at.residual, here, first.tol)
        self.seen[rows] = np.where(finer, here, np.inf)
        going = finer | ((found.out.reason == MAX_SWEEPS) & (self.spent[rows] < first.max_sweeps))
        again = ~usable & ~going & self.warm[rows]
        told = ~going & ~again
        self._start(rows[going], of(found.out.at.sites, going))
        self._restart(rows[again])
        self._note(rows[told], theta[told], here[told], of(found, told), (time.perf_counter() - began) / len(rows))
        self.warm_starts.add(rows[usable], theta[usable], of(found.out.at.sites, usable))
        self.ascent.tell(rows[told], found.value[told], found.gradient[told], usable[told])
        self._keep_ends(rows[told], theta[told], of(found, told))
        self._extrapolate(rows[told])

    def _start(self, rows: Rows, sites: Natural) -> None:
        self.start.nu[rows], self.start.tau[rows] = sites.nu, sites.tau

    def _restart(self, rows: Rows) -> None:
        self._start(rows, of(self.cold, rows))
        self.spent[rows], self.warm[rows] = 0, False

    def _extrapolate(self, rows: Rows) -> None:
        self._start(rows, self.warm_starts.at(rows, self.ascent.trial[rows]))
        self.spent[rows], self.warm[rows] = 0, True

    def _keep_ends(self, rows: Rows, theta: np.ndarray, found: Found) -> None:
        """Keep what was found where a search has ended and inference is precise: it need not be computed again."""
        ended = (self.ascent.reason[rows] != GOING) & (self.ascent.theta[rows] == theta).all(axis=1)
        for i in np.flatnonzero(ended & (found.out.at.residual <= self.first.tol)):
            self.ends[int(rows[i])] = of(found, i)

    def _note(self, rows: Rows, theta: np.ndarray, slopes: np.ndarray, found: Found, seconds: float) -> None:
        """A line of each problem's trace; the seconds are its share of the batch's."""
        for i, row in enumerate(rows):
            reason = how_it_ended(found.out.reason[i], found.adjoint_residual[i])
            value, slope, sweeps = float(found.value[i]), float(slopes[i]), int(self.spent[row])
            step = Step(0, theta[i], value, slope, reason, sweeps, seconds)
            self.traces[row].append(step)
            if reason == "converged" and np.isfinite([value, *found.gradient[i]]).all():
                self.known[row].append(Seen(theta[i], value, found.gradient[i]))

    def settled(self) -> tuple[Found, np.ndarray]:
        """All problems at their best θ, inference at its own tolerance, and their leave-one-out log densities."""
        every = range(len(self.surfaces))
        rest = np.array([i for i in every if i not in self.ends], dtype=int)
        for rows in (rest[some] for some in chunks(len(rest), self.slots)):
            found = self._settled(rows)
            self.ends.update((int(row), of(found, i)) for i, row in enumerate(rows))
        found = jax.tree.map(lambda *leaves: np.stack(leaves), *(self.ends[i] for i in every))
        with jax.enable_x64(True):
            return found, np.asarray(_loo_at(self.batch, self.ascent.theta, found.out.at, self.first.method))

    def _settled(self, rows: Rows) -> Found:
        theta, tol = self.ascent.theta[rows], np.full(len(rows), self.first.tol)
        self._start(rows, self.warm_starts.at(rows, theta))
        found = self.evaluate(rows, theta, tol)
        for _ in range(self.first.max_sweeps // SPELL):
            if not (found.out.reason == MAX_SWEEPS).any():
                break
            self._start(rows, found.out.at.sites)
            found = self.evaluate(rows, theta, tol)
        return found

    def results(self) -> list[Fitted]:
        """The learned models; a problem whose inference failed is fitted again alone, with all remedies of `fit`."""
        found, loo = self.settled()
        usable, slopes = _usable(found), steepness(found.gradient, self.ascent.theta, self.box)
        fitted = []
        for i, surface in enumerate(self.surfaces):
            if not usable[i]:
                start = starting_point(surface.parts)[0]
                fitted.append(learn(surface, [start], self.box, self.ascent.most, self.ascent.ftol))
            else:
                end, trace = self._end(i, of(found, i)), tuple(self.traces[i])
                ending = ending_of(surface, self.box, end, float(slopes[i]), trace)
                fitted.append(self._gone_further(surface, fitted_at(surface, end.point, trace, ending, loo[i])))
        return fitted

    def _end(self, i: int, found: Found) -> End:
        """Final point of one search, and the gain that can be expected from there."""
        theta = self.ascent.theta[i]
        left = remaining_gain(projected(found.gradient, theta, self.box), theta, self.known[i])
        point = Point(theta, float(found.value), found.gradient, "converged", 0.0, 0, 0.0, None, found.out)
        return End(point, REASONS[self.ascent.reason[i]], left)

    def _gone_further(self, surface: Landscape, end: Fitted) -> Fitted:
        """The end, or a better one: from the further start that `fit` would try after it, or from where it has not
        converged by the search of `fit`, which ends more precisely.
        """
        rule = None if end.status.reason == "max-evaluations" else further_start(surface, end.theta, self.box)
        if rule is not None:
            start = start_by(rule, surface, starting_point(surface.parts)[0], self.box)
        elif end.status.reason in ("small-gain", "no-progress") and surface.exact and self.ascent.ftol <= FTOL:
            start = end.theta
        else:
            return end
        other = learn(surface, [start], self.box, self.ascent.most, self.ascent.ftol)
        return max(end, other, key=lambda e: e.objective_value if e.status.reason != "inference-failed" else -np.inf)


def _usable(found: Found) -> np.ndarray:
    numbers = np.isfinite(found.value) & np.isfinite(found.gradient).all(axis=1)
    return (found.out.reason == CONVERGED) & (found.adjoint_residual <= ADJOINT) & numbers
