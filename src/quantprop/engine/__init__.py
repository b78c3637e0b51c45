"""Schedules that bring the sites of a problem to their fixed point, and say how it went."""

from quantprop.engine.climb import climb
from quantprop.engine.fixed_point import REASONS, Evaluation, Outcome, Problem, conditioned, swept
from quantprop.engine.parallel import PATIENCE, solve_parallel
from quantprop.engine.sequential import solve_sequential

__all__ = [
    "PATIENCE",
    "REASONS",
    "Evaluation",
    "Outcome",
    "Problem",
    "climb",
    "conditioned",
    "solve_parallel",
    "solve_sequential",
    "swept",
]
