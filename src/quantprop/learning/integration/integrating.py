"""The posterior over hyperparameters, and predictions averaged over it: `integrate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

import quantprop.storage  # noqa: F401  # so that results can be saved
from quantprop.core.parameters import as_fixed, at, box, declared, labels, packed
from quantprop.inference.inferring import solution_of
from quantprop.inference.integrated import Integrated, IntegrationStatus
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.results import Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.task import Task, task_of
from quantprop.learning.fitting import MAX_EVALUATIONS, as_given
from quantprop.learning.integration import designs
from quantprop.learning.integration.designs import Ask, Frame, Weighted, log_sum
from quantprop.learning.integration.hyperprior import hyperprior_of
from quantprop.learning.integration.surface import Answer, Surface
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.objectives import Evidence
from quantprop.learning.search import FTOL, Climb
from quantprop.learning.starts import units
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.threads import blas_threads_for

MAX_POINTS = 1024
TOL = 1e-5  # inference: EP's log evidence is then accurate to TOL², QP's and Laplace's to about as much
MAX_SWEEPS = 200
MAX_GRID = 2  # hyperparameters of a grid
MAX_COMPOSITE = 8  # hyperparameters of a central composite design
MIN_EFFICIENCY = 0.5  # importance sampling replaces a less efficient composite design
TARGET_EFFECTIVE = 100.0  # effective draws at which importance sampling stops
ROUGH_EFFECTIVE = 50.0  # with fewer effective draws the result is called rough
NEGLIGIBLE = 1e-6  # weight of a component that is omitted
DIFFERENCE = 0.02  # step of the differences of the gradient, in units of θ
BOUND_DISTANCE = 0.5  # posterior standard deviations, nearer than which is next to a bound


class Attempt(NamedTuple):
    """A scheme, and its weights of the points of a surface from `first` on."""

    scheme: str
    first: int
    weighted: Weighted


@checked(fitted=a(Fitted, "what fit returned (of an estimator: fitted_)"))
def integrate(
    fitted: Fitted,
    *,
    max_points: int = MAX_POINTS,
    seed: int = 0,
    tol: float = TOL,
) -> Integrated:
    """Average a learned model over the posterior of its hyperparameters.

    p(θ | y) ∝ q(y | θ) p(θ), with the method's evidence q, and logarithms of positive parameters in θ. Priors of the
    parameters are densities in these coordinates; a parameter without one has a weak prior that `integrated.priors`
    names. Never raises for lack of convergence: `integrated.status` reports how integration went and what to try.

    Args:
        fitted: What `fit` returned. Inducing points are fixed.
        max_points: Maximum number of values of θ for a grid and for importance sampling, which ends with a complete
            round of 64. A central composite design has a fixed size.
        seed: Seed of importance sampling.
        tol: Tolerance of inference, as in `infer`.

    Returns:
        Posteriors at several θ with their weights, which predict like a Solution.

    >>> import numpy as np
    >>> from quantprop import Model, fit, integrate, kernels, likelihoods
    >>> X = np.linspace(-2, 2, 12)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.3 * np.cos(9 * X[:, 0])
    >>> fitted = fit(Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3)), X, y, method="ep")
    >>> integrate(fitted).status.reason
    'converged'
    """
    solution = fitted.solution
    if not isinstance(solution, Solution):
        raise ValueError(
            "integrate supports models of one latent function; for three or more classes use "
            "GaussianProcessClassifier(multi_class='one_vs_rest', hyperparameters='integrated')"
        )
    return integrated_over(fitted, task_of(solution), MAX_SWEEPS, max_points, seed, tol)


def integrated_over(
    fitted: Fitted, task: Task, max_sweeps: int, max_points: int = MAX_POINTS, seed: int = 0, tol: float = TOL
) -> Integrated:
    """The posterior over the hyperparameters of a fit to checked data."""
    model = replace(fitted.model, process=as_fixed(fitted.model.process))  # it approximates, and has no hyperparameters
    landscape = Landscape(model, task, fitted.solution.method, Evidence(), True, tol, max_sweeps)
    surface, theta = Surface(landscape, hyperprior_of(landscape)), packed(landscape.parts)
    if not len(theta):
        return _alone(fitted, surface.prior.words, "nothing-to-integrate")
    with blas_threads_for(landscape.task.cost):
        landscape.compile()
        landscape.warmed(theta, fitted.solution.sites)
        mode = Climb(surface, box(surface.parts), MAX_EVALUATIONS, FTOL, lambda step, count: None).from_(theta).point
        if not mode.usable:
            return _alone(fitted, surface.prior.words, "no-mode")
        by = designs.frame(mode.theta, _precision(surface, mode), surface.prior.widest)
        inside, by = designs.within(by, mode.gradient, box(surface.parts))

        def ask(v: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, " k"]:
            return surface.ask(inside.theta(v)) + inside.log_volume(v)

        attempt = _weighted(surface, ask, by, max_points, seed)
    if not np.isfinite(attempt.weighted.log_weight).any():
        return _alone(fitted, surface.prior.words, "no-mode")
    return _result(surface, attempt)


def _precision(surface: Surface, mode: Point) -> Float[np.ndarray, "theta theta"]:
    """The negative Hessian at the mode, by central differences of the exact gradient; one-sided beside a bound."""
    bounds, step = box(surface.parts), DIFFERENCE * units(surface)
    rows = []
    for i, delta in enumerate(step):
        ends = np.clip(mode.theta[i] + np.array([-delta, delta]), *bounds[i])
        points = [surface.at(np.where(np.arange(len(step)) == i, end, mode.theta)) for end in ends]
        slopes = [point.gradient if point.usable else mode.gradient for point in points]
        wide = sum(point.usable * abs(end - mode.theta[i]) for point, end in zip(points, ends, strict=True))
        rows.append((slopes[0] - slopes[1]) / wide if wide > 0 else np.zeros(len(step)))
    return 0.5 * (np.array(rows) + np.array(rows).T)


def _weighted(surface: Surface, ask: Ask, by: Frame, most: int, seed: int) -> Attempt:
    """A grid or a central composite design, or if that is not accurate, importance sampling."""
    d, tried, first = len(by.mode), "", len(surface.values)
    if d <= MAX_GRID:
        found, tried = designs.grid(ask, by, most), "grid"
        if found is not None:
            return Attempt("grid", first, found)
    elif d <= MAX_COMPOSITE:
        found, tried = designs.composite(ask, by), "central composite design"
        if found.efficiency >= MIN_EFFICIENCY:
            return Attempt("central composite design", first, found)
    first = len(surface.values)
    scheme = f"{tried}, then importance sampling" if tried else "importance sampling"
    return Attempt(scheme, first, designs.importance(ask, by, TARGET_EFFECTIVE, most, seed))


def _result(surface: Surface, attempt: Attempt) -> Integrated:
    weighted, total = attempt.weighted, log_sum(attempt.weighted.log_weight)
    weights = np.exp(weighted.log_weight - total)
    rows = np.flatnonzero(weights > NEGLIGIBLE)
    weights = weights[rows] / weights[rows].sum()
    theta = np.array(surface.theta)[attempt.first + rows]
    few = attempt.scheme.endswith("importance sampling") and weighted.effective < ROUGH_EFFECTIVE
    status = IntegrationStatus(
        "few-effective-points" if few else "converged", attempt.scheme, len(surface.values), surface.failed,
        weighted.effective, weighted.efficiency, _at_bounds(surface.parts, theta, weights),
    )  # fmt: skip
    answers = surface.answered((attempt.first + rows).tolist())
    components = tuple(_components(surface.landscape, theta, answers))
    evidence = float(total) + surface.prior.constant
    return Integrated(components, weights, theta, evidence, surface.prior.words, status)


def _components(landscape: Landscape, theta: Float[np.ndarray, "m theta"], answers: list[Answer]) -> Iterator[Solution]:
    task, parts = landscape.task, declared(landscape.model)
    for place, (_, out, loo) in zip(theta, answers, strict=True):
        model = as_given(landscape.model, at(parts, place))
        if loo is None or not np.isfinite(loo[: len(task.x)]).all():
            loo = loo_at(landscape.method, model.plain_likelihood, task, out.at)
        yield solution_of(model, landscape.method, task, out, loo, "parallel", landscape.tol)


def _at_bounds(parts: Any, theta: Float[np.ndarray, "m theta"], weights: Float[np.ndarray, " m"]) -> tuple[str, ...]:
    """The entries of θ that have more than 1 % of their posterior next to a bound."""
    spread = np.sqrt(weights @ (theta - weights @ theta) ** 2)
    near = np.abs(theta[:, :, None] - box(parts)).min(axis=2) < BOUND_DISTANCE * spread
    return tuple(np.array(labels(parts))[weights @ near > 0.01].tolist())


def _alone(fitted: Fitted, words: dict[str, str], reason: str) -> Integrated:
    """A fit as its own and only component."""
    status = IntegrationStatus(reason, "none", 1, 0, 1.0, 1.0)
    solution = fitted.solution
    return Integrated((solution,), np.ones(1), fitted.theta[None], solution.log_evidence, words, status)
