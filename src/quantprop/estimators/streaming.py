"""`partial_fit`: further rows enter a learned model, whose posterior is their prior.

Rows that have been taken in are kept only as what their sites say about the values at the inducing points. The numbers
of kernel and likelihood are learned again from that and the new rows, from where they are; `optimizer=None` keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_consistent_length

from quantprop.estimators.core import Core, Recipe, build
from quantprop.estimators.labels import codes
from quantprop.priors import Process


class WithFurtherRows:
    """A method that estimators have only where their process takes further rows; an AttributeError names one."""

    def __init__(self, method: Callable) -> None:
        self.method, self.__doc__ = method, method.__doc__

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self.method
        cores = estimator._cores()
        process = cores[0].fitted.model.process if cores else estimator.process
        if not (isinstance(process, Process) and process.takes_further_rows):
            raise AttributeError(
                f"{owner.__name__}.{self.method.__name__} takes further rows into a model with inducing points: use "
                f"process=Inducing(512), or fit(X, y) with all rows; got process={process!r}"
            )
        return MethodType(self.method, estimator)


def further(recipe: Recipe, core: Core, x: np.ndarray, y: np.ndarray, rows: dict[str, Any]) -> Core:
    """A model learned from further rows, its posterior so far being their prior."""
    return build(recipe, core.choice, core.fitted.solution.as_prior(), x, y, rows)


class FurtherLabels:
    """`partial_fit` of the classifier."""

    classes_: np.ndarray
    n_classes_: int
    max_iter_predict: int
    _cores: Callable[[], list[Core]]
    _learned_from: Callable[..., tuple[np.ndarray, Any]]
    _new_inputs: Callable[[Any], np.ndarray]
    _counting: Callable[..., tuple[np.ndarray, np.ndarray, Any]]
    _fit_all: Callable[..., None]
    _further_all: Callable[..., None]
    _warn: Callable[[list[Core]], None]

    @WithFurtherRows
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Take further rows into a model with inducing points (`process=Inducing(512)`); the first call learns one.

        The first call needs `classes`, all labels that will come. Rows taken in are kept as a summary, and what they
        say is not revised; the points stay where the first rows put them. The numbers of the kernel are learned again,
        unless `optimizer` is None. `X_train_`, `loo_` and `solution_`'s rows are the last ones.
        """
        first = not self._cores()
        labels = _labels(None if first else self.classes_, classes)
        if first:
            X, y = self._learned_from(X, y=y, multi_output=False)
        else:
            X, y = self._new_inputs(X), column_or_1d(y)
            check_consistent_length(X, y)
        check_classification_targets(y)
        unknown = ~np.isin(y, labels)
        if unknown.any():
            row = int(np.argmax(unknown))
            label = y[row : row + 1].tolist()[0]
            raise ValueError(f"y[{row}] = {label!r} is none of the classes {labels.tolist()}")
        X, y, weights = self._counting(X, y, sample_weight)
        if first:
            self.classes_, self.n_classes_ = labels, len(labels)
            self._fit_all(X, y, weights, [])
        else:
            self._further_all(X, y, weights)
        self._warn(self._cores())
        return self


def _labels(known: np.ndarray | None, given: Any) -> np.ndarray:
    """The classes of a model: given at its first rows, known afterwards."""
    if known is not None:
        if given is not None and not np.array_equal(unique_labels(given), known):
            raise ValueError(f"classes={given!r} are not those of the first call, {known.tolist()}; leave classes out")
        return known
    if given is None:
        raise ValueError("classes= must be given at the first call of partial_fit: all labels that will come")
    labels = np.asarray(unique_labels(given))
    if len(labels) < 2:
        raise ValueError(f"classes must hold 2 or more different labels; got {labels.tolist()}")
    return labels


class FurtherObservations:
    """`partial_fit` of the regressor."""

    fit: Callable
    max_sweeps: int
    _labels: np.ndarray | None
    _y_mean: float
    _y_std: float
    _columns: Callable[[], int]
    _cores: Callable[[], list[Core]]
    _new_inputs: Callable[[Any], np.ndarray]
    _given_rows: Callable[..., tuple[np.ndarray, np.ndarray, dict]]
    _finish: Callable[..., None]
    _warn: Callable[[list[Core]], None]
    _recipe: Callable[[int], Recipe]

    @WithFurtherRows
    def partial_fit(self, X, y, sample_weight=None, *, exposure=None, trials=None):
        """Take further rows into a model with inducing points (`process=Inducing(512)`); the first call learns one.

        Rows taken in are kept as a summary, and what they say is not revised; points and prior mean stay as the first
        rows made them, and so do the labels of "ordinal" and the scale of `normalize_y`. The numbers of kernel and
        likelihood are learned again, unless `optimizer` is None. `X_train_`, `loo_` and `solution_`'s rows are the last
        ones.
        """
        cores = self._cores()
        if not cores:
            return self.fit(X, y, sample_weight, exposure=exposure, trials=trials)
        X = self._new_inputs(X)
        check_consistent_length(X, y)
        if self._labels is not None:
            y = codes(y, self._labels)
        elif self._columns() == 1:
            y = column_or_1d(y, dtype=np.float64)
        X, y, rows = self._given_rows(X, np.asarray(y), sample_weight, exposure, trials)
        y = (y - self._y_mean) / self._y_std
        core = further(self._recipe(self.max_sweeps), cores[0], X, y, rows)
        self._finish(core, X, y, np.arange(len(X)))
        self._warn(self._cores())
        return self
