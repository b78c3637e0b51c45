"""The posterior over hyperparameters, and predictions averaged over it: `integrate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

import quantprop.storage  # noqa: F401  # so that results can be saved
from quantprop.inference.inferring import solution_of
from quantprop.inference.integrated import Integrated, IntegrationStatus
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.results import Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.task import Task, prepare
from quantprop.learning.fitting import One, as_given
from quantprop.learning.integration.belief import belief_of
from quantprop.learning.integration.designs import (
    Ask,
    Frame,
    Weighted,
    composite,
    frame,
    grid,
    importance,
    log_sum,
    within,
)
from quantprop.learning.integration.surface import Answer, Surface
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.objectives import Evidence
from quantprop.learning.search import init, run
from quantprop.learning.starts import units
from quantprop.model import Model
from quantprop.parameters import Parameter, at, box, declared, is_parameter, labels, packed
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.threads import blas_threads_for

POINTS = 1024  # at most
TOL = 1e-5  # of inference: a log evidence by EP is then right to its square, by QP or Laplace to about as much
SWEEPS = 200  # of one inference, at most
GRID = 2  # hyperparameters up to which there is a grid
COMPOSITE = 8  # and up to which there is a central composite design
NORMAL = 0.5  # efficiency of that design below which importance sampling takes its place
ENOUGH = 100.0  # effective draws of importance sampling
LEAST = 50.0  # below which its result is called rough
NEGLIGIBLE = 1e-6  # weight of a component that is left out
DIFFERENCE = 0.02  # step of the differences of the gradient, in units of θ
BESIDE = 0.5  # posterior standard deviations: nearer to a bound is next to it


class Attempt(NamedTuple):
    """What a scheme made of a surface: weights of the points that were asked for from `first` on."""

    scheme: str
    first: int
    weighted: Weighted

    @property
    def rows(self) -> tuple[list[int], Float[np.ndarray, " m"]]:
        """Which of the surface's points carry weight, and their weights."""
        weights = np.exp(self.weighted.log_weight - log_sum(self.weighted.log_weight))
        kept = np.flatnonzero(weights > NEGLIGIBLE)
        return (self.first + kept).tolist(), weights[kept] / weights[kept].sum()


@checked(fitted=a(Fitted, "what fit returned (of an estimator: fitted_)"))
def integrate(
    fitted: Fitted,
    *,
    max_points: int = POINTS,
    seed: int = 0,
    tol: float = TOL,
) -> Integrated:
    """Average a learned model over the posterior of its hyperparameters.

    p(θ | y) ∝ q(y | θ) p(θ), with the method's evidence q and θ in the coordinates of learning: logarithms of positive
    numbers. Its priors are those of the parameters, taken as densities in these coordinates; a number without one has
    a weak prior that `integrated.priors` names. Never raises for lack of convergence: `integrated.status` says how it
    went, and what to try.

    Args:
        fitted: What `fit` returned. Inducing points stay where they are.
        max_points: The most values of θ of a grid, and of importance sampling after it. A central composite design has
            the size that it has, and importance sampling ends with a whole round of 64.
        seed: Of importance sampling.
        tol: Of inference, as in `infer`.

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
            "integrate takes models of one latent function; three or more classes are averaged by "
            "GaussianProcessClassifier(multi_class='one_vs_rest', hyperparameters='integrated')"
        )
    data = solution.data
    if data is None:
        raise ValueError("fitted holds no observations (its file is of an earlier version): fit it again")
    exposure, trials = (None if (column == 1.0).all() else column for column in (data.exposure, data.trials))
    task = prepare(fitted.model, solution.X, data.y, solution.method, solution.weights, exposure, trials)
    if solution.posterior is not None and task.mesh is None:
        raise ValueError(
            "fitted holds a part of its rows only (they were divided among processes, or read from a file): integrate "
            "in the job that learned it, or learn from a sample of the rows"
        )
    return integrated_over(fitted, task, SWEEPS, max_points, seed, tol)


def _held(model: Model) -> Model:
    """The model with all numbers of its process fixed: they approximate, and are no hyperparameters."""

    def fixed(node: Any) -> Any:
        return Parameter(node.value, node.bounds, node.prior, True, node.ordered) if is_parameter(node) else node

    return replace(model, process=jax.tree.map(fixed, declared(model).process, is_leaf=is_parameter))


def integrated_over(
    fitted: Fitted, task: Task, max_sweeps: int, max_points: int = POINTS, seed: int = 0, tol: float = TOL
) -> Integrated:
    """The posterior over the hyperparameters of a fit to checked data."""
    landscape = Landscape(_held(fitted.model), task, fitted.solution.method, Evidence(), True, tol, max_sweeps)
    belief = belief_of(landscape)
    theta = packed(landscape.parts)
    if not len(theta):
        return _alone(fitted, belief.words, "nothing-to-integrate")
    surface = Surface(landscape.warmed(theta, fitted.solution.sites), belief)
    with blas_threads_for(landscape.task.cost):
        landscape.compile()
        mode = _mode(surface, theta)
        if mode is None:
            return _alone(fitted, belief.words, "no-mode")
        inside, by = within(
            frame(mode.theta, _precision(surface, mode), belief.widest), mode.gradient, box(surface.parts)
        )

        def ask(v: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, " k"]:
            return surface.ask(inside.theta(v)) + inside.log_volume(v)

        attempt = _weighted(surface, ask, by, max_points, seed)
    if not np.isfinite(attempt.weighted.log_weight).any():
        return _alone(fitted, belief.words, "no-mode")
    return _result(surface, attempt)


def _mode(surface: Surface, theta: Float[np.ndarray, " theta"]) -> Point | None:
    problem = One(surface, box(surface.parts))
    end = run(problem, init(problem, [[theta]], surface.memory)).logs[0].end
    return None if end is None or end.point is None else end.point


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
    """A grid or a central composite design, or where that cannot do it, importance sampling."""
    d, tried, first = len(by.mode), "", len(surface.values)
    if d <= GRID:
        found, tried = grid(ask, by, most), "grid"
        if found is not None:
            return Attempt("grid", first, found)
    elif d <= COMPOSITE:
        found, tried = composite(ask, by), "central composite design"
        if found.efficiency >= NORMAL:
            return Attempt("central composite design", first, found)
    first = len(surface.values)
    scheme = f"{tried}, then importance sampling" if tried else "importance sampling"
    return Attempt(scheme, first, importance(ask, by, ENOUGH, most, seed))


def _carrying(surface: Surface, attempt: Attempt) -> tuple[Float[np.ndarray, "m theta"], Float[np.ndarray, " m"]]:
    """The points that carry weight, and their weights."""
    rows, weights = attempt.rows
    return np.array(surface.theta)[rows], weights


def _result(surface: Surface, attempt: Attempt) -> Integrated:
    landscape, belief, weighted = surface.landscape, surface.belief, attempt.weighted
    (rows, weights), names = attempt.rows, np.array(labels(surface.parts))
    few = attempt.scheme.endswith("importance sampling") and weighted.effective < LEAST
    status = IntegrationStatus(
        "few-effective-points" if few else "converged", attempt.scheme, len(surface.values), surface.failed,
        weighted.effective, weighted.efficiency, tuple(names[_at_bounds(surface, attempt)].tolist()),
    )  # fmt: skip
    theta = np.array(surface.theta)[rows]
    components = tuple(_components(landscape, theta, surface.answered(rows)))
    total = float(log_sum(weighted.log_weight))
    return Integrated(components, weights, theta, total + belief.constant, belief.words, status)


def _components(landscape: Landscape, theta: Float[np.ndarray, "m theta"], answers: list[Answer]) -> Iterator[Solution]:
    task, parts = landscape.task, declared(landscape.model)
    for place, (_, out, loo) in zip(theta, answers, strict=True):
        model = as_given(landscape.model, at(parts, place))
        if loo is None or not np.isfinite(loo[: len(task.x)]).all():
            loo = loo_at(landscape.method, model.plain_likelihood, task, out.at)
        yield solution_of(model, landscape.method, task, out, loo, "parallel", landscape.tol)


def _at_bounds(surface: Surface, attempt: Attempt) -> Bool[np.ndarray, " theta"]:
    """Which entries of θ have more than 1 % of their posterior next to a bound."""
    theta, weights = _carrying(surface, attempt)
    spread = np.sqrt(weights @ (theta - weights @ theta) ** 2)
    near = np.abs(theta[:, :, None] - box(surface.parts)).min(axis=2) < BESIDE * spread
    return weights @ near > 0.01


def _alone(fitted: Fitted, words: dict[str, str], reason: str) -> Integrated:
    """A fit as its own and only component."""
    status = IntegrationStatus(reason, "none", 1, 0, 1.0, 1.0)
    solution = fitted.solution
    return Integrated((solution,), np.ones(1), fitted.theta[None], solution.log_evidence, words, status)
