"""Learning from rows that do not fit in memory: `fit_streamed`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural, Normal
from quantprop.core.parameters import at as at_theta
from quantprop.core.parameters import declared, is_parameter, log_prior, packed, values, without_bounds
from quantprop.inference.engine.fixed_point import Evaluation, InferenceProblem
from quantprop.inference.engine.streamed import Chunk, Factor, Passes, sites_of, solve_streamed, total
from quantprop.inference.inferring import all_finite
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.solution import Solution, Status
from quantprop.inference.task import Task, prepare, starting_sites
from quantprop.learning.evaluation import Declared, Inputs, declared_parts, prior, pull_back
from quantprop.learning.fingerprints import of_rows, together
from quantprop.learning.fitting import as_given, learn, starting_point
from quantprop.learning.implicit import gradient
from quantprop.learning.landscape import Point
from quantprop.learning.objectives import Evidence, Objective
from quantprop.learning.remaining import GRADIENT_TOL
from quantprop.learning.rows import CHUNK_ROWS, Rows, chunks
from quantprop.learning.rows import Arrays as Arrays
from quantprop.learning.search import FTOL
from quantprop.learning.warm_starts import Memory
from quantprop.methods import EP, Method
from quantprop.methods import by_name as method_by_name
from quantprop.methods.base import renewal
from quantprop.model import Model
from quantprop.priors import Inducing
from quantprop.priors.inducing.choice import chosen_among
from quantprop.priors.inducing.prior import InducingPredictor
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.batches import rowwise
from quantprop.runtime.jobs import LOOKED_AT, several
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program

PILOT = 16  # chunks that sweeps begin with, where there are many more


@checked(model=a(Model), rows=a(Rows, "rows to read: Arrays(X, y), or an object with __len__, read and take"))
def fit_streamed(
    model: Model,
    rows: Rows,
    method: Method | str = "ep",
    *,
    tol: float = 1e-8,
    max_evaluations: int = 300,
    ftol: float = FTOL,
    gtol: float = GRADIENT_TOL,
) -> Fitted:
    """Learn a model with inducing points from rows that are read again for every pass; in memory are their sites.

    The optimum is that of `fit`, and so are the arguments. Of the rows, the solution holds those of the first chunk.

    >>> import numpy as np
    >>> from quantprop import Inducing, Model, kernels, likelihoods
    >>> from quantprop.learning.streamed import Arrays, fit_streamed
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(8))
    >>> fit_streamed(model, Arrays(X, np.sign(np.sin(2 * X[:, 0]))), max_evaluations=2).solution.converged
    True
    """
    method = method_by_name(method)
    if not isinstance(model.process, Inducing) or not isinstance(method, EP) or not method.stationary:
        raise ValueError(
            "fit_streamed supports process=Inducing(points) with EP or power EP, whose gradients need no equation over "
            "all rows; for other methods use a sample of the rows, or more devices"
        )
    if several():
        raise ValueError("fit_streamed runs in one process: in a job, pass each process its own rows and use fit")
    landscape = StreamedLandscape.of(model, rows, method, tol)
    theta, bounds = starting_point(landscape.parts)
    found: Any = landscape  # it does for a search what a Landscape does
    return learn(found, [theta], bounds, max_evaluations, ftol, gtol=gtol, result=_fitted)


# --- the objective ---------------------------------------------------------------------------------------------------


@program
def _prior(theta, parts: Declared, x):
    return prior(theta, parts, Inputs(x, x))


@program
def _sloped(theta, parts: Declared, problem: InferenceProblem, objective: Objective, x, factor: Factor, sites: Natural):
    """A chunk's part of the objective and of its gradient, each with the log prior densities of the parameters."""
    made: Any = problem.prior
    post, zero = made.under(*factor, sites), jnp.zeros(())
    renew = partial(renewal, problem.method, problem.likelihood)
    values = rowwise(renew, problem.data, problem.weight, post.marginals, sites).value
    at = Evaluation(
        sites, sites, sites, post.marginals, values, post.log_determinant, zero, zero, zero, post.proper, jnp.asarray(0)
    )
    value, by = gradient(problem, objective, at, post.factor, exact=True)
    return pull_back(theta, parts, Inputs(x, x), value, by)


_log_prior = program(lambda parts, theta: jax.value_and_grad(lambda t: log_prior(parts, t))(theta))


@program
def _seen(problem: InferenceProblem, factor: Factor, sites: Natural):
    """Marginals of a chunk, and each y as the other rows predict it."""
    made: Any = problem.prior
    post = made.under(*factor, sites)
    rest = made.left_out(post, problem.weight.copies)
    return post.marginals, rowwise(problem.likelihood.predictive_log_prob, problem.data, rest)


@dataclass
class StreamedLandscape:
    """objective(θ) for a model and rows that are read a chunk at a time: the evidence of EP and power EP.

    `task` holds a sample of the rows, for whatever looks at data to choose a start or a unit. Sites are warm-started
    from call to call.
    """

    model: Model
    rows: Rows
    method: Method
    task: Task
    tol: float
    max_sweeps: int = 200
    objective: Objective = Evidence()
    exact: bool = True
    careful: bool = True  # the most sweeps, of two passes each, would be at the other end of the box
    sites: Natural = field(init=False)
    newest: Point | None = field(default=None, init=False)  # which the sites are of

    @staticmethod
    def of(model: Model, rows: Rows, method: Method, tol: float) -> StreamedLandscape:
        """With points chosen from all rows as `fit` chooses them, and the likelihood's own sites."""
        n, process = len(rows), model.process
        x, y = rows.take(np.arange(0, n, max(1, n // LOOKED_AT)))
        if isinstance(process, Inducing) and not is_parameter(process.points) and np.ndim(process.points) == 0:
            points = chosen_among(
                lambda k: rows.take(k)[0], n, process.count, process.seed, lambda: np.unique(x, axis=0)
            )
            model = replace(model, process=Inducing(points, process.learn, process.seed, process.jitter))
        task = prepare(model, x, y, method)
        made = StreamedLandscape(task.model, rows, method, task, tol)
        made.start()
        return made

    def start(self) -> None:
        n, likelihood = len(self.rows), values(self.parts.likelihood)
        self.sites = Natural(np.zeros(n), np.zeros(n))
        for rows, x, data, weight in chunks(self.rows, likelihood, self.size):
            own = self.task._replace(x=x[: rows.stop - rows.start], padded=x, data=data, weight=weight)
            start = float64(starting_sites)(likelihood, own, None)
            self.sites.nu[rows], self.sites.tau[rows] = start.nu[: len(own.x)], start.tau[: len(own.x)]

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def total(self) -> int:
        """The same, since it is of one process."""
        return self.count

    @cached_property
    def parts(self) -> Declared:
        return declared_parts(self.model, self.task)

    @cached_property
    def unbounded(self) -> Declared:
        """The same parts, as compiled programs see them."""
        return without_bounds(self.parts)

    def compile(self) -> None:
        """Programs are compiled when they are called."""

    def release(self) -> None:
        """Nothing is prepared."""

    def memory(self) -> Memory:
        """Warm start of the next evaluation: the newest sites."""
        n, size = len(self.rows), len(packed(self.parts))
        return Memory(np.zeros((0, size)), np.zeros((0, n)), np.zeros((0, n)), self.sites)

    def recall(self, memory: Memory) -> None:
        """Start the next evaluation from these sites."""
        self.sites.nu[:], self.sites.tau[:], self.newest = memory.newest.nu, memory.newest.tau, None

    @cached_property
    def fingerprint(self) -> str:
        """Tells its rows from others, in one pass."""
        n = len(self.rows)
        starts = range(0, n, CHUNK_ROWS)
        return together(np.array([of_rows(at, *self.rows.read(at, min(at + CHUNK_ROWS, n))) for at in starts]))

    @property
    def size(self) -> int:
        """Number of rows of a chunk, padded."""
        return min(CHUNK_ROWS, 32 * -(-len(self.rows) // 32))

    def pilot(self, theta: Float[np.ndarray, " theta"]) -> Passes | None:
        """Passes over some chunks, as far apart as can be, where there are at least twice as many."""
        n, size = len(self.rows), self.size
        every = -(-n // size) // PILOT
        seen = sum(min(size, n - start) for start in range(0, n, max(1, every) * size))
        return Passes(partial(self.chunks, theta, every), seen / n) if every > 1 else None

    def chunks(self, theta: Float[np.ndarray, " theta"], every: int = 1) -> Iterator[Chunk]:
        """Every chunk of rows, or every `every`-th, at θ."""
        for rows, x, data, weight in chunks(self.rows, values(self.parts.likelihood), self.size, every):
            made, likelihood = _prior(theta, self.unbounded, x)
            yield Chunk(InferenceProblem.of(likelihood, self.method, made, data, weight), rows, x)

    @float64
    def at(self, theta: Float[np.ndarray, " theta"], tol: float = 0.0) -> Point:
        """The objective at θ and its gradient, from the sites of the evaluation before."""
        began, theta = time.perf_counter(), np.array(theta, dtype=np.float64)
        before = Natural(self.sites.nu.copy(), self.sites.tau.copy())
        passes, tol = Passes(partial(self.chunks, theta)), max(tol, self.tol)
        end = solve_streamed(passes, self.sites, tol, self.max_sweeps, self.pilot(theta))
        value, slope = self._slope(theta, end.factor)
        seconds = time.perf_counter() - began
        point = Point(theta, value, slope, end.reason, end.residual, end.sweeps, seconds, None, end)
        if not point.usable:
            self.sites.nu[:], self.sites.tau[:] = before.nu, before.tau
        self.newest = point if point.usable else None
        return point

    def _slope(self, theta: Float[np.ndarray, " theta"], factor: Factor) -> tuple[float, np.ndarray]:
        """One pass: the sum of all chunks' parts, and the log prior densities once."""
        density, its_slope = _log_prior(self.unbounded, theta)

        def one(chunk: Chunk) -> tuple[Any, Any]:
            own = sites_of(self.sites, chunk)
            part = _sloped(theta, self.unbounded, chunk.problem, self.objective, chunk.inputs, factor, own)
            return part[0] - density, part[1] - its_slope

        value, slope = total(one, self.chunks(theta))
        size = jnp.sum(jnp.log(jnp.diagonal(factor.inverse)))
        return float(value + size + density), np.asarray(slope + its_slope)


@float64
def _fitted(landscape: StreamedLandscape, best: Point, trace: tuple[Step, ...], ending: Ending) -> Fitted:
    """The result at a point; the sites are brought there if the search has visited another since."""
    if best is not landscape.newest or best.residual > landscape.tol:
        best = landscape.at(best.theta)
    model = as_given(landscape.model, at_theta(declared(landscape.model), best.theta))
    first = next(landscape.chunks(best.theta))
    n, own = first.rows.stop, sites_of(landscape.sites, first)
    factor: Factor = best.out.factor
    marginals, loo = to_numpy(_seen(first.problem, factor, own))
    evidence = best.value - float(_log_prior(landscape.unbounded, best.theta)[0])
    finite = all_finite(model, evidence, marginals, loo, np.asarray(first.problem.weight.total))
    reason = best.reason if finite or best.reason != "converged" else "not-finite"
    status = Status(reason, best.sweeps, best.residual, landscape.tol, "parallel", int((landscape.sites.tau < 0).sum()))
    solution = Solution(
        model, landscape.method, np.asarray(first.inputs[:n]), Natural(own.nu[:n], own.tau[:n]),
        Normal(marginals.mean[:n], marginals.variance[:n]), evidence, loo[:n], status,
        posterior=InducingPredictor(*to_numpy(tuple(factor))),
    )  # fmt: skip
    return Fitted(model, solution, landscape.objective.name, best.value, best.theta, trace, ending)
