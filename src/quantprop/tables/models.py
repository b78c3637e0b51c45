"""Models of tables: an estimator together with the encoding that leads to its X, in one file."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.units import Units
from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRegressor
from quantprop.estimators import storage as estimator_storage
from quantprop.estimators.reading import Described, of_values, units_of
from quantprop.estimators.summary import Summary, summary
from quantprop.inference.levels import Grouping
from quantprop.kernels import NewLevelWarning
from quantprop.kernels.grammar import quoted
from quantprop.likelihoods import Ordinal
from quantprop.runtime.names import check_name
from quantprop.storage.files import reading
from quantprop.storage.records import Unreadable, refusing, require
from quantprop.tables import stored
from quantprop.tables.encoding import Encoding
from quantprop.tables.reading import MISSING, Table, TableError, as_table, from_columns, is_number
from quantprop.tables.roles import scale
from quantprop.tables.targets import SCALED

QUANTILES = (0.05, 0.5, 0.95)
BATCH = 4096  # rows predicted at a time

Estimator = GaussianProcessClassifier | GaussianProcessRegressor


@dataclass(frozen=True)
class TableModel(Described):
    """A fitted model of a table.

    Args:
        encoding: Encoding of the features as numbers.
        target: The target, encoded.
        lines: Lines of the training rows.
        estimator: The fitted estimator, which takes encoded columns.
        ordered: Labels of ordered classes.
        scales: Columns of exposure and trials.
        units: Units of y.
    """

    encoding: Encoding
    target: str
    lines: tuple[int, ...]
    estimator: Estimator
    ordered: tuple[str, ...] = ()
    scales: Mapping[str, str] = field(default_factory=dict)
    units: Units = Units()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the classes, as text; none in regression."""
        if isinstance(self.estimator, GaussianProcessClassifier):
            return tuple(map(str, self.estimator.classes_))
        return self.ordered

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that predictions need."""
        return (*(column.derived.source for column in self.encoding.columns), *self.scales.values())

    def known(self, table: Table | Any, given: Mapping[str, str] = {}) -> np.ndarray:
        """Returns whether each row can be predicted: no missing cell and no unknown category in any column used."""
        return np.all(list(self.known_by_column(table, given).values()), axis=0)

    def known_by_column(self, table: Table | Any, given: Mapping[str, str] = {}) -> dict[str, np.ndarray]:
        """Returns this for the cells of each of these columns; `given` as for `scales_of`."""
        table = as_table(table)
        found = self.encoding.known_by_column(table)
        for column in {**self.scales, **given}.values():
            if column in table.names:
                found[column] = np.array([cell not in MISSING for cell in table.column(column)])
        return found

    def scales_of(self, table: Table | Any, given: Mapping[str, str] = {}) -> dict[str, np.ndarray]:
        """Exposure and trials of the rows of a table: its columns of the names learned from, or those given here; a
        number stands for a column of it.
        """
        table, found = as_table(table), {}
        for role, learned in self.scales.items():
            column = given.get(role, learned)
            if column in table.names:
                found[role] = scale(table, role, column)
            elif is_number(column):
                found[role] = scale(from_columns({role: [column] * len(table.rows)}, f"--{role}"), role, role)
            else:
                raise TableError(f"{table.source} lacks the column {column!r}, the {role} of the model: add it, or "
                                 f"pass one number for all rows, such as --{role} 1")  # fmt: skip
        return found

    def forecast(
        self, table: Table | Any, quantiles: Sequence[float] = QUANTILES, given: Mapping[str, str] = {}
    ) -> dict[str, np.ndarray]:
        """Predictions for the rows of a table or frame, by name; `given` as for `scales_of`."""
        table = as_table(table)
        if not table.rows:
            return {name: np.zeros(0) for name in self.forecast_names(quantiles)}
        x, scales = self.encoding.matrix(table), self.scales_of(table, given)
        parts = []
        for start in range(0, len(x), BATCH):
            at = slice(start, start + BATCH)
            parts.append(self.forecast_at(x[at], quantiles, {role: each[at] for role, each in scales.items()}))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def forecast_at(
        self,
        x: Float[np.ndarray, "n d"],
        quantiles: Sequence[float] = QUANTILES,
        scales: Mapping[str, Any] = {},
    ) -> dict[str, np.ndarray]:
        """Predictions at rows of X: class and probabilities; or mean, standard deviation and quantiles of y."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NewLevelWarning)  # the encoding has named them
            if isinstance(self.estimator, GaussianProcessClassifier):
                return self._classes(self.estimator.predict_proba(x), self.estimator.classes_)
            if self.ordered:
                y = self.estimator.posterior_.predict_y(x)  # type: ignore[union-attr]  # of a regressor
                p = np.exp([y.log_prob(k) for k in range(len(self.ordered))]).T
                return self._classes(p, np.array(self.ordered))
            mean, deviation = self.units.moments(*self.estimator.predict(x, return_std=True, **scales))
            found = {"mean": mean, "sd": deviation}
            if len(quantiles):
                columns = self.units.outward(self.estimator.predict_quantiles(x, quantiles, **scales).T)
                found |= {f"q{q:g}": column for q, column in zip(quantiles, columns, strict=True)}
            return found

    def forecast_names(self, quantiles: Sequence[float] = QUANTILES) -> list[str]:
        """The names of what `forecast_at` returns."""
        if isinstance(self.estimator, GaussianProcessClassifier) or self.ordered:
            return [self.target, *(f"p({label})" for label in self.labels)]
        return ["mean", "sd", *(f"q{q:g}" for q in quantiles)]

    def _classes(self, p: Float[np.ndarray, "n k"], labels: np.ndarray) -> dict[str, np.ndarray]:
        named = {f"p({label})": p[:, i] for i, label in enumerate(self.labels)}
        return {self.target: labels[np.argmax(p, axis=1)], **named}

    def summary(self) -> Summary:
        """The summary of the model, as `GaussianProcessRegressor.summary` returns it."""
        return summary(self)

    @property
    def rows(self) -> int:
        """The number of training rows."""
        return len(self.lines)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of X."""
        return self.encoding.features

    @property
    def words(self) -> dict[str, str]:
        """The names of linear terms of two words, with the word that counts as 1."""
        two = [column for column in self.encoding.columns if len(column.levels) == 2]
        return {f"linear({quoted(column.name)})": f"linear({column.features[0]})" for column in two}

    @property
    def units_of_y(self) -> Units:
        """Units in which the likelihood has y."""
        inner, outer = units_of(self.estimator), self.units
        return Units(outer.centre + outer.scale * inner.centre, outer.scale * inner.scale, outer.log)

    def grouping(self, name: str) -> Grouping:
        """A column's levels, as rows of X code them."""
        check_name("column", name, [column.name for column in self.encoding.columns])
        at = next(i for i, column in enumerate(self.encoding.columns) if column.name == name)
        column, start = self.encoding.columns[at], sum(len(c.features) for c in self.encoding.columns[:at])
        places = tuple(range(start, start + len(column.features)))
        centre, scale = (np.array(each)[list(places)] for each in (self.encoding.centre, self.encoding.scale))
        if not column.levels:
            return of_values(name, places[0], self.fits[0].solution.X, float(centre[0]), float(scale[0]))
        coded = column.coded(from_columns({name: list(column.levels)}, "the levels"))
        return Grouping(name, places, dict(zip(column.levels, (coded - centre) / scale, strict=True)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator with its encoding to one file; `quantprop.load` reads the estimator alone."""
        note = {
            "encoding": stored.to_json(self.encoding), "target": self.target, "lines": list(self.lines),
            "ordered": list(self.ordered), "scales": dict(self.scales), "units": dataclasses.asdict(self.units),
        }  # fmt: skip
        estimator_storage.save(self.estimator, path, note=note)


def load(path: str | os.PathLike[str]) -> TableModel:
    """Load a model that `TableModel.save` wrote.

    Args:
        path: Path of the file.

    Returns:
        The model.

    >>> import os, tempfile
    >>> from quantprop import tables
    >>> table = tables.from_columns({"x": [0.0, 1.0, 2.0, 3.0], "y": ["no", "no", "yes", "yes"]}, "a list")
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> tables.fit(table, "y", method="ep").save(path)
    >>> tables.load(path).forecast(table)["y"].tolist()
    ['no', 'no', 'yes', 'yes']
    """
    model, note = estimator_storage.load_with_note(path)
    with reading(path):
        if note is None or not isinstance(model, Estimator):
            raise Unreadable("it holds no encoding of a table; it was not written by `quantprop fit` (in Python, "
                             "quantprop.load reads it)")  # fmt: skip
        with refusing("the encoding"):
            found = _from_note(note, model)
        likelihood = getattr(model, "likelihood_", None)
        grades = 1 + len(likelihood.cutpoints) if isinstance(likelihood, Ordinal) else 0
        require(not found.ordered or len(found.ordered) == grades, "its labels do not fit the model")
        require(
            len(found.encoding.features) == found.fits[0].solution.X.shape[1], "the encoding does not fit the model"
        )
        require(len(found.lines) == len(found.fits[0].solution.loo), "its lines do not fit its rows")
    return found


def _from_note(note: Any, model: Estimator) -> TableModel:
    """The model from JSON; older files have no ordered classes, exposures or units."""
    encoding, lines = stored.from_json(note["encoding"]), tuple(map(int, note["lines"]))
    ordered = tuple(map(str, note.get("ordered", ())))
    units = {**dataclasses.asdict(Units()), **note.get("units", {})}
    if not (math.isfinite(units["centre"]) and math.isfinite(units["scale"]) and units["scale"] > 0):
        raise ValueError("the units of y are not finite and positive")
    scales = {str(role): str(column) for role, column in note.get("scales", {}).items()}
    if set(scales) - set(SCALED):
        raise ValueError(f"a row has no {', '.join(set(scales) - set(SCALED))}")
    of_y = Units(float(units["centre"]), float(units["scale"]), units["log"] is True)
    return TableModel(encoding, str(note["target"]), lines, model, ordered, scales, of_y)
