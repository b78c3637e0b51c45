"""Constraints on the shape of f in estimators: where they are given, and the model learned under them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from quantprop.core.parameters import Parameter
from quantprop.estimators.core import FitOptions, FittedCore
from quantprop.kernels import Terms
from quantprop.kernels.derivatives import SHAPES
from quantprop.kernels.formulas import is_formula
from quantprop.learning.shaped import Shape, shaped
from quantprop.methods import EP
from quantprop.model import DEFAULT_PROCESS
from quantprop.runtime.names import check_name

SIGNS = {1: "increasing", -1: "decreasing"}


def with_shape(estimator: Any, core: FittedCore, options: FitOptions) -> FittedCore:
    """The model learned again under the constraints of the estimator, with a warning if one is not kept."""
    shapes = shapes_of(estimator)
    if not shapes:
        return core
    _check(core, options)
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


def shapes_of(estimator: Any) -> tuple[Shape, ...]:
    """The constraints of the argument and of the terms of the kernel, column by column."""
    names: Any
    names, kernel = getattr(estimator, "feature_names_in_", ()), estimator.kernel
    terms = Terms(kernel) if isinstance(kernel, str) and is_formula(kernel) else kernel
    given: list[tuple[Any, Any]] = terms.shapes(names) if isinstance(terms, Terms) else []
    if estimator.monotone is not None and not estimator.monotone:
        raise ValueError('monotone must name a column, as in {"dose": "increasing"}; got {}')
    for column, shapes in (estimator.monotone or {}).items():
        given += [(column, shape) for shape in (shapes if isinstance(shapes, tuple) else (shapes,))]
    found = []
    for column, shape in given:
        at = list(names).index(column) if isinstance(column, str) and column in names else column
        if isinstance(at, bool) or not isinstance(at, int | np.integer) or not 0 <= at < estimator.n_features_in_:
            known = ", ".join(map(repr, names)) if len(names) else f"0 to {estimator.n_features_in_ - 1}"
            raise ValueError(f"monotone: X has no column {column!r}; it has {known}")
        name: Any = SIGNS.get(shape, shape)
        check_name(f"monotone[{column!r}]", name, SHAPES)
        found.append(Shape(int(at), *SHAPES[name]))
    return tuple(dict.fromkeys(found))
