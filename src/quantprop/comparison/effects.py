"""What the terms of a table's model do: the model in the language of terms, shares of variance, linear effects."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quantprop.inference.solution import Solution
from quantprop.inference.terms import MEAN, FixedEffect
from quantprop.kernels import columns_of, written
from quantprop.kernels.terms import quoted
from quantprop.tables import TableModel
from quantprop.tables.targets import TIMES

LEVEL = ("mean", "constant()")  # that explain no difference between rows


@dataclass(frozen=True)
class TermSummary:
    """A learned model of terms: its text, what share of the variance of f each explains, and linear effects: on the
    target in its own units where f is its mean, on its logarithm where f is of that.
    """

    kernel: str
    shares: dict[str, float]
    fixed: dict[str, FixedEffect]


def of_terms(model: TableModel) -> bool:
    """Whether a model's kernel is a sum of terms of columns, and f one function: of all classes jointly there are
    several, whose differences alone mean something.
    """
    return bool(columns_of(model.fits[0].model.kernel)) and isinstance(model.fits[0].solution, Solution)


def summary(model: TableModel, which: int = 0) -> TermSummary:
    """The terms of a model; of one of its classes, where it has several."""
    solution = model.fits[which].solution
    origin, unit = _scale(model)
    words = {f"linear({quoted(c.name)})": c.features[0] for c in model.encoding.columns if len(c.levels) == 2}
    fixed = {}
    for name, effect in solution.fixed_effects().items():
        start = origin if name in (MEAN, "mean.intercept") else 0.0
        estimate, lower, upper = (start + unit * number for number in (effect.estimate, effect.lower, effect.upper))
        called = f"linear({words[name]})" if name in words else name
        fixed[called] = FixedEffect(estimate, unit * effect.error, lower, upper)
    shares = {name: share for name, share in solution.terms(solution.X).shares.items() if name not in LEVEL}
    return TermSummary(written(solution.model.kernel), shares, fixed)


def _scale(model: TableModel) -> tuple[float, float]:
    """(a, b) with which a + b f is f in the units of the table: of a time, f is the logarithm."""
    units = model.units
    if model.fits[0].model.likelihood.name in TIMES:
        return math.log(units.scale), 1.0
    centre, spread = (getattr(model.estimator, name, start) for name, start in (("_y_mean", 0.0), ("_y_std", 1.0)))
    return units.centre + units.scale * centre, units.scale * spread
