"""Learned models under the names of what they were learned from, of estimators and of tables alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import values
from quantprop.core.units import Units
from quantprop.estimators.columns import label, shown
from quantprop.estimators.core import FittedCore
from quantprop.inference.classes import as_classes
from quantprop.inference.integrated import Integrated
from quantprop.inference.levels import Grouping, contrasts, levels
from quantprop.inference.results import Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Stack
from quantprop.learning.shaped import Constraint
from quantprop.runtime.listing import Listing
from quantprop.runtime.names import check_name

MAX_COMPARED_VALUES = 50


class Described:
    """A learned model under the names of what it was learned from: an estimator's, or that of a table."""

    estimator: Any
    target: str

    if TYPE_CHECKING:  # of the subclasses
        rows: Any
        features: Any
        labels: Any
        words: Any
        units_of_y: Any
        grouping: Any

    @property
    def fits(self) -> tuple[Fitted, ...]:
        """The results of learning: one, or one per class for more than two classes."""
        return _as_tuple(self.estimator.fitted_)

    @property
    def converged(self) -> bool:
        """True if learning converged for all of `fits`."""
        return all(fitted.converged for fitted in self.fits)

    @property
    def constraints(self) -> tuple[Constraint | None, ...]:
        """The constraint on the shape of f, one for each of `fits`."""
        return _as_tuple(self.estimator.constraint_)

    @property
    def integrated(self) -> tuple[Integrated, ...]:
        """The averages over hyperparameters behind the predictions, one for each of `fits`; none of point estimates."""
        return tuple(one for one in _as_tuple(self.estimator.posterior_) if isinstance(one, Integrated))

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks behind the predictions, one for each of `fits`; none of single models."""
        return tuple(one for one in _as_tuple(self.estimator.posterior_) if isinstance(one, Stack))

    @property
    def scale_of_f(self) -> tuple[float, float]:
        """(a, b) with which a + b f is f in the units of the data: of a time, f is the logarithm."""
        units = self.units_of_y
        of_time = self.fits[0].model.likelihood.observes == "times"
        return (math.log(units.scale), 1.0) if of_time else (units.centre, units.scale)

    def level_of_f(self, level: float) -> float:
        """A level of f in the units of the data as the model has it; a level of y, where the model is of log y."""
        (origin, unit), log = self.scale_of_f, self.units_of_y.log
        if log and level <= 0:
            raise ValueError(f"level must be positive, since the model is of log y; got {level}")
        return ((math.log(level) if log else level) - origin) / unit

    @property
    def standardised(self) -> str:
        """The quantity that the model has for y, and its noise in units of y; empty if that is y itself.

        >>> from quantprop import GaussianProcessRegressor
        >>> model = GaussianProcessRegressor(optimizer=None, normalize_y=True).fit([[0.0], [1.0], [2.0]], [1, 5, 3])
        >>> Estimated(model).standardised
        '(y - 3) / 1.633; scale of the likelihood in units of y: 0.8165'
        """
        units, likelihood = self.units_of_y, values(self.fits[0].model.likelihood)
        if units == Units():
            return ""
        y = f"log {self.target}" if units.log else self.target
        y = f"({y} {'-' if units.centre > 0 else '+'} {abs(units.centre):.4g})" if units.centre else y
        y = f"{y} / {units.scale:.4g}" if units.scale != 1.0 else y
        name = likelihood.noise_name
        if name is None or units.log or self.scale_of_f[1] == 1.0:  # f is of log y
            return y
        noise = units.scale * float(getattr(likelihood, name))
        return f"{y}; {name} of the likelihood in units of {self.target}: {noise:.4g}"

    def levels(self, column: Any) -> Listing:
        """The effect on f of every level of a column, as `GaussianProcessRegressor.levels` defines it."""
        return levels(only_model(self.estimator).posterior, self.grouping(column), self.scale_of_f[1])

    def contrasts(self, column: Any, against: Any = None, x: Any = None) -> Listing:
        """The expected y at every level of a column against one level, as `GaussianProcessRegressor.contrasts`; `x` are
        rows as the kernel takes them.
        """
        core = only_model(self.estimator)
        rows = core.rows if x is None else (x, None)
        level = None if against is None else shown(label(against))
        return contrasts(core.posterior, self.grouping(column), *rows, level, self.units_of_y, self.labels)


@dataclass(frozen=True)
class Estimated(Described):
    """The model of an estimator."""

    estimator: Any
    target: str = "y"
    words = MappingProxyType({})

    @property
    def rows(self) -> int:
        """The number of training rows."""
        return len(self.estimator.loo_)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of X, or their positions."""
        names = self.estimator._coding.names or getattr(self.estimator, "feature_names_in_", ())
        return tuple(map(str, names)) or tuple(map(str, range(self.fits[0].solution.X.shape[1])))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of classes, as text; none in regression."""
        return tuple(map(str, getattr(self.estimator, "classes_", ())))

    @property
    def units_of_y(self) -> Units:
        """Units in which the likelihood has y."""
        return units_of(self.estimator)

    def grouping(self, column: str | int) -> Grouping:
        """A column's levels, as rows of X code them."""
        coding, x = self.estimator._coding, self.fits[0].solution.X
        if isinstance(column, str):
            check_name("column", column, self.features)
        elif not 0 <= column < x.shape[1]:
            raise ValueError(f"column must be between 0 and {x.shape[1] - 1}, or a name; got {column}")
        place = self.features.index(column) if isinstance(column, str) else column
        levels = dict(coding.levels).get(place, ())
        if not levels:
            return of_values(str(column), place, x)
        codes = range(len(levels)) if coding.names else map(float, levels)
        coded = {shown(level): np.array([float(code)]) for level, code in zip(levels, codes, strict=True)}
        return Grouping(str(column), (place,), coded)


def only_model(estimator: Any) -> FittedCore:
    """The learned model of an estimator that has one, of one latent function."""
    estimator._check_fitted()
    cores = estimator._cores()
    if len(cores) > 1 or not isinstance(as_classes(cores[0].fitted.solution), Solution):
        raise ValueError(
            f"levels, contrasts and fixed effects need a single latent function, and this model of "
            f"{len(estimator.classes_)} classes has several: fit one class against the others"
        )
    return cores[0]


def _as_tuple(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, list) else (found,)


def units_of(estimator: Any) -> Units:
    """The units of y inside an estimator."""
    return Units(float(getattr(estimator, "_y_mean", 0.0)), float(getattr(estimator, "_y_std", 1.0)))


def of_values(name: str, place: int, x: Float[np.ndarray, "n d"], centre: float = 0.0, scale: float = 1.0) -> Grouping:
    """The values of a column of numbers as its levels, labelled in units of the data."""
    values = np.unique(x[:, place])
    if len(values) > MAX_COMPARED_VALUES:
        raise ValueError(f"column {name!r} has {len(values)} values: levels and contrasts exist for groups and "
                         f"for numbers with at most {MAX_COMPARED_VALUES} values")  # fmt: skip
    return Grouping(name, (place,), {f"{centre + scale * value:.12g}": np.array([value]) for value in values})
