"""Schedules that bring the sites of a problem to their fixed point, and say how it went."""

from quantprop.engine.fixed_point import REASONS, Evaluation, Outcome, Problem, evaluate
from quantprop.engine.parallel import solve_parallel
from quantprop.engine.sequential import solve_sequential

__all__ = ["REASONS", "Evaluation", "Outcome", "Problem", "evaluate", "solve_parallel", "solve_sequential"]
