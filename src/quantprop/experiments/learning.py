"""The learning of one method as the text of the paper has it, converged at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quantprop import Fitted, Model, Solution, fit
from quantprop.core.parameters import declared, named
from quantprop.core.records import changed
from quantprop.experiments.protocol import Experiment, TrainTest, follows_ep, model_of

LIMITS: dict[str, Any] = {"max_evaluations": 1000, "ftol": 1e-9}  # of the optimiser: those of the paper

Hyperparameters = Mapping[str, float | list[float]]


class Failed(ValueError):
    """There is no result, for the reason given."""


class Learned(NamedTuple):
    solution: Solution
    value: float
    evaluations: int
    status: str
    converged: bool


def by_the_text(experiment: Experiment, method: str, parts: TrainTest, ep: Hyperparameters) -> Learned:
    """Learn from each start, and keep the best end by the objective."""
    options = {"objective": experiment.objective, "gradient": gradient_of(experiment, method)}
    begin = starts(experiment, method, parts.x.shape[1], ep)
    return best_of([fit(start, parts.x, parts.y, method, **options, **LIMITS) for start in begin])


def gradient_of(experiment: Experiment, method: str) -> str:
    """Which gradient the optimiser gets: the paper's of QP holds the sites fixed, which is exact only for EP."""
    return "partial" if method == "qp" and experiment.variant != "clean" else "exact"


def best_of(ends: Sequence[Fitted]) -> Learned:
    usable = [end for end in ends if end.status.reason != "inference-failed"]
    if not usable:
        raise Failed("; ".join(f"{end.status}; {end.solution.status}" for end in ends))
    best = max(usable, key=lambda end: end.objective_value)
    status = f"{best.status}" if best.solution.converged else f"{best.status}; {best.solution.status}"
    if len(ends) > 1:
        status += f"; the best of {len(usable)} ends from {len(ends)} starts"
    evaluations = sum(end.status.evaluations for end in ends)
    ended = best.converged or (best.status.reason == "small-gain" and best.solution.converged)  # by the rule on gains
    return Learned(best.solution, best.objective_value, evaluations, status, ended)


def starts(experiment: Experiment, method: str, features: int, ep: Hyperparameters) -> list[Model]:
    """The start of learning: the published start, or EP's optimum for methods that follow EP.

    VB and Laplace in ``clean`` begin at both: from the published start alone VB may never leave a flat objective, and
    on separable data it does not converge at EP's optimum, where the kernel's variance is huge.
    """
    published = model_of(experiment, method, features)
    if not follows_ep(experiment.variant, method):
        return [published]
    return [model_at(published, ep)] + ([] if method == "qp" else [published])


def hyperparameters(model: Model) -> dict[str, float | list[float]]:
    return {name: np.asarray(p.value).tolist() for name, p in named(declared(model)) if not p.fixed}


def model_at(model: Model, numbers: Hyperparameters) -> Model:
    """A model with its kernel at stored numbers; one that stands at a bound is put back on it from its rounding."""
    kernel = model.kernel
    for name, (low, high) in kernel.bounds.items():
        value = np.clip(np.asarray(numbers[f"kernel.{name}"]), low, high)
        kernel = changed(kernel, **{name: value if value.ndim else float(value)})
    return changed(model, kernel=kernel)
