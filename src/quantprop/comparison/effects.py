"""What the terms of a table's model do: the model in the language of terms, shares of variance, linear effects."""

from __future__ import annotations

from dataclasses import dataclass

from quantprop.inference.terms import FixedEffect
from quantprop.kernels import columns_of, written
from quantprop.kernels.terms import quoted
from quantprop.tables import TableModel


@dataclass(frozen=True)
class TermSummary:
    """A learned model of terms: its text, what share of the variance of f each explains, and linear effects, which are
    in units of the target where f is.
    """

    kernel: str
    shares: dict[str, float]
    fixed: dict[str, FixedEffect]


def of_terms(model: TableModel) -> bool:
    """Whether a model's kernel is a sum of terms of columns."""
    return bool(columns_of(model.fits[0].model.kernel))


def summary(model: TableModel, which: int = 0) -> TermSummary:
    """The terms of a model; of one of its classes, where it has several."""
    solution = model.fits[which].solution
    unit = getattr(model.estimator, "_y_std", 1.0) * model.units.scale
    words = {f"linear({quoted(c.name)})": c.features[0] for c in model.encoding.columns if len(c.levels) == 2}
    fixed = {
        f"linear({words[name]})" if name in words else name: FixedEffect(*(unit * number for number in effect))
        for name, effect in solution.fixed_effects().items()
    }
    shares = {name: share for name, share in solution.terms(solution.X).shares.items() if name != "mean"}
    return TermSummary(written(solution.model.kernel), shares, fixed)
