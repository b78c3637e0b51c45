"""Models of tables: an estimator together with the encoding that leads to its X, in one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.estimators import GaussianProcessClassifier, GaussianProcessRegressor
from quantprop.estimators import storage as estimator_storage
from quantprop.learn import Fitted
from quantprop.storage.files import reading
from quantprop.storage.records import Unreadable, refusing, require
from quantprop.tables import encoding as encodings
from quantprop.tables.encoding import Encoding
from quantprop.tables.reading import Table
from quantprop.tables.targets import REAL, Target, target

KERNELS = {"isotropic": None, "ard": "ard"}  # as the estimators call their own
QUANTILES = (0.05, 0.5, 0.95)

Estimator = GaussianProcessClassifier | GaussianProcessRegressor


@dataclass(frozen=True)
class TableModel:
    """A learned model of a table: `estimator` takes what `encoding` makes of it; `lines` are those of its rows."""

    encoding: Encoding
    target: str
    lines: tuple[int, ...]
    estimator: Estimator

    @property
    def fits(self) -> tuple[Fitted, ...]:
        """What learning returned: one, or one a class for more than two classes."""
        found = self.estimator.fitted_
        return tuple(found) if isinstance(found, list) else (found,)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the classes, as text; none in regression."""
        return tuple(map(str, self.estimator.classes_)) if isinstance(self.estimator, GaussianProcessClassifier) else ()

    def forecast(self, table: Table, quantiles: Sequence[float] = QUANTILES) -> dict[str, np.ndarray]:
        """Predictions for the rows of a table, by the name of what is predicted."""
        return self.forecast_at(self.encoding.matrix(table), quantiles)

    def forecast_at(self, x: Float[np.ndarray, "n d"], quantiles: Sequence[float] = QUANTILES) -> dict[str, np.ndarray]:
        """Predictions at rows of X: class and probabilities; or mean, standard deviation and quantiles of y."""
        if isinstance(self.estimator, GaussianProcessClassifier):
            p = self.estimator.predict_proba(x)
            named = {f"p({label})": p[:, i] for i, label in enumerate(self.labels)}
            return {self.target: self.estimator.classes_[np.argmax(p, axis=1)], **named}
        mean, deviation = self.estimator.predict(x, return_std=True)
        columns = self.estimator.predict_quantiles(x, quantiles).T if len(quantiles) else []
        return {"mean": mean, "sd": deviation} | {f"q{q:g}": c for q, c in zip(quantiles, columns, strict=True)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator with its encoding to one file; `quantprop.load` reads the estimator alone."""
        note = {"encoding": encodings.to_json(self.encoding), "target": self.target, "lines": list(self.lines)}
        estimator_storage.save(self.estimator, path, note=note)


def load(path: str | os.PathLike[str]) -> TableModel:
    """The model that `TableModel.save` wrote."""
    model, note = estimator_storage.load_with_note(path)
    with reading(path):
        if note is None or isinstance(model, Fitted):
            raise Unreadable("it holds no encoding of a table; it was not written by `quantprop fit` (in Python, "
                             "quantprop.load reads it)")  # fmt: skip
        with refusing("the encoding"):
            encoding = encodings.from_json(note["encoding"])
            found = TableModel(encoding, str(note["target"]), tuple(map(int, note["lines"])), model)
        require(len(encoding.features) == found.fits[0].solution.X.shape[1], "the encoding does not fit the model")
        require(len(found.lines) == len(found.fits[0].solution.loo), "its lines do not fit its rows")
    return found


# --- learning --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """What is to be learned from a table; `left_out` names columns that never change."""

    table: Table
    target: Target
    kernel: str
    encoding: Encoding
    left_out: tuple[str, ...]
    raw: Float[np.ndarray, "n d"]

    def fit(self, method: str = "qp", rows: Sequence[int] | np.ndarray | None = None, **settings: Any) -> TableModel:
        """The model learned from some rows (all by default), features standardised on them."""
        at = np.arange(len(self.raw)) if rows is None else np.asarray(rows)
        encoding = self.encoding.standardising(self.raw[at])
        x = encoding.standardised(self.raw[at])
        estimator = self._estimator(method, settings).fit(x, self.target.y[at])
        return TableModel(encoding, self.target.name, tuple(self.table.lines[i] for i in at), estimator)

    def _estimator(self, method: str, settings: dict[str, Any]) -> Estimator:
        likelihood: Any = self.target.likelihood
        settings = {"kernel": KERNELS[self.kernel], "method": method, **settings}
        if self.target.classes:
            return GaussianProcessClassifier(likelihood=likelihood, **settings)
        if likelihood in REAL:
            return GaussianProcessRegressor(normalize_y=True, **{**settings, "likelihood": REAL[likelihood]()})
        return GaussianProcessRegressor(likelihood=likelihood, mean="constant", **settings)


def problem(table: Table, target_name: str, likelihood: str | None = None, kernel: str = "isotropic") -> Problem:
    """A table, the column to predict, the likelihood (guessed without one) and "isotropic" or "ard"."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}; got {kernel!r}")
    found = target(table, target_name, likelihood)
    features = table.without([target_name])
    encoding, left_out = encodings.learned(features)
    return Problem(table, found, kernel, encoding, left_out, encoding.raw(features))


def fit(
    table: Table, target_name: str, likelihood: str | None = None, method: str = "qp", kernel: str = "isotropic"
) -> TableModel:
    """A model of one column of a table by the others.

    >>> from quantprop import tables
    >>> table = tables.from_columns({"x": [0.0, 1.0, 2.0, 3.0], "y": ["no", "no", "yes", "yes"]}, "a list")
    >>> tables.fit(table, "y").forecast(table)["y"].tolist()
    ['no', 'no', 'yes', 'yes']
    """
    return problem(table, target_name, likelihood, kernel).fit(method)
