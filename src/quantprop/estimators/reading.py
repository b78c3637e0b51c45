"""Reading a learned model: effects of levels, and contrasts on the scale of y."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from quantprop.core.units import Units
from quantprop.estimators.core import FittedCore
from quantprop.inference.classes import ClassSolution
from quantprop.inference.levels import Grouping, contrasts, levels
from quantprop.runtime.listing import Listing
from quantprop.runtime.names import check_name

MAX_COMPARED_VALUES = 50


class Readable:
    """Estimators of one latent function, whose levels and contrasts can be read."""

    if TYPE_CHECKING:  # of the estimators
        _coding: Any
        _new_inputs: Any

    def levels(self, column: str | int) -> Listing:
        """The effect on f of every level of a column: estimate, standard error, 95 % interval and expected rank.

        Effects are those of the terms of the column, alone as in `group(hospital)` or times a linear term, whose slope
        differs between levels. Without such terms an effect is f averaged over the training rows, all of them at the
        level, minus its mean over levels.

        Args:
            column: A column of X, by name or position.

        Returns:
            A table with the columns term, level, estimate, error, lower, upper and rank, 1 for the largest effect;
            `.frame()` makes it a frame of pandas or polars.

        >>> import numpy as np
        >>> from quantprop import GaussianProcessRegressor
        >>> X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([1.0, 1.2, 3.0, 3.1])
        >>> model = GaussianProcessRegressor("group(0)", mean="constant", normalize_y=True).fit(X, y)
        >>> model.levels(0)["level"]
        ['0', '1']
        """
        return levels(only_model(self).posterior, self._grouping(column), units_of(self).scale)

    def contrasts(self, column: str | int, against: str | None = None, X: Any = None) -> Listing:
        """The expected y averaged over rows, all of them at one level, against the same at another level.

        Differences and ratios come from joint draws of the posterior, differences under Gaussian noise exactly. Of two
        classes y is the probability of the second; of counts the rate per unit of exposure. Ratios are NaN where the
        other level's y is not positive in all draws. If rows times levels exceed 2,000, a random sample of the rows is
        used.

        Args:
            column: A column of X, by name or position.
            against: The level to compare with; the first by default.
            X: The rows to average over; the training rows by default.

        Returns:
            A table with the columns level, against, mean, difference, error, lower, upper, ratio, ratio_lower and
            ratio_upper; `.frame()` makes it a frame of pandas or polars.

        >>> import numpy as np
        >>> from quantprop import GaussianProcessRegressor
        >>> X, y = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([1.0, 1.2, 3.0, 3.1])
        >>> model = GaussianProcessRegressor("group(0)", mean="constant", normalize_y=True).fit(X, y)
        >>> 1.5 < model.contrasts(0, against="0")["difference"][0] < 2.1
        True
        """
        core = only_model(self)
        rows = core.rows if X is None else (self._new_inputs(X), None)
        return contrasts(core.posterior, self._grouping(column), *rows, against, units_of(self))

    def _grouping(self, column: str | int) -> Grouping:
        names: list[Any] = list(self._coding.names or getattr(self, "feature_names_in_", ()))
        if isinstance(column, str):
            check_name("column", column, names)
        features = only_model(self).rows[0].shape[1]
        place = names.index(column) if isinstance(column, str) else column
        if not 0 <= place < features:
            raise ValueError(f"column must be between 0 and {features - 1}, or a name; got {column!r}")
        levels = dict(self._coding.levels).get(place, ())
        if not levels:
            return of_values(str(column), place, only_model(self).rows[0])
        codes = range(len(levels)) if self._coding.names else map(float, levels)
        coded = {level: np.array([float(code)]) for level, code in zip(levels, codes, strict=True)}
        return Grouping(str(column), (place,), coded)


def only_model(estimator: Any) -> FittedCore:
    """The learned model of an estimator that has one, of one latent function."""
    estimator._check_fitted()
    cores = estimator._cores()
    if len(cores) > 1 or isinstance(cores[0].fitted.solution, ClassSolution):
        raise ValueError(
            f"levels and contrasts are those of one latent function, and this model of {len(estimator.classes_)} "
            "classes has several: fit one class against the others"
        )
    return cores[0]


def units_of(estimator: Any) -> Units:
    """The units of y inside an estimator."""
    return Units(float(getattr(estimator, "_y_mean", 0.0)), float(getattr(estimator, "_y_std", 1.0)))


def of_values(name: str, place: int, x: Float[np.ndarray, "n d"], centre: float = 0.0, scale: float = 1.0) -> Grouping:
    """The values of a column of numbers as its levels, labelled in units of the data."""
    values = np.unique(x[:, place])
    if len(values) > MAX_COMPARED_VALUES:
        raise ValueError(f"column {name!r} has {len(values)} values: levels and contrasts are those of groups and of "
                         f"numbers with at most {MAX_COMPARED_VALUES} values")  # fmt: skip
    return Grouping(name, (place,), {f"{centre + scale * value:.12g}": np.array([value]) for value in values})
