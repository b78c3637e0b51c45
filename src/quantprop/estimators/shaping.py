"""The argument `monotone` of estimators: its checks, and the model learned under its constraints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from quantprop.core.parameters import Parameter
from quantprop.estimators.core import FitOptions, FittedCore
from quantprop.learning.shaped import Shape, shaped
from quantprop.methods import EP
from quantprop.model import DEFAULT_PROCESS
from quantprop.runtime.names import check_name

SHAPES = {"increasing": (1, 1.0), "decreasing": (1, -1.0), "convex": (2, 1.0), "concave": (2, -1.0)}
SIGNS = {1: "increasing", -1: "decreasing"}


def with_shape(estimator: Any, core: FittedCore, options: FitOptions) -> FittedCore:
    """The model learned again under the constraints of the estimator, with a warning if one is not kept."""
    if estimator.monotone is None:
        return core
    _check(core, options)
    names = getattr(estimator, "feature_names_in_", ())
    shapes = _shapes(estimator.monotone, names, core.fitted.solution.X.shape[1])
    fitted, constraint = shaped(core.landscape, core.fitted, shapes, options.optimizer is not None)
    if not constraint.kept:
        warnings.warn(
            f"monotone: with {len(constraint.sign)} virtual rows the probability of a wrong sign is still "
            f"{constraint.wrong:.2g} at some inputs: use a smoother kernel, or fewer constraints",
            ConvergenceWarning,
            stacklevel=4,
        )
    return replace(core, fitted=fitted, constraint=constraint)


def _check(core: FittedCore, options: FitOptions) -> None:
    """Raise for settings under which constraints are not supported."""
    model = core.fitted.model
    for bad, name, remedy in (
        (core.mixture is not None, "kernel='auto' or hyperparameters='integrated'", "a single model at point values"),
        (not isinstance(options.method, EP), f"method={options.method!r}", "method='ep'"),
        (options.objective.name != "evidence", f"objective={options.objective.name!r}", "objective='evidence'"),
        (callable(options.optimizer), "a function as optimizer", "optimizer='fmin_l_bfgs_b', or None"),
        (model.process != DEFAULT_PROCESS, f"process={model.process!r}", "process='dense'"),
        (not isinstance(model.mean, float | int | Parameter), "a mean that is a function", "mean='constant'"),
    ):
        if bad:
            raise ValueError(f"monotone is not supported with {name}: use {remedy}")


def _shapes(monotone: Mapping[Any, Any], names: Sequence[Any], columns: int) -> tuple[Shape, ...]:
    """The constraints, column by column."""
    found = []
    for column, given in monotone.items():
        at = list(names).index(column) if isinstance(column, str) and column in names else column
        if isinstance(at, bool) or not isinstance(at, int | np.integer) or not 0 <= at < columns:
            known = ", ".join(map(repr, names)) if len(names) else f"0 to {columns - 1}"
            raise ValueError(f"monotone: X has no column {column!r}; it has {known}")
        for word in given if isinstance(given, tuple) else (given,):
            name: Any = SIGNS.get(word, word)
            check_name(f"monotone[{column!r}]", name, SHAPES)
            found.append(Shape(int(at), *SHAPES[name]))
    if not found:
        raise ValueError('monotone must name a column, as in {"dose": "increasing"}; got {}')
    return tuple(found)
