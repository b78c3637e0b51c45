"""Why inference and learning stopped: every reason, the figures behind it, and the remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Reasons of sweeps, which compiled programs return by their index.
REASONS = ("converged", "max-sweeps", "stalled", "improper-cavities", "improper-start")
CONVERGED, MAX_SWEEPS, STALLED, IMPROPER_CAVITIES, IMPROPER_START = range(5)

REMEDIES = {
    # of inference
    "converged": "",
    "max-sweeps": "raise max_sweeps, loosen tol, or warm-start from the sites of a solution at nearby hyperparameters",
    "stalled": "the steps became too small to make progress: try a different start (sites=, for example from a "
    "different method), a smaller kernel variance, or a different method (EP and QP also have schedule='sequential' "
    "and powers below 1)",
    "improper-cavities": "some observations disagree so strongly with the rest that they have no proper cavity: try "
    "schedule='sequential', a smaller kernel variance, a power below 1, or VB or Laplace",
    "no-variance": "the kernel gives f zero variance at some rows (Linear or IntegratedWiener where x is 0, "
    "Difference of equal inputs), so their observations carry no information: set their weights to 0, or, for the "
    "first two kernels, add Constant() to the kernel",
    "no-covariance": "the kernel's matrix on X has negative eigenvalues, so it is not a covariance matrix: use a "
    "different kernel (Periodic is valid for a single column: apply it to one, and other kernels to the others)",
    "improper-start": "the posterior at the starting sites is improper: pass other sites, or set a smaller kernel "
    "variance",
    "not-finite": "the fixed point was reached, but the evidence or the log densities of some rows (solution.loo) "
    "are not finite in double precision: y is too large for the scales of likelihood and kernel; rescale y",
    # of learning
    "max-evaluations": "raise max_evaluations",
    "small-gain": "the last steps gained almost nothing, although more may be left: fit again from fitted.model, or "
    "with restarts; if you changed ftol or gtol, use a smaller ftol or a larger gtol",
    "no-progress": "the line search found no better point along the gradient: inference may fail nearby (see the "
    "trace), or the gradient may be partial; fit again with restarts, or with gradient='exact'",
    "inference-failed": "inference, or the equation for its gradient, did not converge at the starting point: see "
    "the trace and solution.status; gradient='partial' does not use this equation",
    "nothing-to-learn": "",
}


@dataclass(frozen=True)
class Status:
    """Why inference stopped: a reason, the figures behind it, and a remedy.

    Attributes:
        reason: "converged", "max-sweeps", "stalled", "improper-cavities", "improper-start", "no-variance",
            "no-covariance" or "not-finite".
        sweeps: number of sweeps over the data.
        residual: root mean square change that one more sweep would make to the sites, in units of the marginals.
        tol: the requested residual.
        schedule: "parallel" or "sequential"; "parallel, then sequential" if the first stalled; followed by ", then
            continuation" if Newton's method or a path of fixed points led to the result, or by ", then EP() (...) in
            place of QP()" if QP has no fixed point.
        negative_sites: number of sites with negative precision, which is allowed while the posterior is proper.
    """

    reason: str
    sweeps: int
    residual: float
    tol: float
    schedule: str
    negative_sites: int

    @property
    def remedy(self) -> str:
        """The remedy, empty if nothing is wrong."""
        return REMEDIES[self.reason]

    def __str__(self) -> str:
        reached = f"residual {self.residual:.1e}, tol {self.tol:.1e}"
        text = f"{self.reason} after {self.sweeps} sweeps ({self.schedule}): {reached}"
        if self.negative_sites:
            text += f"; {self.negative_sites} sites have negative precision"
        return text + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class Ending:
    """Why learning stopped: a reason, the figures behind it, and a remedy.

    Attributes:
        reason: "converged", "nothing-to-learn", "max-evaluations", "small-gain", "no-progress" or "inference-failed".
        evaluations: number of evaluations of the objective, restarts included.
        failed: number of evaluations at which inference failed and the search backtracked.
        gradient: largest entry of the projected gradient at the final point.
        at_bounds: names of the parameters at a bound.
        remaining: remaining gain in nats, ½ gᵀH⁻¹g with the gradient g and the curvature H; below 1e-4, or the rounding
            error of the objective, learning has converged. NaN if unknown.
        rounds: number of searches; more than one if the process chose neighbours again under learned hyperparameters.
        note: what is suspicious about the final point, empty if nothing is.
    """

    reason: str
    evaluations: int
    failed: int  # evaluations at which inference failed and the optimiser backed off
    gradient: float
    at_bounds: tuple[str, ...]
    remaining: float = math.nan
    rounds: int = 1
    note: str = ""

    @property
    def remedy(self) -> str:
        """The remedy, empty if nothing is wrong."""
        return REMEDIES[self.reason]

    def __str__(self) -> str:
        ended = f"{self.reason} after {self.evaluations} evaluations: largest projected gradient {self.gradient:.1e}"
        ended += "" if math.isnan(self.remaining) else f", {self.remaining:.1e} nats left to gain"
        ended += f", in {self.rounds} rounds" if self.rounds > 1 else ""
        return "; ".join(filter(None, (in_words(ended, self.failed, self.at_bounds, self.remedy), self.note)))


def in_words(ended: str, failed: int, at_bounds: tuple[str, ...], remedy: str) -> str:
    """A status: how something ended, at how many points inference failed, what is at a bound, and what to try."""
    failures = f"inference failed at {failed} of them" if failed else ""
    bounds = f"at a bound: {', '.join(at_bounds)}" if at_bounds else ""
    return "; ".join(part for part in (ended, failures, bounds, remedy) if part)
