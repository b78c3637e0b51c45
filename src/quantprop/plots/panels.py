"""The panels of a figure of effects, terms or components of an additive kernel, and how columns are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from quantprop.inference.components import AdditiveTerm, Components, variable
from quantprop.inference.sobol import Share
from quantprop.inference.solution import Solution
from quantprop.inference.terms import terms_of
from quantprop.kernels import Kernel, columns_of, groups_of
from quantprop.kernels.structure import leaves
from quantprop.plots.canvas import plain

MAX_SURFACES = 6  # interactions of an additive kernel, from the largest share of f
MIN_SURFACE_SHARE = 0.01
ROUNDING = 1e-12  # a number is 0 below this multiple of the numbers that it is the difference of


class Scale(NamedTuple):
    """Names of the columns of X, labels of their levels, and the units of the table: numbers are centre + unit x."""

    names: Mapping[int, str] = {}
    levels: Mapping[int, Sequence[str]] = {}
    centre: Mapping[int, float] = {}
    unit: Mapping[int, float] = {}

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
    """

    name: str
    term: Kernel
    columns: tuple[int, ...]
    groups: tuple[int, ...]
    levels: Mapping[int, tuple[int, ...]] = {}

    def codes(self, x: np.ndarray, column: int) -> np.ndarray:
        """A group in rows x: its values, or the places of the levels among their columns, from 1."""
        if column not in self.levels:
            return x[:, column]
        own = x[:, list(self.levels[column])]
        return (own > 0.5 * (own.min(axis=0) + own.max(axis=0))) @ np.arange(1, 1 + own.shape[1])


def ranked(solution: Solution, shares: Mapping[str, Share] | None = None) -> list[Panel]:
    """The panels of a figure: those of an additive kernel from the largest share of f, with few interactions."""
    found = panels(solution)
    if not any(isinstance(panel.term, Components) for panel in found):
        return found
    known = solution.sobol().shares if shares is None else shares
    share = {panel.name: known[panel.name].share if panel.name in known else 0.0 for panel in found}
    found = sorted(found, key=lambda panel: -share[panel.name])
    surfaces = [panel.name for panel in found if isinstance(panel.term, Components) and len(panel.term.sets[0]) == 2]
    shown = [name for name in surfaces if share[name] >= MIN_SURFACE_SHARE][:MAX_SURFACES]
    return [panel for panel in found if panel.name in shown or panel.name not in surfaces]


def panels(solution: Solution) -> list[Panel]:
    """The terms that can be drawn, an additive one as its main effects and interactions of two columns. A term that was
    put on no columns sees all of them.
    """
    every = tuple(range(solution.X.shape[1]))
    found = []
    for name, term in terms_of(solution.model.plain_kernel).items():
        if (own := AdditiveTerm.of(term)) is not None:
            found += _components(own, solution.X)
        elif type(term).__name__ not in ("Constant", "White"):
            columns = tuple(int(c) for c in columns_of(term)) or every
            found.append(Panel(name, term, columns, tuple(int(c) for c in groups_of(term))))
    return found


def _components(own: AdditiveTerm, x: np.ndarray) -> Iterator[Panel]:
    """A panel for each main effect and each interaction of two columns; a column of two values counts as a group."""
    place = own.columns or range(x.shape[1])
    binary = {c for c in place if len(np.unique(x[:, c])) <= 2}
    for order in range(1, min(own.kernel.order, 2) + 1):
        for some in combinations(range(own.kernel.count), order):
            factors = [tuple(place[c] for c in own.kernel.varying[i]) for i in some]
            levels = {factor[0]: factor for factor in factors if len(factor) > 1}
            columns = tuple(factor[0] for factor in factors)
            kernel = Components(own.kernel, own.others, np.array([some]), own.columns)
            yield Panel(own.name(some), kernel, columns, tuple(c for c in columns if c in binary), levels)


def scale_of(source: Any, solution: Solution) -> Scale:
    """Names from the kernel's columns, levels from an estimator that has coded them."""
    names: dict[int, str] = {}
    each = (leaves(solution.model.plain_kernel, called=called) for called in (False, True))
    for (_, columns), (_, called) in zip(*each, strict=True):
        pairs = zip(columns or (), called or (), strict=True)
        names |= {int(column): name for column, name in pairs if isinstance(name, str)}
    coding = getattr(source, "_coding", None)
    return Scale(names, dict(coding.levels) if coding is not None and coding.names else {})
