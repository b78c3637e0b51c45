"""What learning returns, and the registry of writers that store results in files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.inference.solution import Solution
from quantprop.model import Model
from quantprop.parameters import declared, free, labels
from quantprop.runtime.arguments import checked
from quantprop.runtime.display import html, of_fitted, text

_REMEDIES = {
    "converged": "",
    "max-evaluations": "raise max_evaluations",
    "small-gain": "steps gained next to nothing although more may be left: fit again from fitted.model, or with "
    "restarts; with a smaller ftol or a larger gtol if these were changed",
    "no-progress": "the line search could not improve along the gradient: inference may fail close by (see the trace), "
    "or the gradient be partial; fit again with restarts, or with gradient='exact'",
    "inference-failed": "inference did not converge at the start, or the equation for its gradient did not: "
    "see the trace and solution.status; gradient='partial' needs no such equation",
    "nothing-to-learn": "",
}


@dataclass(frozen=True)
class Ending:
    """How learning ended: a reason, the numbers behind it, and what to try.

    Attributes:
        reason: "converged", "nothing-to-learn", "max-evaluations", "small-gain", "no-progress" or "inference-failed".
        evaluations: how often the objective was evaluated, restarts included.
        failed: at how many of them inference failed, so that the optimiser backed off.
        gradient: the largest entry of the projected gradient at the end.
        at_bounds: names of the parameters that ended at a bound.
        remaining: the gain in nats that can still be expected, ½ gᵀH⁻¹g with the gradient g and the curvature H; below
            1e-4, or the rounding error of the objective, learning has converged. NaN where it is not known.
    """

    reason: str
    evaluations: int
    failed: int  # evaluations at which inference failed and the optimiser backed off
    gradient: float
    at_bounds: tuple[str, ...]
    remaining: float = math.nan

    @property
    def remedy(self) -> str:
        """What to try, empty if nothing is wrong."""
        return _REMEDIES[self.reason]

    def __str__(self) -> str:
        ended = f"{self.reason} after {self.evaluations} evaluations: largest projected gradient {self.gradient:.1e}"
        ended += "" if math.isnan(self.remaining) else f", {self.remaining:.1e} nats left to gain"
        return in_words(ended, self.failed, self.at_bounds, self.remedy)


def in_words(ended: str, failed: int, at_bounds: tuple[str, ...], remedy: str) -> str:
    """A status: how something ended, at how many points inference failed, what is at a bound, and what to try."""
    failures = f"inference failed at {failed} of them" if failed else ""
    bounds = f"at a bound: {', '.join(at_bounds)}" if at_bounds else ""
    return "; ".join(part for part in (ended, failures, bounds, remedy) if part)


@dataclass(frozen=True)
class Step:
    """One evaluation in the trace of a fit.

    Attributes:
        restart: which start it belongs to; 0 is the first.
        theta: where it was, in the optimiser's coordinates.
        value: the objective there.
        gradient: the largest entry of the projected gradient.
        reason: how inference ended, or "adjoint-failed".
        sweeps: of inference.
        seconds: that it took, compilation included.
    """

    restart: int
    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: float
    reason: str
    sweeps: int
    seconds: float


@dataclass(frozen=True)
class Fitted:
    """A learned model, its posterior, and how learning went.

    Attributes:
        model: the model with its learned numbers.
        solution: the posterior at these numbers.
        objective: the name of what was maximised.
        objective_value: its value, with the log prior densities of parameters that have one.
        theta: the optimum in the optimiser's coordinates: logarithms of positive parameters.
        trace: every evaluation on the way.
        status: how learning ended.
    """

    model: Model
    solution: Solution
    objective: str
    objective_value: float
    theta: Float[np.ndarray, " theta"]
    trace: tuple[Step, ...]
    status: Ending

    def __repr__(self) -> str:
        return text(of_fitted(self))

    def _repr_html_(self) -> str:
        return html(of_fitted(self))

    @property
    def converged(self) -> bool:
        """Whether an optimum was reached and inference converged there."""
        return self.status.reason in ("converged", "nothing-to-learn") and self.solution.converged

    @property
    def hyperparameters(self) -> dict[str, float]:
        """Learned numbers by name, in natural units."""
        names = labels(declared(self.model))
        numbers = np.concatenate([np.zeros(0), *(np.ravel(p.value) for p in free(declared(self.model)))])
        return dict(zip(names, map(float, numbers), strict=True))

    def save(self, path: Any) -> None:
        """Write to one file, to be read by `quantprop.load`."""
        write(self, path)


# --- files -----------------------------------------------------------------------------------------------------------

WRITERS: dict[type, Callable[[Any, Any], None]] = {}  # by type of result; modules that can write one register it here


@checked()
def write(result: Any, path: Any) -> None:
    """Write a result to one file, by the writer of its type or of the nearest one that it inherits from."""
    writer = next(WRITERS[kind] for kind in type(result).__mro__ if kind in WRITERS)
    writer(result, path)
