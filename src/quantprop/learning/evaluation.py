"""The objective at θ: prior, inference, gradient. Written once, for every search and for one problem or a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from quantprop.core.data import pad
from quantprop.core.gaussian import Natural
from quantprop.core.parameters import Parameter, declared, log_prior, unpacked
from quantprop.inference.engine import REASONS, InferenceProblem, Outcome, solve_parallel
from quantprop.inference.task import Task
from quantprop.learning.implicit import Gradient, gradient
from quantprop.learning.objectives import Objective
from quantprop.likelihoods.base import Datum
from quantprop.methods import Method
from quantprop.methods.base import Weight
from quantprop.model import Model, is_opaque, mean_at
from quantprop.priors import Prior
from quantprop.runtime.programs import program

ADJOINT = 1e-5  # largest relative residual of the gradient's equation at which the gradient is used


class Declared(NamedTuple):
    """The parts of a model, every number declared as a Parameter."""

    kernel: Any
    likelihood: Any
    mean: Any
    process: Any


def declared_parts(model: Model, task: Task) -> Declared:
    """The declared parts of a model; a mean that is an opaque function becomes its values at the inputs."""
    whole = declared(model)
    mean = whole.mean
    if is_opaque(model.mean):
        mean = Parameter(pad(model.prior_mean(task.x), len(task.padded)), fixed=True)
    return Declared(whole.kernel, whole.likelihood, mean, whole.process)


class Inputs(NamedTuple):
    """The rows of X, and what the process needs of them at every θ."""

    x: Float[Array, "n d"]
    prepared: Any


def inputs_of(theta, parts: Declared, x) -> Inputs:
    """Quantities computed from x once; θ only sets the parameters of kernel and process."""
    plain = unpacked(parts, theta)
    return Inputs(x, plain.process.prepare(plain.kernel, x))


class Question(NamedTuple):
    """All that defines an objective but θ: one problem's, or many problems' stacked."""

    parts: Declared
    inputs: Inputs
    data: Datum
    weight: Weight


class Precision(NamedTuple):
    tol: Any
    max_sweeps: Any


class Found(NamedTuple):
    """The objective at θ with its gradient, and how inference went there."""

    value: Any
    gradient: Any
    likelihood: Any  # at θ
    out: Outcome
    adjoint_residual: Any  # of the gradient's equation


# --- the stages ------------------------------------------------------------------------------------------------------


def prior(theta, parts: Declared, inputs: Inputs) -> tuple[Prior, Any]:
    plain = unpacked(parts, theta)
    mean = jnp.broadcast_to(mean_at(plain.mean, inputs.x), (len(inputs.x),)) + 0.0
    return plain.process.prior(plain.kernel, mean, inputs.prepared), plain.likelihood


def pull_back(theta, parts: Declared, inputs: Inputs, value, by: Gradient) -> tuple[Array, Array]:
    """The objective with the log prior densities of the parameters, and its gradient in θ."""

    def ends(theta):
        made, likelihood = prior(theta, parts, inputs)
        return made, ravel_pytree(likelihood)[0].astype(jnp.float64)  # ravel makes float32 of nothing

    slope = jax.vjp(ends, theta)[1]((by.prior, by.likelihood))[0]
    log_density, its_slope = jax.value_and_grad(lambda t: log_prior(parts, t))(theta)
    return value + log_density, slope + its_slope


class Stages(NamedTuple):
    """The stages of an evaluation: as functions inside a larger program, or as programs apart."""

    prior: Any = prior
    solved: Any = solve_parallel
    gradient: Any = gradient
    pull_back: Any = pull_back
    refined: Callable[[Prior], Prior] = lambda prior: prior  # of concrete numbers only, hence between programs
    posed: Callable[[InferenceProblem], InferenceProblem] = lambda problem: problem


# Programs apart, so that the two that take long to compile, solved and gradient, serve every kernel and all features.
PROGRAMS = Stages(
    program(prior), program(solve_parallel), program(gradient, static_argnames="exact"), program(pull_back)
)


def evaluated(
    question: Question, theta, start: Natural, precision: Precision, method: Method, objective: Objective, exact: bool,
    stages: Stages,
) -> Found:  # fmt: skip
    """The objective at θ, inference starting from the sites given."""
    parts, inputs, data, weight = question
    made, likelihood = stages.prior(theta, parts, inputs)
    problem = stages.posed(InferenceProblem.of(likelihood, method, stages.refined(made), data, weight))
    del made  # the gradient needs less of it: the rest can be freed
    out, rest, factor = stages.solved(problem, start, precision.tol, precision.max_sweeps)
    problem = replace(problem, prior=rest)
    value, by = stages.gradient(problem, objective, out.at, factor, exact=exact)
    value, slope = stages.pull_back(theta, parts, inputs, value, by)
    return Found(value, slope, likelihood, out, by.adjoint_residual)


def how_it_ended(reason: Any, adjoint_residual: float) -> str:
    """The reason for which inference ended, or the failure of the gradient's equation after it."""
    word = REASONS[int(reason)]
    return "adjoint-failed" if word == "converged" and not adjoint_residual <= ADJOINT else word
