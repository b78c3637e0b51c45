"""Schedules that bring the sites of a problem to their fixed point, and say how it went."""

from quantprop.engine.fixed_point import REASONS, Evaluation, Outcome, Problem, swept
from quantprop.engine.parallel import solve_parallel
from quantprop.engine.sequential import solve_sequential

__all__ = ["REASONS", "Evaluation", "Outcome", "Problem", "solve_parallel", "solve_sequential", "swept"]
