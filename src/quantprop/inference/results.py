"""Results of learning, and the registry of writers that store results in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import declared, free, labels
from quantprop.inference.solution import Solution
from quantprop.inference.status import Ending
from quantprop.model import Model
from quantprop.runtime.arguments import checked
from quantprop.runtime.display import of_fitted, summarised


@dataclass(frozen=True)
class Step:
    """One evaluation in the trace of a fit.

    Attributes:
        restart: index of the start; 0 is the first.
        theta: the point, in the coordinates of the search.
        value: the objective there.
        gradient: largest entry of the projected gradient.
        reason: why inference stopped, or "adjoint-failed".
        sweeps: number of sweeps.
        seconds: duration, including compilation.
    """

    restart: int
    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: float
    reason: str
    sweeps: int
    seconds: float


@summarised(of_fitted)
@dataclass(frozen=True)
class Fitted:
    """A learned model, its posterior, and the trace of the search.

    Attributes:
        model: the model with its learned parameters.
        solution: the posterior at these parameters.
        objective: name of the objective.
        objective_value: its value, including log prior densities of parameters.
        theta: the optimum in the coordinates of the search: logarithms of positive parameters.
        trace: every evaluation of the objective.
        status: why learning stopped.
        inside: what an estimator does of which this is a part, if its user has X or y in other terms.
    """

    model: Model
    solution: Solution
    objective: str
    objective_value: float
    theta: Float[np.ndarray, " theta"]
    trace: tuple[Step, ...]
    status: Ending
    inside: str = ""

    @property
    def converged(self) -> bool:
        """True if an optimum was reached and inference converged there."""
        return self.status.reason in ("converged", "nothing-to-learn") and self.solution.converged

    @property
    def hyperparameters(self) -> dict[str, float]:
        """Learned hyperparameters by name, in natural units."""
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
