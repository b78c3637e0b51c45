"""Schedules that bring the sites of a problem to their fixed point, and say how it went."""

from quantprop.inference.engine.climb import climb
from quantprop.inference.engine.fixed_point import Evaluation, InferenceProblem, Outcome, conditioned, swept
from quantprop.inference.engine.parallel import PATIENCE, solve_parallel
from quantprop.inference.engine.sequential import solve_sequential
from quantprop.inference.status import REASONS

__all__ = [
    "PATIENCE",
    "REASONS",
    "Evaluation",
    "InferenceProblem",
    "Outcome",
    "climb",
    "conditioned",
    "solve_parallel",
    "solve_sequential",
    "swept",
]
