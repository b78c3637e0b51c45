"""Starts for a parameter that varies with x: from a fit in which it is constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import at, box, labels, packed
from quantprop.core.records import changed
from quantprop.kernels import PerParameter
from quantprop.learning.landscape import Landscape
from quantprop.learning.sizes import size_in
from quantprop.learning.starts import SUSPICIOUS, covariance_of
from quantprop.likelihoods import Varying
from quantprop.priors.per_function import Pair

NO_FUNCTION = 0.01  # variance of f between rows, relative to y, or to f with a constant parameter, that is too little
ALL_SCALE = (
    "f explains almost nothing that it explains with a constant {parameter}: the varying {parameter} may explain it "
    "instead; compare with a fit without varying=, or fix the lengthscale of f"
)

Theta = Float[np.ndarray, " theta"]


def constant_of(landscape: Landscape) -> Landscape:
    """The same rows under the model whose parameter is constant."""
    model = landscape.model
    assert isinstance(model.likelihood, Varying)
    assert isinstance(model.kernel, PerParameter)
    kernel, process = (Pair.of(part).function for part in (model.kernel, model.process))
    constant = replace(model, kernel=kernel, likelihood=model.likelihood.base, process=process)
    task = landscape.task._replace(model=constant, cost=process.cost(len(landscape.task.padded)))
    return Landscape(constant, task, landscape.method, landscape.objective, landscape.exact, landscape.tol,
                     landscape.max_sweeps)  # fmt: skip


def joined(landscape: Landscape, constant: Landscape, theta: Theta) -> Theta:
    """θ with f and the likelihood as at θ of the constant parameter; the parameter's kernel as given."""
    parts, own = landscape.parts, at(constant.parts, theta)
    return packed(parts._replace(
        kernel=changed(parts.kernel, function=own.kernel), likelihood=changed(parts.likelihood, base=own.likelihood),
        mean=own.mean, process=changed(parts.process, function=own.process),
    ))  # fmt: skip


def may_lack_function(landscape: Landscape, theta: Theta) -> bool:
    """Return whether f at θ hardly varies between rows, in units of y or, if f has none, by itself."""
    return _signal(landscape, theta) < NO_FUNCTION * _unit(landscape)


def lacks_function(landscape: Landscape, theta: Theta, start: Theta) -> bool:
    """Return whether f varies at a start from the constant parameter, and much less at θ."""
    there = _signal(landscape, start)
    return there >= SUSPICIOUS * _unit(landscape) and _signal(landscape, theta) < NO_FUNCTION * there


def _unit(landscape: Landscape) -> float:
    return 1.0 if landscape.parts.likelihood.base.noise_name is None else size_in(landscape).spread ** 2


def _signal(landscape: Landscape, theta: Theta) -> float:
    """Prior variance of f between rows; wide terms, such as slopes, count as well."""
    k = covariance_of(at(landscape.parts, theta).kernel.function, landscape.task.x)
    return float(np.mean(np.diagonal(k)) - np.mean(k))


def held(landscape: Landscape, start: Theta) -> Float[np.ndarray, "theta 2"]:
    """The box in which only the kernel of the parameter is free, and all else stays at the start."""
    free = np.array([name.startswith("kernel.parameter") for name in labels(landscape.parts)])
    return np.where(free[:, None], box(landscape.parts), start[:, None])
