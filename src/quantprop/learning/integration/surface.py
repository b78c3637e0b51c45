"""The log posterior of hyperparameters: at one θ, for a search; and at many θ of the same data at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import box, log_prior
from quantprop.inference.engine import InferenceProblem, Outcome, solve_parallel
from quantprop.inference.engine.fixed_point import CONVERGED
from quantprop.inference.leave_one_out import for_loo, loo_of
from quantprop.learning.evaluation import Question, prior
from quantprop.learning.integration.hyperprior import HyperPrior
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.warm_starts import MEMORY, WarmStarts
from quantprop.methods import Method
from quantprop.runtime.batches import chunks, each, of, per_thread, slots, threads
from quantprop.runtime.programs import program
from quantprop.runtime.threads import one_blas_thread

MAX_BATCH = 64  # points of one program
USABLE = ("converged", "adjoint-failed")  # no gradient is needed


class Answer(NamedTuple):
    """The results at one θ, or with one entry per θ."""

    value: Any  # log evidence with the priors that parameters were given
    out: Outcome
    loo: Any  # log densities of left-out data: None, or with NaNs, if `loo_at` has to compute them


def _answers(question: Question, theta, start: Natural, tol, sweeps, used, method: Method) -> Answer:
    """The answers of one problem at several θ."""
    parts, inputs, data, weight = question

    def one(theta, start: Natural) -> Answer:
        made, likelihood = prior(theta, parts, inputs)
        problem = InferenceProblem.of(likelihood, method, made, data, weight)
        out, *_ = solve_parallel(problem, start, tol, sweeps)
        loo = loo_of(*for_loo(method, likelihood, weight), data, weight, out.at)
        return Answer(out.at.evidence + log_prior(parts, theta), out, loo)

    return each(one, used, theta, start)


_evaluated = program(_answers)


@dataclass
class Surface:
    """log p(y | θ) p(θ) of a landscape, up to the constant of the priors, and the answers wherever it was evaluated.

    A search sees a landscape with another value and gradient.
    """

    landscape: Landscape
    prior: HyperPrior
    theta: list[np.ndarray] = field(default_factory=list)  # of `ask`, in order
    values: list[float] = field(default_factory=list)  # −inf out of bounds, and where inference failed
    answers: list[Answer | None] = field(default_factory=list)
    failed: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.landscape, name)

    def at(self, theta: Float[np.ndarray, " theta"], tol: float = 0.0) -> Point:
        point = self.landscape.at(theta, tol)
        value, gradient = float(self.prior.log_density(point.theta)), self.prior.gradient(point.theta)
        return point._replace(value=point.value + value, gradient=point.gradient + gradient)

    def ask(self, theta: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, " k"]:
        """The log posterior at several θ: −inf outside the bounds, and where inference fails."""
        bounds = box(self.parts)
        inside = np.flatnonzero(((theta >= bounds[:, 0]) & (theta <= bounds[:, 1])).all(axis=1))
        values = np.full(len(theta), -np.inf)
        answers: list[Answer | None] = [None] * len(theta)
        for i, answer in zip(inside, self._solved(theta[inside]), strict=True):
            if answer is None:
                self.failed += 1
            else:
                values[i], answers[i] = answer.value + self.prior.log_density(theta[i]), answer
        self.theta += list(theta)
        self.values += values.tolist()
        self.answers += answers
        return values

    def _solved(self, theta: Float[np.ndarray, "k theta"]) -> list[Answer | None]:
        """The answers at several θ; if the batch fails, by the landscape's own remedies."""
        size = min(MAX_BATCH, slots(self.task.cost, MAX_BATCH))
        rows = chunks(len(theta), min(size, per_thread(len(theta))))
        with one_blas_thread(), ThreadPoolExecutor(threads()) as pool:
            answers = [one for some in pool.map(lambda r: self._batch(theta[r], size), rows) for one in some]
        return [self._alone(t) if one is None else one for t, one in zip(theta, answers, strict=True)]

    def _batch(self, theta: Float[np.ndarray, "k theta"], size: int) -> list[Answer | None]:
        landscape, k, start = self.landscape, len(theta), self._starts(theta)
        fill = np.resize(np.arange(k), size)
        with jax.enable_x64(True):
            answer = _evaluated(
                landscape.question, theta[fill], of(start, fill), landscape.tol, landscape.max_sweeps, k,
                landscape.method,
            )  # fmt: skip
        answer = jax.tree.map(np.asarray, answer)
        good = (answer.out.reason == CONVERGED) & np.isfinite(answer.value)
        return [of(answer, i) if good[i] else None for i in range(k)]

    def _starts(self, theta: Float[np.ndarray, "k theta"]) -> Natural:
        """Sites extrapolated to several θ, each from the nearest at which they are known, in units of their spread."""
        known = [i for i, answer in enumerate(self.answers) if answer is not None]
        if len(known) < MEMORY:
            return self.landscape.warm_starts.at(np.zeros(len(theta), dtype=int), theta)
        places = np.array(self.theta)[known]
        away = theta[:, None] - places
        distance = np.einsum("kmi,ij,kmj->km", away, np.linalg.pinv(np.atleast_2d(np.cov(places.T))), away)
        nearest = np.argsort(distance, axis=1)[:, MEMORY - 1 :: -1]

        def sites(rows: Any) -> Natural:
            found = [one.out.at.sites for one in self.answered([known[i] for i in rows])]
            return Natural(np.stack([site.nu for site in found]), np.stack([site.tau for site in found]))

        rows, first = np.arange(len(theta)), nearest[:, 0]
        starts = WarmStarts(places[first], sites(first))
        for one in nearest.T:
            starts.add(rows, places[one], sites(one))
        return starts.at(rows, theta)

    def _alone(self, theta: Float[np.ndarray, " theta"]) -> Answer | None:
        point = self.landscape.at(theta)
        if point.out is None or not np.isfinite(point.value) or point.reason not in USABLE:
            return None
        return Answer(point.value, point.out, None)

    def answered(self, rows: Sequence[int]) -> list[Answer]:
        """The answers at some of the points that have a value."""
        return [answer for i in rows if (answer := self.answers[i]) is not None]
