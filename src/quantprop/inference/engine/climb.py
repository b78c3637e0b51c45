"""The mode of a posterior with several modes, for Laplace's method: an ascent that no negative curvature stops."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from quantprop.core.gaussian import Natural
from quantprop.inference.engine.fixed_point import Evaluation, InferenceProblem, swept
from quantprop.inference.engine.parallel import improved
from quantprop.runtime.precision import to_numpy
from quantprop.runtime.programs import program

MAX_STEPS = 200
SHORTEST = 2.0**-20

_swept = program(lambda problem, sites: swept(problem, sites)[0])


def climb(problem: InferenceProblem, sites: Natural, tol: float) -> tuple[Evaluation, int]:
    """Ascend from the mean under these sites to a mode; also how many sweeps it took.

    Where log p(y | f) is convex, W = −∂² log p < 0 and Newton's step may decrease the objective, or give no posterior.
    Then |W| replaces W: a short enough step increases the objective.
    """
    visits = 0

    def visit(sites: Natural) -> Evaluation:
        nonlocal visits
        visits += 1
        return to_numpy(_swept(problem, sites))

    here = visit(sites)
    for _ in range(MAX_STEPS):
        if not here.proper or here.residual <= tol:
            break
        newton = jax.tree.map(np.add, here.sites, here.change)
        after = visit(newton)
        if not improved(problem, after, here):
            after = _upwards(problem, visit, here, newton)
        if after is None:
            break
        here = after
    return here, visits


def _upwards(
    problem: InferenceProblem, visit: Callable[[Natural], Evaluation], here: Evaluation, newton: Natural
) -> Evaluation | None:
    """A step from f towards f + (K⁻¹ + |W|)⁻¹ ∇, backtracking until it leads up.

    The mean under sites (α + τ f, τ) is f for every τ, if K α = f − m: so the line from f can be searched, its start
    included, which negative sites may have left with fewer digits.
    """
    f, alpha, curvature = here.marginals.mean, here.marginals.alpha, np.abs(newton.tau)
    slope = newton.nu - newton.tau * f
    start = visit(Natural(alpha + curvature * f, curvature))
    there = visit(Natural(slope + curvature * f, curvature)).marginals
    size = 1.0
    while size >= SHORTEST:
        mean, pull = f + size * (there.mean - f), alpha + size * (there.alpha - alpha)
        after = visit(Natural(pull + curvature * mean, curvature))
        if improved(problem, after, start):
            return after
        size *= 0.5
    return None
