"""Weights of several models of the same data, by the densities of left-out rows: `stack`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.gaussian import Natural
from quantprop.core.parameters import as_fixed, at, box, declared, log_prior, packed
from quantprop.inference.classes import as_classes, as_factors
from quantprop.inference.engine import REASONS, InferenceProblem
from quantprop.inference.inferring import solution_of
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.results import Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import EQUAL_TO, Member, Stack
from quantprop.inference.task import task_of
from quantprop.learning.evaluation import PROGRAMS
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.learning.starts import units
from quantprop.runtime.arguments import checked
from quantprop.runtime.batches import side_by_side
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

DIFFERENCE_STEP = 1e-3  # in units of θ
SLOPE_TOL = 1e-8  # tolerance of inference; a slope has 1 / DIFFERENCE_STEP times this error
CONCENTRATION = 0.5  # a of the Dirichlet prior a Σ log w of the weights, which keeps every weight positive
WEIGHT_GAP = 1e-7  # nats: by how much other weights could be better at most
EQUAL = 1e-9  # largest difference between the densities of two models that count once


class LeftOut(NamedTuple):
    """Log densities of left-out rows by one model, corrected; and its effective number of hyperparameters."""

    loo: Float[np.ndarray, " n"]
    learned: float


@checked()
def stack(fitted: Sequence[Fitted] | Mapping[str, Fitted]) -> Stack:
    """Average learned models of the same data by how well they predict left-out rows.

    The weights maximise Σ_i s_i log Σ_k w_k p_k(y_i | the other rows) + ½ Σ_k log w_k, with s_i the weights of the
    rows (stacking: Yao, Vehtari, Simpson and Gelman 2018). The densities come from the cavities, at hyperparameters
    learned from row i too. They are lowered by g_iᵀ A⁻¹ g_i, with g_i = ∂ log p(y_i | the other rows, θ) / ∂θ and
    A = Σ_i s_i g_i g_iᵀ plus the precisions of the priors, which approximates the negative Hessian of the objective.

    Args:
        fitted: What `fit` returned for several models of the same X, y, weights and exposure, with the same or other
            likelihoods of y; with names if it is a mapping.

    Returns:
        The models and their weights, which predict like a Solution. Models without a proper density of every left-out
        row, models that have not converged, and models equal to an earlier one do not enter; `left_out` names them.

    >>> import numpy as np
    >>> from quantprop import Model, fit, kernels, likelihoods, stack
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> y = 2.0 * X[:, 0] + 0.3 * np.cos(9 * X[:, 0])
    >>> each = {"line": kernels.Linear(), "smooth": kernels.SquaredExponential()}
    >>> found = stack({name: fit(Model(k, likelihoods.Gaussian(0.3)), X, y, "ep") for name, k in each.items()})
    >>> found.heaviest.name
    'line'
    """
    if not isinstance(fitted, Mapping | Sequence) or not len(fitted):
        raise ValueError(f"fitted must hold one model or more, as fit returned them; got {fitted!r}")
    named = dict(fitted) if isinstance(fitted, Mapping) else {f"model {k + 1}": one for k, one in enumerate(fitted)}
    _check_same_data(named)
    left_out = {name: why for name, one in named.items() if (why := _why_not(one))}
    usable = {name: one for name, one in named.items() if name not in left_out}
    if not usable:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ValueError(f"no model could be stacked: {reasons}")
    first = next(iter(usable.values()))
    cost = first.model.process.cost(len(first.solution.X))
    entering: dict[str, LeftOut] = {}
    for name, found in zip(usable, side_by_side(corrected_loo, [*usable.values()], cost), strict=True):
        twin = next((other for other, known in entering.items() if np.abs(known.loo - found.loo).max() < EQUAL), None)
        if twin is None:
            entering[name] = found
        else:
            left_out[name] = f"{EQUAL_TO}{twin}"
    rows = _row_weights(first)
    weights = best_weights(np.stack([found.loo for found in entering.values()]), rows)
    members = (
        Member(name, named[name], float(w), float(np.average(found.loo, weights=rows)), found.learned, found.loo)
        for w, (name, found) in zip(weights, entering.items(), strict=True)
    )
    return Stack(tuple(members), left_out)


def _check_same_data(named: Mapping[str, Fitted]) -> None:
    """Raise unless all models were learned from the same rows, and these are here."""
    first = next(iter(named))
    for name, one in named.items():
        if not isinstance(one, Fitted):
            raise TypeError(f"fitted: {name} must be what fit returned (of an estimator: fitted_); "
                            f"got {type(one).__name__}")  # fmt: skip
        if as_factors(one).solution.posterior is not None:
            raise ValueError(f"fitted: the rows of {name} were divided among devices or read from a file; stack needs "
                             "all of them in one place: fit a sample of the rows")  # fmt: skip
        for what, of in _DATA.items():
            mine, other = (np.asarray(of(fit.solution), float) for fit in (one, named[first]))
            if not np.array_equal(mine, other, equal_nan=True):
                raise ValueError(f"models must be fitted to the same rows, but {what} of {name} and {first} differ")


def _targets(solution: Any) -> Any:
    if not isinstance(solution, Solution):
        return solution.y
    if solution.data is None:
        raise ValueError("a model has no observations (its file was written by an earlier version): fit it again")
    return solution.data.y


def _exposure(solution: Any) -> Any:
    return solution.data.exposure if isinstance(solution, Solution) and solution.data is not None else 1.0


_DATA: dict[str, Callable[[Any], Any]] = {
    "X": lambda solution: solution.X,
    "y": _targets,
    "weights": lambda solution: solution.weights,
    "exposure": _exposure,
}


def _row_weights(fitted: Fitted) -> np.ndarray:
    weights = fitted.solution.weights
    return np.ones(len(fitted.solution.loo)) if weights is None else np.asarray(weights)


def _why_not(fitted: Fitted) -> str:
    """The reason why a model cannot enter; empty if it can."""
    if not fitted.converged:
        return f"learning ended {fitted.status.reason}, inference {fitted.solution.status.reason}"
    improper = int(np.sum(~np.isfinite(fitted.solution.loo)))
    return f"{improper} rows have an improper cavity" if improper else ""


# --- the correction --------------------------------------------------------------------------------------------------


@float64
def corrected_loo(fitted: Fitted) -> LeftOut:
    """log p(y_i | the other rows) minus g_iᵀ A⁻¹ g_i: to first order, what row i adds to it by way of θ.

    Inducing points count as fixed.
    """
    solution, loo, rows = as_factors(fitted).solution, fitted.solution.loo, _row_weights(fitted)
    model = replace(solution.model, process=as_fixed(solution.model.process))
    theta = packed(declared(model))
    if not len(theta):
        return LeftOut(loo, 0.0)
    landscape = Landscape(model, task_of(solution), solution.method, Evidence(), True, SLOPE_TOL)
    unit = units(landscape)
    g = _slopes(landscape, theta, solution.sites, DIFFERENCE_STEP * unit) * unit  # the same step for all entries
    g[rows == 0] = 0.0
    bend = -np.asarray(_prior_curvature(landscape.unbounded, theta)) * unit * unit[:, None]
    values, vectors = np.linalg.eigh((rows[:, None] * g).T @ g + bend)
    seen = values > len(values) * np.finfo(float).eps * values[-1]  # others do not change any density
    taken = np.sum((g @ vectors[:, seen]) ** 2 / values[seen], axis=1)
    return LeftOut(loo - taken, float(rows @ taken))


@program
def _prior_curvature(parts: Any, theta: Float[np.ndarray, " theta"]) -> Any:
    return jax.hessian(partial(log_prior, parts))(theta)


def _slopes(
    landscape: Landscape, theta: Float[np.ndarray, " theta"], sites: Natural, steps: Float[np.ndarray, " theta"]
) -> Float[np.ndarray, "n theta"]:
    """∂ log p(y_i | the other rows) / ∂θ by one-sided differences, into the bounds."""
    here = _loo(landscape, theta, sites)
    steps = np.where(theta + steps <= box(landscape.parts)[:, 1], steps, -steps)
    return np.stack([(_loo(landscape, theta + step, sites) - here) / step.sum() for step in np.diag(steps)], axis=1)


def _loo(landscape: Landscape, theta: Float[np.ndarray, " theta"], sites: Natural) -> Float[np.ndarray, " n"]:
    """log p(y_i | the other rows) at θ by the programs of `fit`, from the sites given."""
    method, task, question = landscape.method, landscape.task, landscape.question
    made, likelihood = PROGRAMS.prior(theta, question.parts, question.inputs)
    problem = InferenceProblem.of(likelihood, method, made, question.data, question.weight)
    problem = problem.with_few_nodes() if landscape.on_few_nodes else problem
    out, *_ = PROGRAMS.solved(problem, landscape.padded_sites(sites), landscape.tol, landscape.max_sweeps)
    if REASONS[int(out.reason)] != "converged":
        landscape.warmed(theta, sites)
        likelihood, out = (point := landscape.at(theta)).likelihood, point.out
    left_out, model = loo_at(method, likelihood, task, out.at), at(declared(landscape.model), theta)
    return as_classes(solution_of(model, method, task, out, left_out, "parallel", landscape.tol)).loo


# --- the weights -----------------------------------------------------------------------------------------------------


def best_weights(logs: Float[np.ndarray, "k n"], rows: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
    """The maximum of Σ_i s_i log Σ_k w_k p_ik + a Σ_k log w_k over the simplex, by expectation maximisation.

    The objective F is concave: no other weights are better by more than max_k ∂F/∂w_k − Σ_k w_k ∂F/∂w_k.
    """
    logs, rows = logs[:, rows > 0], rows[rows > 0]
    densities = np.exp(logs - logs.max(axis=0))
    w = np.full(len(logs), 1.0 / len(logs))
    while True:
        slopes = densities @ (rows / (w @ densities)) + CONCENTRATION / w
        if slopes.max() - w @ slopes <= WEIGHT_GAP:
            return w
        w = w * slopes / (w @ slopes)
