"""An objective as a function of the hyperparameters, with its gradient; sites are warm-started from call to call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from quantprop.data import pad
from quantprop.engine import REASONS, Outcome, Problem, solve_parallel
from quantprop.foretold import Known
from quantprop.gaussian import Natural
from quantprop.implicit import Gradient, gradient
from quantprop.infer import Task, loo_program, starting_sites
from quantprop.methods import Method
from quantprop.model import Model, mean_at
from quantprop.objectives import Objective
from quantprop.parameters import Parameter, declared, log_prior, packed, unpacked, values, without_bounds
from quantprop.precision import float64
from quantprop.priors import Prior
from quantprop.programs import compiling, program

ONE = np.zeros(1, dtype=int)  # the only problem there is
ADJOINT = 1e-5  # largest relative residual of the gradient's equation at which the gradient is used


class Parts(NamedTuple):
    """What a model consists of, every number declared as a Parameter."""

    kernel: Any
    likelihood: Any
    mean: Any
    process: Any


def parts_of(model: Model, task: Task) -> Parts:
    """The declared parts of a model; a mean that is an opaque function becomes its values at the inputs."""
    whole = declared(model)
    if callable(model.mean) and not isinstance(model.mean, eqx.Module):
        at_inputs = pad(model.prior_mean(task.x), len(task.padded))
        return Parts(whole.kernel, whole.likelihood, Parameter(at_inputs, fixed=True), whole.process)
    return Parts(whole.kernel, whole.likelihood, whole.mean, whole.process)


class Point(NamedTuple):
    """One evaluation of an objective."""

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]
    likelihood: Any  # at θ
    out: Outcome
    reason: str  # how inference ended, and the equation for the gradient after it
    seconds: float

    @property
    def usable(self) -> bool:
        """Whether inference converged and everything is a number."""
        return self.reason == "converged" and math.isfinite(self.value) and bool(np.isfinite(self.gradient).all())


def how_it_ended(reason: Any, adjoint_residual: float) -> str:
    """The word for how inference ended, and the equation for the gradient after it."""
    word = REASONS[int(reason)]
    return "adjoint-failed" if word == "converged" and not adjoint_residual <= ADJOINT else word


class Inputs(NamedTuple):
    """The rows of X, and what the process needs of them at every θ."""

    x: Float[Array, "n d"]
    prepared: Any


def inputs_of(theta, parts: Parts, x) -> Inputs:
    """What is computed of x once; θ only gives kernel and process their numbers."""
    plain = unpacked(parts, theta)
    return Inputs(x, plain.process.prepare(plain.kernel, x))


def prior(theta, parts: Parts, inputs: Inputs) -> tuple[Prior, Any]:
    """Prior and plain likelihood at θ."""
    plain = unpacked(parts, theta)
    mean = jnp.broadcast_to(mean_at(plain.mean, inputs.x), (len(inputs.x),)) + 0.0
    return plain.process.prior(plain.kernel, mean, inputs.prepared), plain.likelihood


def solved(problem: Problem, start: Natural, tol, max_sweeps) -> tuple[Outcome, Prior, Any]:
    """The sites at rest, and what the gradient there needs of the prior and of its factor."""
    out, factor = solve_parallel(problem, start, tol, max_sweeps)
    return out, *problem.prior.for_derivatives(factor)


def pull_back(theta, parts: Parts, inputs: Inputs, by: Gradient) -> tuple[Array, Array]:
    """Log prior densities of the parameters, and the gradient of objective and log priors in θ."""

    def ends(theta):
        made, likelihood = prior(theta, parts, inputs)
        return made, ravel_pytree(likelihood)[0].astype(jnp.float64)  # ravel makes float32 of nothing

    slope = jax.vjp(ends, theta)[1]((by.prior, by.likelihood))[0]
    log_density, its_slope = jax.value_and_grad(lambda t: log_prior(parts, t))(theta)
    return log_density, slope + its_slope


# Programs apart, so that those that take long to compile, the last two, serve every kernel and number of features.
prior_at, pulled_back, _inputs = program(prior), program(pull_back), program(inputs_of)
_solved, _gradient = program(solved), program(gradient, static_argnames="exact")
_compiled: set[Any] = set()  # forms and shapes of problems whose programs are there


@dataclass
class Landscape:
    """objective(θ) for one model, data set and method. Sites start from those that the last usable points foretell."""

    model: Model
    task: Task
    method: Method
    objective: Objective
    exact: bool = True
    tol: float = 1e-8
    max_sweeps: int = 200
    known_parts: Parts | None = None  # of the model, where another landscape has them already

    @cached_property
    def parts(self) -> Parts:
        """The model's parts, every number declared."""
        return parts_of(self.model, self.task) if self.known_parts is None else self.known_parts

    @cached_property
    def unbounded(self) -> Parts:
        """The same parts, as compiled programs see them."""
        return without_bounds(self.parts)

    @cached_property
    @float64
    def inputs(self) -> Inputs:
        """The padded inputs, prepared."""
        return _inputs(packed(self.parts), self.unbounded, self.task.padded)

    @cached_property
    def cold(self) -> Natural:
        """The likelihood's own starting sites."""
        return self.padded_sites(None)

    @cached_property
    def known(self) -> Known:
        """Sites at the last usable points."""
        return Known(packed(self.parts)[None], _one(self.cold))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is prepared of the inputs, which can be large and is soon computed again."""
        return {name: part for name, part in vars(self).items() if name != "inputs"}

    def at_rest(self) -> None:
        """Give the memory of what was prepared back."""
        vars(self).pop("inputs", None)

    @float64
    def padded_sites(self, sites: Natural | None) -> Natural:
        """Sites to start from, checked and padded; None for the likelihood's own."""
        return starting_sites(values(self.parts.likelihood), self.task, sites)

    def warmed(self, theta: Float[np.ndarray, " theta"], sites: Natural) -> None:
        """Start the next evaluation from sites that someone knows for θ."""
        self.known.add(ONE, theta[None], _one(self.padded_sites(sites)))

    def from_cold(self, theta: Float[np.ndarray, " theta"]) -> Point:
        """The objective at θ, whatever was evaluated before."""
        return self._from(theta, self.cold, self.tol)

    def at(self, theta: Float[np.ndarray, " theta"], tol: float = 0.0) -> Point:
        """The objective at θ, from warm sites; if that fails, from cold ones, and with smaller roundings.

        Inference stops at `tol` where that is larger than the landscape's own.
        """
        tol, warm = max(tol, self.tol), self.known.at(ONE, theta[None])
        point = self._from(theta, Natural(warm.nu[0], warm.tau[0]), tol)
        if not point.usable and self.known.seen.any():
            point = self._from(theta, self.cold, tol)
        if not point.usable and point.reason == "max-sweeps":
            point = self._from(theta, self.cold, tol, self.model.process.refined)
        if point.usable:
            self.known.add(ONE, point.theta[None], _one(point.out.at.sites))
        return point

    @float64
    def compile(self) -> None:
        """Compile what evaluations and the solution at the end need, unless it is there for such a problem."""
        theta = packed(self.parts)
        made, likelihood = prior_at.shapes(theta, self.unbounded, self.inputs)
        problem = Problem(likelihood, self.method, made, self.task.data, self.task.weight)
        leaves, form = jax.tree.flatten((problem, self.objective, self.unbounded, self.inputs))
        key = (form, tuple(np.shape(leaf) for leaf in leaves), self.exact)
        if key in _compiled:
            return
        with compiling(self._programs(theta, problem)):
            import_module("scipy.optimize")  # meanwhile: it takes as long to import as the rest of the library
        _compiled.add(key)

    def _programs(self, theta: Float[np.ndarray, " theta"], problem: Problem) -> Iterator[Any]:
        """All programs that are to come, the large ones first."""
        solving = (problem, self.cold, self.tol, self.max_sweeps)
        yield _solved.lowered(*solving)
        out, prior, factor = _solved.shapes(*solving)
        problem = replace(problem, prior=prior)
        yield _gradient.lowered(problem, self.objective, out.at, factor, exact=self.exact)
        _, by = _gradient.shapes(problem, self.objective, out.at, factor, exact=self.exact)
        yield pulled_back.lowered(theta, self.unbounded, self.inputs, by)
        yield loo_program.lowered(problem.likelihood, self.task.data, self.task.weight, out.at)

    @float64
    def _from(
        self, theta: Float[np.ndarray, " theta"], start: Natural, tol: float, refined: Callable = lambda prior: prior
    ) -> Point:
        """One evaluation; the process's `refined` gives a prior of smaller roundings, which may have to be compiled."""
        began = time.perf_counter()
        theta, parts, inputs = np.array(theta, dtype=np.float64), self.unbounded, self.inputs
        made, likelihood = prior_at(theta, parts, inputs)
        problem = Problem(likelihood, self.method, refined(made), self.task.data, self.task.weight)
        del made  # the gradient needs less of it: nothing shall hold the rest then
        out, rest, factor = _solved(problem, start, tol, self.max_sweeps)
        problem = replace(problem, prior=rest)
        value, by = _gradient(problem, self.objective, out.at, factor, exact=self.exact)
        log_prior, slope = pulled_back(theta, parts, inputs, by)
        slope, value = np.asarray(slope, dtype=np.float64), float(value) + float(log_prior)
        reason = how_it_ended(out.reason, float(by.adjoint_residual))
        return Point(theta, value, slope, likelihood, out, reason, time.perf_counter() - began)


def _one(sites: Natural) -> Natural:
    """Sites of one problem as a batch."""
    return Natural(np.asarray(sites.nu)[None], np.asarray(sites.tau)[None])
