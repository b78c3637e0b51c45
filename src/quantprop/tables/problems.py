"""Learning problems made from tables: which columns are features, and how they are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRegressor
from quantprop.estimators.columns import NAMED_KERNELS
from quantprop.kernels import Terms
from quantprop.kernels.formulas import is_formula, response_of
from quantprop.runtime.names import check_name
from quantprop.tables import encoding as encodings
from quantprop.tables.encoding import Encoding
from quantprop.tables.models import Estimator, TableModel
from quantprop.tables.reading import Table, TableError, as_table
from quantprop.tables.roles import Roles
from quantprop.tables.selection import encoded
from quantprop.tables.targets import JOINT, REAL, SCALED, TIMES, Target, target

KERNELS = {"isotropic": None, **{name: name for name in NAMED_KERNELS}}  # as the estimators call their own


@dataclass(frozen=True)
class Problem:
    """A learning problem made from a table.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.
        target: The column to predict, encoded.
        kernel: Name or formula of the kernel.
        encoding: Encoding of the features as numbers.
        left_out: Columns that are not features, with the reason.
        raw: Features as numbers, before standardisation.
        roles: Columns that qualify the target.
        varying: The terms of a parameter of the likelihood that is a function of columns.
    """

    table: Table
    target: Target
    kernel: str
    encoding: Encoding
    left_out: dict[str, str]
    raw: Float[np.ndarray, "n d"]
    roles: Roles = Roles()
    varying: Mapping[str, str] = field(default_factory=dict)

    def fit(self, method: str = "qp", rows: Sequence[int] | np.ndarray | None = None, **settings: Any) -> TableModel:
        """The model learned from some rows (all by default), features standardised on them."""
        at = np.arange(len(self.raw)) if rows is None else np.asarray(rows)
        if "weights" in self.target.rows:
            at = at[self.target.rows["weights"][at] > 0]
        encoding = self.encoding.standardising(self.raw[at])
        at = np.array_split(at, jax.process_count())[jax.process_index()]  # of a job, each process takes its part
        x, y = encoding.standardised(self.raw[at]), self.target.units.inward(self.target.y[at])
        more = {{"weights": "sample_weight"}.get(name, name): each[at] for name, each in self.target.rows.items()}
        estimator = self._estimator(method, settings).fit(x, y, **more)
        lines = tuple(self.table.lines[i] for i in at)
        scales = {role: column for role, column in self.roles.columns.items() if role in SCALED}
        return TableModel(encoding, self.target.name, lines, estimator, self.target.labels, scales, self.target.units)

    def scales(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Exposure and trials of some rows."""
        return {name: each[rows] for name, each in self.target.rows.items() if name in SCALED}

    def _estimator(self, method: str, settings: dict[str, Any]) -> Estimator:
        likelihood: Any = self.target.model()
        kernel = KERNELS[self.kernel] if self.kernel in KERNELS else Terms(self.kernel, self._names)
        settings = {"kernel": kernel, "method": method, "likelihood": likelihood, **settings}
        if self.varying:
            settings["varying"] = {name: Terms(text, self._names) for name, text in self.varying.items()}
        if monotone := settings.get("monotone"):
            settings["monotone"] = {self._feature(name): shapes for name, shapes in monotone.items()}
        if self.target.likelihood == JOINT:
            settings |= {"likelihood": "probit", "multi_class": "joint"}
        if self.target.classes:
            return GaussianProcessClassifier(**settings)
        mean = "zero" if self.target.likelihood == "ordinal" else "constant"  # cutpoints have a mean of their own
        return GaussianProcessRegressor(mean=mean, normalize_y=self.target.likelihood in REAL, **settings)

    @property
    def _names(self) -> tuple[str, ...]:
        """The columns that terms may name."""
        return self.encoding.features if self.kernel in KERNELS else tuple(one.name for one in self.encoding.columns)

    def _feature(self, name: str) -> int:
        """The position of a column of numbers among the features."""
        check_name("monotone", name, self.encoding.features)
        return self.encoding.features.index(name)


def problem(
    table: Table | Any,
    target_name: str,
    likelihood: str | None = None,
    kernel: str = "isotropic",
    roles: Roles = Roles(),
    dates: str = "number",
    varying: Mapping[str, str] | None = None,
) -> Problem:
    """Set up a learning problem from a table.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.
        target_name: Column to predict.
        likelihood: Name of the likelihood; guessed from the column by default.
        kernel: "isotropic" (one lengthscale), "ard" (one per feature), or a formula in the columns' own units, "se(age)
            + group(hospital)".
        roles: Columns that qualify the target (`Roles`); all other columns are features.
        dates: "number" encodes dates as days; "parts" adds their place in year, week and day.
        varying: A parameter of the likelihood with its terms, {"scale": "se(age)"}.

    Returns:
        The problem, whose `fit` learns a model.

    >>> from quantprop import tables
    >>> table = tables.from_columns({"x": [0.0, 1.0, 2.0] * 6, "rating": [1, 2, 3, 4, 5, 3] * 3}, "a list")
    >>> found = tables.problem(table, "rating").target
    >>> found.likelihood, found.others[1]
    ('poisson', ('probit', 'they are labels of classes'))
    """
    if not is_formula(kernel):
        check_name("kernel", kernel, KERNELS, " or terms such as se(age)")
    elif (named := response_of(kernel)) not in (None, target_name):
        raise TableError(f"the formula has {named!r} before '~', but the target is {target_name!r}: they must be equal")
    table = as_table(table)
    found = target(table, target_name, likelihood, roles)
    features = table.without([target_name, *roles.columns.values()])
    if kernel in KERNELS:
        encoding, left_out = encodings.learned(features, dates)
    else:
        encoding, left_out = encoded(features, " + ".join((kernel, *(varying or {}).values())))
        if found.units.scale != 1.0 and found.likelihood not in TIMES and Terms(kernel).offsets():
            raise TableError(f"offset() is not supported with the {found.likelihood} likelihood: choose weibull or "
                             "log-logistic for times, or subtract it from the target")  # fmt: skip
    return Problem(table, found, kernel, encoding, left_out, encoding.raw(features), roles, varying or {})


def fit(
    table: Table | Any,
    target_name: str,
    likelihood: str | None = None,
    method: str = "qp",
    kernel: str = "isotropic",
    roles: Roles = Roles(),
    dates: str = "number",
) -> TableModel:
    """Fit a model of one column of a table given the others.

    Args:
        table: A table, as returned by `tables.read`, or a pandas or polars frame.
        target_name: Column to predict.
        likelihood: Name of the likelihood; guessed from the column by default.
        method: Name of a method.
        kernel: "isotropic" (one lengthscale), "ard" (one per feature), or a formula.
        roles: Columns that qualify the target (`Roles`); all other columns are features.
        dates: "number" encodes dates as days; "parts" adds their place in year, week and day.

    Returns:
        The fitted model, which predicts from tables.

    >>> from quantprop import tables
    >>> table = tables.from_columns({"x": [0.0, 1.0, 2.0, 3.0], "y": ["no", "no", "yes", "yes"]}, "a list")
    >>> tables.fit(table, "y").forecast(table)["y"].tolist()
    ['no', 'no', 'yes', 'yes']
    """
    return problem(table, target_name, likelihood, kernel, roles, dates).fit(method)
