"""EP and QP as in the authors' public code: the last stretch of learning does not wait for inference to converge.

Beyond the text of the paper, both methods resume from EP's optimum with few sweeps per evaluation, a loose stop of the
sweeps, and site precisions clipped at machine epsilon. It is here for the reproduction only: `fit` does none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import at, declared
from quantprop.core.sites import Marginal
from quantprop.experiments.learning import Failed, Learned, by_the_text, hyperparameters, model_at
from quantprop.experiments.protocol import Experiment, TrainTest, model_of, split
from quantprop.inference.engine import InferenceProblem, Outcome, swept
from quantprop.inference.engine.fixed_point import outcome
from quantprop.inference.engine.sequential import one_by_one
from quantprop.inference.inferring import solution_of
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.task import prepare
from quantprop.learning.evaluation import PROGRAMS, Found, Precision, evaluated
from quantprop.learning.fitting import starting_point
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.methods import Method
from quantprop.methods import by_name as method_by_name
from quantprop.methods.base import Renewal, Weight
from quantprop.priors import Prior
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

SWEEPS = 3  # per evaluation, at most
CHANGE = 1e-6  # mean square change of ν, and of τ, in a sweep below which no other follows
MAX_ITERATIONS = 10  # L-BFGS-B
EPSILON = float(np.finfo(np.float64).eps)
TOL = 1e-6  # residual at which an end counts as converged after all


class Clipped(Method):
    method: Method

    def renew(self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural) -> Renewal:
        new = self.method.renew(likelihood, datum, weight, marginal, site)
        return Renewal(_clipped(new.site), new.value, new.proper)


def _clipped(site: Natural) -> Natural:
    return Natural(site.nu, jnp.maximum(site.tau, EPSILON))


def sweep(problem: InferenceProblem, sites: Natural) -> Natural:
    """Every site renewed once, one after the other: Algorithm 1 of the paper, with clipping."""
    post = problem.prior.condition(sites, problem.negative_sites)
    clipping = InferenceProblem(
        problem.likelihood, Clipped(problem.method), problem.prior, problem.data, problem.weight
    )
    return one_by_one(clipping, post)


def few_sweeps(problem: InferenceProblem, start: Natural) -> tuple[Outcome, Any]:
    """At most SWEEPS sweeps, fewer if the sites hardly change; then their residual, and their factor."""
    counts = problem.weight.total > 0

    def unfinished(state):
        _, change, sweeps = state
        return (sweeps < SWEEPS) & (change >= CHANGE)

    def again(state):
        sites, _, sweeps = state
        new = sweep(problem, sites)
        squares = jax.tree.map(lambda a, b: jnp.mean((a - b) ** 2, where=counts), new, sites)
        return new, jnp.maximum(squares.nu, squares.tau), sweeps + 1

    first = jax.tree.map(lambda s: jnp.where(counts, s, 0.0), _clipped(start))
    sites, _, sweeps = jax.lax.while_loop(unfinished, again, (first, jnp.asarray(jnp.inf), jnp.asarray(0)))
    at, factor = swept(problem, sites)
    return outcome(at, sweeps, TOL, ~at.proper, at.proper), factor


@program
def _few(problem: InferenceProblem, start: Natural) -> tuple[Outcome, Prior, Any]:
    out, factor = few_sweeps(problem, start)
    return out, *problem.prior.for_derivatives(factor)


STAGES = PROGRAMS._replace(solved=lambda problem, start, tol, max_sweeps: _few(problem, start))


@float64
def visited(landscape: Landscape, theta: np.ndarray, start: Natural) -> Found:
    """The objective at θ after few sweeps from the sites given, and its gradient with the sites fixed."""
    asked, precision = landscape.question, Precision(TOL, SWEEPS)
    return evaluated(asked, theta, start, precision, landscape.method, landscape.objective, False, STAGES)


@dataclass
class Walk:
    """The objective from one evaluation to the next, the sites carried along unless their posterior is improper."""

    landscape: Landscape
    sites: Natural
    evaluations: int = 0

    def to(self, theta: np.ndarray) -> Found:
        point = visited(self.landscape, theta, self.sites)
        self.sites = point.out.at.sites if bool(point.out.at.proper) else self.sites
        self.evaluations += 1
        return point

    def negated(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        point = self.to(theta)
        return -float(point.value), -np.asarray(point.gradient)


@lru_cache(maxsize=1)
def optimum(experiment: Experiment) -> Learned:
    """EP's optimum by the text, where both methods resume; the last one is remembered for the second of them."""
    return by_the_text(experiment, "ep", split(experiment), {})


def as_coded(experiment: Experiment, method: str, parts: TrainTest) -> Learned:
    """EP or QP, resumed from EP's optimum and its sites."""
    from scipy.optimize import minimize  # here, since it takes as long to import as the rest of the library

    best = optimum(experiment).solution
    model = model_at(model_of(experiment, method, parts.x.shape[1]), hyperparameters(best.model))
    rule, objective = method_by_name(method), as_objective(experiment.objective)
    task = prepare(model, parts.x, parts.y, rule, None, None, None)
    landscape = Landscape(model, task, rule, objective, exact=False)
    walk = Walk(landscape, landscape.padded_sites(best.sites))
    theta, bounds = starting_point(landscape.parts)
    options = {"maxiter": MAX_ITERATIONS}
    ending = minimize(walk.negated, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    end = walk.to(ending.x)
    if not (np.isfinite(end.value) and bool(end.out.at.proper)):
        raise Failed(f"as-coded: no proper posterior at the end, after {walk.evaluations} evaluations")
    learned, loo = at(declared(model), np.array(ending.x)), loo_at(rule, end.likelihood, landscape.task, end.out.at)
    solution = solution_of(learned, rule, task, end.out, loo, "sequential", TOL)
    status = (
        f"as-coded: {ending.nit} iterations, {walk.evaluations} evaluations of at most {SWEEPS} sweeps; "
        f"residual {solution.status.residual:.1e}"
    )
    return Learned(solution, float(end.value), walk.evaluations, status, solution.converged)
