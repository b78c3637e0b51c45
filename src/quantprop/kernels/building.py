"""The kernel of a parsed formula: kinds of terms, their parameters, and what learning starts from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, NoReturn

import numpy as np

from quantprop.core.parameters import LogNormal, Parameter, is_parameter
from quantprop.core.records import changed
from quantprop.kernels.additive import ORDER_PRIOR, Additive
from quantprop.kernels.base import Column, Columns, Kernel, Power, Product, Sum
from quantprop.kernels.categories import ANY, Categories, CentredFactor, Coregion, Factor
from quantprop.kernels.derivatives import SHAPES
from quantprop.kernels.derived import Derived
from quantprop.kernels.formulas import is_wide, parsed, terms_of
from quantprop.kernels.grammar import EVERY, Call, Option, TermError, Tree
from quantprop.kernels.simple import Constant, Linear, Lines, White
from quantprop.kernels.stationary import Matern12, Matern32, Matern52, RationalQuadratic, SquaredExponential
from quantprop.kernels.temporal import Periodic
from quantprop.runtime.names import nearest


class Kind(NamedTuple):
    """A kind of term: its kernel, how many columns it takes, and its parameters."""

    make: type[Kernel]
    columns: range
    takes: str
    parameters: tuple[str, ...]

    @property
    def ard(self) -> bool:
        """True if it may have a lengthscale for each column."""
        return self.parameters[:2] == _SMOOTH and len(self.columns) > 1


_ANY, _ONE, _NONE = (range(1, 1000), "one column or more"), (range(1, 2), "one column"), (range(1), "no column")
_SMOOTH = "variance", "lengthscale"
KINDS = {
    "se": Kind(SquaredExponential, *_ANY, _SMOOTH),
    "matern12": Kind(Matern12, *_ANY, _SMOOTH),
    "matern32": Kind(Matern32, *_ANY, _SMOOTH),
    "matern52": Kind(Matern52, *_ANY, _SMOOTH),
    "rq": Kind(RationalQuadratic, *_ANY, (*_SMOOTH, "mixture")),
    "periodic": Kind(Periodic, *_ONE, (*_SMOOTH, "period")),
    "additive": Kind(Additive, *_ANY, ("order", *_SMOOTH, "relevance")),
    "linear": Kind(Linear, *_ANY, ("variance", "centre")),
    "group": Kind(Categories, *_ANY, ("variance",)),
    "lines": Kind(Lines, *_ANY, ("factor",)),
    "factor": Kind(Factor, *_ONE, ("variance", "reference", "coding")),
    "coregion": Kind(Coregion, *_ONE, ("rank", "weights", "own")),
    "constant": Kind(Constant, *_NONE, ("variance",)),
    "white": Kind(White, *_NONE, ("variance",)),
}

CODED = ("group", "factor", "coregion")  # terms of columns of codes
FACTOR_CODINGS = "treatment", "sum"  # differences from one level, from the mean of all


class Place(NamedTuple):
    """The place of a parameter: the kind of term, its columns, and whether the term stands in a product."""

    kind: str
    columns: tuple[Column, ...]
    in_product: bool


@dataclass(frozen=True)
class Start:
    """The numbers that a text does not say: what learning starts from. These know no data."""

    def variance(self, place: Place) -> Any:
        """The variance of a term."""
        return 1.0

    def lengthscale(self, place: Place, ard: bool) -> Any:
        """The lengthscale of a smooth term; with `ard`, one per column."""
        return np.ones(len(place.columns)) if ard else 1.0

    def centre(self, place: Place) -> Any:
        """The mean of a column, where `centre~mean` of a linear term starts."""
        return 0.0

    def reference(self, place: Place) -> float:
        """The code of the first level of a factor."""
        return 0.0

    def levels(self, place: Place) -> tuple[float, ...]:
        """The codes of all levels of a factor."""
        return ()

    def covariance(self, place: Place) -> Any:
        """The Cholesky factor of the covariance of an intercept and slopes, row by row."""
        return np.eye(1 + len(place.columns))[np.tril_indices(1 + len(place.columns))]


@dataclass(frozen=True)
class Builder:
    """A kernel from a tree: `names` are the columns of X, `start` has the numbers that the text does not say."""

    text: str
    start: Start
    names: tuple[str, ...]

    def made(self, tree: Tree, in_product: bool, scaled: bool) -> Kernel:
        """A kernel; only where `scaled` does it have a variance of its own: one is enough for all factors."""
        if isinstance(tree, Call):
            return self.term(tree, in_product, scaled)
        if tree.symbol == "**":
            return Power(self.made(tree.parts[0], in_product, scaled), tree.exponent)
        if tree.symbol == "+":
            return reduce(Sum, [self.made(part, in_product, scaled) for part in tree.parts])
        wide, scale = is_wide(tree), ("linear",) if is_wide(tree) else ("coregion", "lines")
        scales = [any(call.kind in scale for call in terms_of(part)) for part in tree.parts]
        first = scales.index(True) if any(scales) else 0
        return reduce(Product, [self.made(part, not wide, scaled and i == first) for i, part in enumerate(tree.parts)])

    def fail(self, at: int, why: str) -> NoReturn:
        raise TermError(self.text, at, why)

    def term(self, call: Call, in_product: bool, scaled: bool) -> Kernel:
        kind = KINDS.get(call.kind)
        if call.kind == "offset":
            self.fail(call.at, "an offset is added to f: it cannot be part of a product or in brackets")
        if kind is None:
            there = f"there are {', '.join(KINDS)}{nearest(call.kind, KINDS)}"
            self.fail(call.at, f"there is no term {call.kind!r}; {there}")
        if len(call.columns) not in kind.columns:
            self.fail(call.at, f"{call.kind} takes {kind.takes}; got {len(call.columns)}")
        self.check_options(call, kind)
        columns = self.columns(call, kind)
        if call.kind in CODED and any(Derived.of(c.column, self.names).function for c in call.columns):
            self.fail(call.columns[0].at, f"{call.kind} takes columns as they are, not functions of them")
        if len(set(columns)) < len(columns):
            self.fail(call.columns[-1].at, f"{call.kind} has a column twice")
        place = Place(call.kind, columns, in_product)
        made = {
            Coregion: lambda: self.coregion(call),
            Additive: lambda: self.additive(call, place),
            Lines: lambda: self.lines(call, place),
        }
        leaf = made.get(kind.make, lambda: self.leaf(call, place, scaled))()
        called = tuple(self.names[c] for c in columns if isinstance(c, int)) if self.names else ()
        return Columns(leaf, columns, called) if columns else leaf

    def check_options(self, call: Call, kind: Kind) -> None:
        known = (*kind.parameters, "ard", "monotone") if kind.ard else kind.parameters
        for name, option in call.options.items():
            if name not in known:
                there = f"it has {', '.join(known)}{nearest(name, known)}"
                self.fail(option.at, f"{call.kind} has no option {name!r}; {there}")
            if name in ("monotone", "coding"):
                (self.check_shape if name == "monotone" else self.check_coding)(call, option)
                continue
            if isinstance(option.value, bool) != (name == "ard"):
                self.fail(option.at, f"{name} must be {'true or false' if name == 'ard' else 'a number'}")
            if name != "centre" and np.isnan(option.value).any():
                self.fail(option.at, f"{name} must be a number; only the centre of a linear term starts from the mean")
            if name not in ("ard", "weights", "centre", "reference", "factor") and not np.all(
                np.greater(option.value, 0)
            ):
                self.fail(option.at, f"{name} must be positive; got {option.value}")

    def check_shape(self, call: Call, option: Option) -> None:
        if option.value not in SHAPES:
            there = f"{', '.join(SHAPES)}{nearest(str(option.value), SHAPES)}"
            self.fail(option.at, f"monotone must be one of {there}; got {option.value!r}")
        if len(call.columns) > 1 or not option.fixed:
            self.fail(option.at, "monotone takes '=' and one column, as in se(dose, monotone=increasing)")

    def check_coding(self, call: Call, option: Option) -> None:
        if option.value not in FACTOR_CODINGS or not option.fixed:
            self.fail(option.at, f"coding must be one of {', '.join(FACTOR_CODINGS)}, after '='; got {option.value!r}")
        if option.value == "sum" and "reference" in call.options:
            self.fail(option.at, "sum coding has no reference level: omit reference, or coding")

    def columns(self, call: Call, kind: Kind) -> tuple[Column, ...]:
        """The columns of a term; none of one of all columns, if the names of X are not known."""
        if all(named.column != EVERY for named in call.columns):
            return tuple(self.position(*named) for named in call.columns)
        if kind.make is not Additive or len(call.columns) > 1:
            self.fail(call.at, "'*' must be the only column, as in additive(*)")
        columns = [named.column for other in terms_of(parsed(self.text)) for named in other.columns]
        others = {*columns, *(Derived.of(column, self.names).source for column in columns)}
        found = tuple(i for i, name in enumerate(self.names) if name not in others)
        if self.names and not found:
            self.fail(call.at, "other terms name all columns: there is none left for '*'")
        return found

    def position(self, column: Column, at: int) -> Column:
        """A column by its position, where the names of X are known."""
        if not self.names:
            return column
        if column not in self.names:
            there = ", ".join(map(repr, self.names))
            self.fail(at, f"there is no column {column!r}; there are {there}{nearest(column, self.names)}")
        return self.names.index(str(column))

    def leaf(self, call: Call, place: Place, scaled: bool) -> Kernel:
        kind = KINDS[call.kind]
        ard = "ard" in call.options and call.options["ard"].value
        sums = "coding" in call.options and call.options["coding"].value == "sum"
        numbers: dict[str, Any] = {"levels": self.start.levels(place)} if sums else {}
        for name in kind.parameters:
            if name == "centre":
                numbers |= self.centre(call, place)
            elif name == "reference" and not sums:
                numbers[name] = self.reference(call, place)
            elif name in call.options and name != "coding":
                numbers[name] = self.given(call, name, ard)
            elif name == "variance":
                numbers[name] = self.start.variance(place) if scaled else Parameter(1.0, fixed=True)
            elif name == "lengthscale" and call.kind != "periodic":
                numbers[name] = self.start.lengthscale(place, ard)
            elif name == "period":
                self.fail(call.at, "periodic needs its period: period=12 fixes it, period~12 learns it from there")
        return (CentredFactor if sums else kind.make)(**numbers)

    def given(self, call: Call, name: str, ard: bool) -> Parameter:
        option, columns, may_differ = call.options[name], len(call.columns), KINDS[call.kind].ard
        value = np.asarray(option.value, dtype=np.float64)
        if value.ndim and not (name == "lengthscale" and may_differ and len(value) == columns):
            self.fail(option.at, f"{name} must be a single number" + f" or one per column ({columns})" * may_differ)
        if name == "lengthscale" and ard and not value.ndim:
            value = np.full(columns, value)
        return Parameter(value if value.ndim else float(value), fixed=option.fixed)

    def centre(self, call: Call, place: Place) -> dict[str, Any]:
        """The centre of a linear term, if it is given or learned."""
        if (option := call.options.get("centre")) is None:
            return {}
        if np.ndim(option.value) or len(call.columns) > 1:
            self.fail(option.at, "centre must be a single number, for one column")
        if isinstance(option.value, float) and math.isnan(option.value):
            if option.fixed:
                self.fail(option.at, "centre~mean learns the centre, from the mean of the column: write ~ for =")
            return {"centre": Parameter(self.start.centre(place), ANY)}
        return {"centre": Parameter(float(option.value), ANY, fixed=option.fixed)}

    def reference(self, call: Call, place: Place) -> float:
        if (option := call.options.get("reference")) is None:
            return self.start.reference(place)
        if np.ndim(option.value) or not option.fixed:
            self.fail(option.at, "reference must be the code of one level, as in factor(0, reference=1)")
        return float(option.value)

    def lines(self, call: Call, place: Place) -> Lines:
        if (option := call.options.get("factor")) is None:
            return Lines(self.start.covariance(place))
        if np.size(option.value) != (size := (len(call.columns) + 1) * (len(call.columns) + 2) // 2):
            self.fail(option.at, f"factor must be {size} numbers, the lower triangle row by row")
        return Lines(Parameter(np.array(option.value), ANY, fixed=option.fixed))

    def coregion(self, call: Call) -> Coregion:
        rank, own, weights = (call.options.get(name) for name in ("rank", "own", "weights"))
        if rank is not None and (np.ndim(rank.value) or rank.value != int(rank.value)):
            self.fail(rank.at, "rank must be an integer")
        width = 1 if rank is None else int(rank.value)
        if own is None and weights is None:
            return Coregion(width)
        if own is None or weights is None:
            self.fail(call.at, "coregion takes weights and own together, or neither")
        levels = int(np.size(own.value))
        if np.size(weights.value) != levels * width or levels < 2:
            self.fail(weights.at, f"weights must be {levels} × {width} numbers, level by level, and levels at least 2")
        table, own_variances = np.reshape(weights.value, (levels, width)), np.array(own.value)
        return Coregion(width, levels, Parameter(table, fixed=weights.fixed), Parameter(own_variances, fixed=own.fixed))

    def additive(self, call: Call, place: Place) -> Additive:
        given = dict(call.options)
        order = given.pop("order", Option(2, True, call.at))
        size = 1 + int(order.value) if order.value in (1, 2, 3) else self.fail(order.at, "order must be 1, 2 or 3")
        if "variance" in given and np.shape(given["variance"].value) != (size,):
            self.fail(given["variance"].at, f"variance must have {size} numbers, one for each order from 0")
        numbers: dict[str, Any] = {name: Parameter(np.array(one.value), fixed=one.fixed) for name, one in given.items()}
        if is_parameter(each := self.start.variance(place)) and "variance" not in given:
            prior = LogNormal(float(each.value), ORDER_PRIOR.deviation)
            numbers["variance"] = changed(each, value=np.full(size, each.value), prior=prior)
        return Additive(size - 1, **numbers)
