"""An objective as a function of the hyperparameters, with its gradient; sites are warm-started from call to call."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from quantprop.data import pad
from quantprop.engine import REASONS, Problem, solve_parallel
from quantprop.gaussian import Natural
from quantprop.implicit import gradient
from quantprop.infer import Task, starting_sites
from quantprop.methods import Method
from quantprop.model import Model, mean_at
from quantprop.objectives import Objective
from quantprop.parameters import Parameter, declared, log_prior, unpacked, values
from quantprop.precision import float64
from quantprop.priors import DensePrior


class Parts(NamedTuple):
    """What a model consists of, every number declared as a Parameter."""

    kernel: Any
    likelihood: Any
    mean: Any


def parts_of(model: Model, task: Task) -> Parts:
    """The declared parts of a model; a mean that is an opaque function becomes its values at the inputs."""
    whole = declared(model)
    if callable(model.mean) and not isinstance(model.mean, eqx.Module):
        at_inputs = pad(model.prior_mean(task.x), len(task.padded))
        return Parts(whole.kernel, whole.likelihood, Parameter(at_inputs, fixed=True))
    return Parts(whole.kernel, whole.likelihood, whole.mean)


class Point(NamedTuple):
    """One evaluation of an objective."""

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]
    sites: Natural
    reason: str
    sweeps: int
    residual: float
    seconds: float

    @property
    def usable(self) -> bool:
        """Whether inference converged and everything is a number."""
        return self.reason == "converged" and bool(np.isfinite(self.value)) and bool(np.isfinite(self.gradient).all())


def _evaluate(theta, parts: Parts, task, method, objective, start, tol, max_sweeps, exact):
    """Sites at rest for θ, the objective there (with the parameters' priors), and its gradient."""
    x, data, weight = task
    plain, back = jax.vjp(lambda t: unpacked(parts, t), theta)
    k, kernel_back = jax.vjp(lambda kernel: kernel.gram(x), plain.kernel)
    mean, mean_back = jax.vjp(lambda m: jnp.broadcast_to(mean_at(m, x), (len(x),)) + 0.0, plain.mean)
    problem = Problem(plain.likelihood, method, DensePrior(mean, k), data, weight)
    out = solve_parallel(problem, start, tol, max_sweeps)
    value, by = gradient(problem, objective, out.at.sites, exact)
    likelihood = ravel_pytree(plain.likelihood)[1](by.likelihood)
    total = back(Parts(kernel_back(by.covariance)[0], likelihood, mean_back(by.mean)[0]))[0]
    prior, prior_slope = jax.value_and_grad(lambda t: log_prior(parts, t))(theta)
    return value + prior, total + prior_slope, out


_compiled = partial(jax.jit, static_argnames="exact")(_evaluate)


@dataclass
class Landscape:
    """objective(θ) for one model, data set and method. Remembers the sites of the last usable point."""

    model: Model
    task: Task
    method: Method
    objective: Objective
    exact: bool = True
    tol: float = 1e-8
    max_sweeps: int = 200
    parts: Parts = field(init=False)
    cold: Natural = field(init=False)
    warm: Natural | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.parts = parts_of(self.model, self.task)
        self.cold = self.padded_sites(None)

    @float64
    def padded_sites(self, sites: Natural | None) -> Natural:
        """Sites to start from, checked and padded; None for the likelihood's own."""
        return starting_sites(values(self.parts.likelihood), self.task, sites)

    def at(self, theta: Float[np.ndarray, " theta"]) -> Point:
        """The objective at θ, from warm sites; once more from cold ones if that fails."""
        point = self._from(theta, self.cold if self.warm is None else self.warm)
        if not point.usable and self.warm is not None:
            point = self._from(theta, self.cold)
        if point.usable:
            self.warm = point.sites
        return point

    @float64
    def _from(self, theta: Float[np.ndarray, " theta"], start: Natural) -> Point:
        began = time.perf_counter()
        task = (self.task.padded, self.task.data, self.task.weight)
        value, slope, out = _compiled(
            np.asarray(theta, dtype=np.float64), self.parts, task, self.method, self.objective,
            start, self.tol, self.max_sweeps, exact=self.exact,
        )  # fmt: skip
        sites = jax.tree.map(np.asarray, out.at.sites)
        numbers = float(value), np.asarray(slope, dtype=np.float64)
        seconds = time.perf_counter() - began
        reason, sweeps = REASONS[int(out.reason)], int(out.sweeps)
        return Point(np.array(theta), *numbers, sites, reason, sweeps, float(out.at.residual), seconds)


def projected(gradient: np.ndarray, theta: np.ndarray, box: Float[np.ndarray, "theta 2"]) -> np.ndarray:
    """The gradient of a maximisation without the parts that point out of the box."""
    edge = 1e-9 * np.maximum(1.0, np.abs(theta))
    out = ((theta <= box[:, 0] + edge) & (gradient < 0)) | ((theta >= box[:, 1] - edge) & (gradient > 0))
    return np.where(out, 0.0, gradient)
