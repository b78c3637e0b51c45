"""Other modes of a posterior, found by inference from other starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from quantprop.core.data import bucket, pad
from quantprop.core.gaussian import Natural
from quantprop.inference.engine import REASONS, InferenceProblem, Outcome, solve_parallel
from quantprop.inference.prediction import padded_prior, padded_rows
from quantprop.runtime.precision import float64
from quantprop.runtime.programs import program

Solution = Any  # of `solution`, which imports this
MIN_DISTANCE = 1.0  # between the means of two modes, in posterior standard deviations
MAX_SWEEPS = 500
MIN_OTHER_EVIDENCE = 1e-3  # fraction of the evidence from which other modes matter

_solved = program(lambda problem, start, tol: solve_parallel(problem, start, tol, MAX_SWEEPS)[0])


@dataclass(frozen=True)
class Modes:
    """Log evidences of a solution and of the other solutions reached from different starts.

    Attributes:
        log_evidences: this solution's first.
        starts: how each was reached.
        unfinished: starts from which inference did not converge.
    """

    log_evidences: tuple[float, ...]
    starts: tuple[str, ...]
    unfinished: tuple[str, ...] = ()

    @property
    def others(self) -> float:
        """The share of the evidence that is not this mode's."""
        weights = np.exp(np.array(self.log_evidences) - max(self.log_evidences))
        return float(1.0 - weights[0] / weights.sum())

    @property
    def several(self) -> bool:
        """True if another mode matters."""
        return self.others > MIN_OTHER_EVIDENCE

    def __str__(self) -> str:
        rest = "".join(f"; a start from {name} did not converge" for name in self.unfinished)
        if len(self.starts) == 1:
            return f"no other mode was found{rest}"
        ends = ", ".join(f"{e:.3f} from {s}" for e, s in zip(self.log_evidences[1:], self.starts[1:], strict=True))
        said = "several modes: means, variances and evidence describe only one" if self.several else "one dominant mode"
        return (f"{said}; log evidence {self.log_evidences[0]:.3f} here, {ends}: other modes have "
                f"{100.0 * self.others:.3g} %{rest}")  # fmt: skip


@float64
def modes_of(solution: Solution) -> Modes:
    """The ends of inference from the other sign, and from the prior."""
    here = Modes((solution.log_evidence,), ("this start",))
    likelihood = solution.model.plain_likelihood
    if likelihood.log_concave:  # times a Gaussian: one mode
        return here
    if solution.data is None:
        raise ValueError(
            "the solution has no observations (its file was written by an earlier version): run infer again"
        )
    model, (weight, _, sites, _) = solution.model, padded_rows(solution)
    prior = model.process.refined(padded_prior(model, solution.X))
    data = pad(solution.data, bucket(len(solution.X)))
    problem = InferenceProblem.of(likelihood, solution.method, prior, data, weight)
    # The first start pulls f as far to the other side of 0: the square link identifies f up to its sign.
    starts = {"the other sign": Natural(-sites.nu, sites.tau), "the prior": jax.tree.map(np.zeros_like, sites)}
    sd = np.sqrt(solution.marginals.variance)
    ends, unfinished = [(solution.log_evidence, solution.marginals.mean, "this start")], []
    for name, start in starts.items():
        out: Outcome = _solved(problem, start, solution.status.tol)
        mean = np.asarray(out.at.marginals.mean)[..., : len(solution.X)]
        if REASONS[int(out.reason)] != "converged":
            unfinished.append(name)
        elif all(np.max(np.abs(mean - other) / sd) > MIN_DISTANCE for _, other, _ in ends):
            ends.append((float(out.at.evidence), mean, name))
    return Modes(tuple(end[0] for end in ends), tuple(end[2] for end in ends), tuple(unfinished))
