"""Summaries and effects of fitted estimators, those of levels, and contrasts on the scale of y."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quantprop.estimators.insight import term_summary
from quantprop.estimators.reading import Estimated, only_model
from quantprop.estimators.summary import Summary, summary
from quantprop.inference.terms import FixedEffect
from quantprop.runtime.listing import Listing


class Readable:
    """Estimators whose summary, levels and contrasts can be read."""

    if TYPE_CHECKING:  # of the estimators
        _new_inputs: Any

    def summary(self) -> Summary:
        """A summary of the fit: fixed effects, terms with effective degrees of freedom, groups with their largest and
        smallest levels, members of a stack, hyperparameters, evidence, leave-one-out density, trust and statuses.

        Returns:
            The summary: it prints as text and shows as tables in notebooks; `.frames` has the tables as frames of
            pandas or polars, `.record` everything as a dictionary for JSON.

        >>> import numpy as np
        >>> from quantprop import GaussianProcessRegressor
        >>> X = np.linspace(0, 1, 12)[:, None]
        >>> model = GaussianProcessRegressor("linear(0)", mean="constant").fit(X, 2 * X[:, 0] + np.tile([0.1, -0.1], 6))
        >>> round(model.summary().record["models"][0]["fixed_effects"]["linear(0)"]["estimate"], 1)
        2.0
        """
        return summary(Estimated(self))

    def fixed_effects(self) -> dict[str, FixedEffect]:
        """Coefficients of linear terms, differences of a factor's levels from its reference level, and "mean", each
        with standard error and 95 % interval: in units of y, and by the names of columns and levels.

        >>> import numpy as np
        >>> from quantprop import GaussianProcessRegressor
        >>> X, y = np.repeat([[5.0], [7.0]], 4, axis=0), np.r_[1.0, 1.2, 0.9, 1.1, 2.0, 2.1, 2.2, 1.9]
        >>> model = GaussianProcessRegressor("factor(0)", mean="constant", normalize_y=True, method="ep").fit(X, y)
        >>> {name: round(effect.estimate, 2) for name, effect in model.fixed_effects().items()}
        {'factor(0)[7]': 1.0, 'mean': 1.05}
        """
        only_model(self)
        return term_summary(Estimated(self)).fixed

    def levels(self, column: str | int) -> Listing:
        """The effect on f of every level of a column: estimate, standard error, 95 % interval and expected rank.

        Effects are those of the terms of the column, alone as in `group(hospital)` or times a linear term, whose slope
        differs between levels. Without such terms an effect is f averaged over the training rows, all of them at the
        level, minus its mean over levels.

        Intervals take the learned variances as known, and are too narrow with few levels: with 20 levels of 6 rows 93 %
        of the 95 % intervals contain the effect, with 40 levels 94 %. hyperparameters="integrated" widens them.

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
        return Estimated(self).levels(column)

    def contrasts(self, column: str | int, against: Any = None, X: Any = None) -> Listing:
        """The expected y averaged over rows, all of them at one level, against the same at another level.

        Differences and ratios come from joint draws of the posterior, differences under Gaussian noise exactly. Of two
        classes y is the probability of the second; of counts the rate per unit of exposure; ordered labels count as the
        numbers that they are, or as their places from 1. Ratios are NaN where the other level's y is not positive in
        all draws. If rows times levels exceed 2,000, a random sample of the rows is used.

        Random effects within levels of the column, such as `group(block, variety)` where varieties are compared, are
        at 0, their mean over a population, as in mixed models; unless no other term has the column. All other groups
        keep the effects learned of them. `levels` has the effects of the terms themselves.

        Args:
            column: A column of X, by name or position.
            against: The level to compare with, as text or as the column has it; the first by default.
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
        return Estimated(self).contrasts(column, against, None if X is None else self._new_inputs(X))
