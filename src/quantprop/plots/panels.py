"""The panels of a figure of effects, terms or components of an additive kernel, and how columns are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from quantprop.core.gaussian import Normal
from quantprop.inference.components import Decomposition, averaged, variable, whole_of
from quantprop.inference.sobol import Share
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Stack
from quantprop.inference.terms import Parts, effects_at, terms_of
from quantprop.kernels import Kernel, columns_of, groups_of
from quantprop.kernels.structure import leaves
from quantprop.plots.canvas import plain

MAX_SURFACES = 6  # interactions of an additive kernel, from the largest share of f
MIN_SURFACE_SHARE = 0.01
ROUNDING = 1e-12  # a number is 0 below this multiple of the numbers that it is the difference of


class Scale(NamedTuple):
    """Names of the columns of X, labels of their levels, and the units of the table: numbers are centre + unit x, days
    since 1970 for dates; effects are `of_y` times those on the model's own f.
    """

    names: Mapping[int, str] = {}
    levels: Mapping[int, Sequence[str]] = {}
    centre: Mapping[int, float] = {}
    unit: Mapping[int, float] = {}
    dates: tuple[int, ...] = ()
    of_y: float = 1.0

    def name(self, column: int) -> str:
        return plain(self.names.get(column, f"x{column}"))

    def label(self, column: int, code: float) -> str:
        levels = self.levels.get(column, ())
        if 0 <= code < len(levels):
            return plain(levels[int(code)])
        number = self.outward(column, code)
        return f"{0.0 if abs(number) < ROUNDING * abs(self.centre.get(column, 0.0)) else number:.3g}"

    def of(self, panel: Panel) -> Scale:
        """Names also for the variables and levels whose 0-1 columns a panel has."""
        names, levels = dict(self.names), dict(self.levels)
        for column, own in panel.levels.items():
            each = [self.names.get(c, f"x{c}") for c in own]
            names[column] = variable(each)
            levels[column] = ["none", *(name.removeprefix(f"{names[column]}=") for name in each)]
        return self._replace(names=names, levels=levels)

    def outward(self, column: int, x: Any) -> Any:
        """Numbers of a column in units of the table."""
        return self.centre.get(column, 0.0) + self.unit.get(column, 1.0) * x


class Panel(NamedTuple):
    """A panel: a term or component, its name, its columns, and those of them that are groups. The 0-1 columns of the
    levels of one variable count as one group, the first of them, which `levels` maps to all of them.

    `terms` has one kernel for each model of a stack, None for a model without this component.
    """

    name: str
    terms: tuple[Kernel | None, ...]
    columns: tuple[int, ...]
    groups: tuple[int, ...]
    levels: Mapping[int, tuple[int, ...]] = {}
    is_component: bool = False

    @property
    def is_drawn(self) -> bool:
        """True if it is a curve, a map or levels; of more columns there is a histogram of the means at the rows."""
        return len(self.columns) == 1 or (len(self.columns) == 2 and len(self.groups) < 2)

    def at(self, posterior: Solution | Stack, x: np.ndarray, unit: float = 1.0) -> Normal:
        """The posterior at rows x, times a unit."""
        weights, each = models_of(posterior)
        found = [effects_at(one, x, Parts((self.name,), (term,))) if term is not None else {}
                 for one, term in zip(each, self.terms, strict=True)]  # fmt: skip
        part = averaged(weights, found)[self.name]
        return Normal(unit * part.mean, unit**2 * part.variance)

    def codes(self, x: np.ndarray, column: int) -> np.ndarray:
        """A group in rows x: its values, or the places of the levels among their columns, from 1."""
        if column not in self.levels:
            return x[:, column]
        own = x[:, list(self.levels[column])]
        return (own > 0.5 * (own.min(axis=0) + own.max(axis=0))) @ np.arange(1, 1 + own.shape[1])


def models_of(posterior: Solution | Stack) -> tuple[np.ndarray, tuple[Solution, ...]]:
    """Weights and posteriors of the models."""
    return (posterior.weights, posterior.components) if isinstance(posterior, Stack) else (np.ones(1), (posterior,))


def ranked(posterior: Solution | Stack, shares: Mapping[str, Share] | None = None) -> list[Panel]:
    """The panels of a figure: components from the largest share of f, with few interactions."""
    found = panels(posterior)
    if not any(panel.is_component for panel in found):
        return found
    known = posterior.sobol().shares if shares is None else shares
    share = {panel.name: known[panel.name].share if panel.name in known else 0.0 for panel in found}
    found = sorted(found, key=lambda panel: -share[panel.name])
    surfaces = [panel.name for panel in found if panel.is_component and len(panel.columns) == 2]
    shown = [name for name in surfaces if share[name] >= MIN_SURFACE_SHARE][:MAX_SURFACES]
    return [panel for panel in found if panel.name in shown or panel.name not in surfaces]


def panels(posterior: Solution | Stack) -> list[Panel]:
    """The terms that can be drawn, an additive one as its main effects and interactions of two columns, and those of a
    stack. A term that was put on no columns sees all of them.
    """
    _, models = models_of(posterior)
    x = models[0].X
    if isinstance(posterior, Stack):
        return list(_components([whole_of(one) for one in models], x))
    every = tuple(range(x.shape[1]))
    found = []
    for name, term in terms_of(posterior.model.plain_kernel).items():
        if (own := Decomposition.of_term(term, x.shape[1])) is not None:
            found += _components([own], x)
        elif type(term).__name__ not in ("Constant", "White"):
            columns = tuple(int(c) for c in columns_of(term)) or every
            found.append(Panel(name, (term,), columns, tuple(int(c) for c in groups_of(term))))
    return found


def _components(each: Sequence[Decomposition], x: np.ndarray) -> Iterator[Panel]:
    """A panel for each main effect and each interaction of two columns; a column of two values counts as a group."""
    binary = {c for c in range(x.shape[1]) if len(np.unique(x[:, c])) <= 2}
    most = max(each, key=lambda own: own.order)
    for order in range(1, min(most.order, 2) + 1):
        for some in most.sets(order):
            factors = [most.variables[i] for i in some]
            levels = {factor[0]: factor for factor in factors if len(factor) > 1}
            columns = tuple(factor[0] for factor in factors)
            terms = tuple(own.components([some]) if own.order >= order else None for own in each)
            yield Panel(most.name(some), terms, columns, tuple(c for c in columns if c in binary), levels, True)


def scale_of(source: Any, solution: Solution | Stack) -> Scale:
    """Names from the kernel's columns or an estimator; levels and the unit of y from an estimator."""
    names: dict[int, str] = {}
    each = (leaves(solution.model.plain_kernel, called=called) for called in (False, True))
    for (_, columns), (_, called) in zip(*each, strict=True):
        pairs = zip(columns or (), called or (), strict=True)
        names |= {int(column): name for column, name in pairs if isinstance(name, str)}
    names = dict(enumerate(map(str, getattr(source, "feature_names_in_", ())))) | names
    coding = getattr(source, "_coding", None)
    levels = dict(coding.levels) if coding is not None and coding.names else {}
    return Scale(names, levels, of_y=float(getattr(source, "_y_std", 1.0)))
