"""Problems of several classes to scalar data, and results back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from quantprop.inference.classes.factors import factors_of
from quantprop.inference.classes.solution import ClassSolution
from quantprop.inference.solution import Solution
from quantprop.kernels import PerClass
from quantprop.likelihoods.multinomial import ClassLikelihood

Function = TypeVar("Function", bound=Callable[..., Any])


def by_factors(function: Function) -> Function:
    """A function of (model, X, y, ..., weights=) that several classes reach as scalar data, and leave as classes."""

    @wraps(function)
    def translated(model: Any, X: Any, y: Any, *args: Any, weights: Any = None, **more: Any) -> Any:
        if not isinstance(model.likelihood, ClassLikelihood):
            return function(model, X, y, *args, weights=weights, **more)
        return as_classes(function(*factors_of(model, X, y, weights), *args, **more))

    return cast(Function, translated)


def as_classes(result: Any) -> Any:
    """What scalar inference or learning returned, in terms of the classes; results of other models as they are."""
    if isinstance(result, Solution):
        return ClassSolution(result) if isinstance(result.model.kernel, PerClass) else result
    if isinstance(result, list):
        return [as_classes(one) for one in result]
    solution = as_classes(result.solution)
    if solution is result.solution:
        return result
    shared = len(result.model.kernel.kernels) == 1
    names = tuple(n.replace("kernel.kernels[0]", "kernel") if shared else n for n in result.status.at_bounds)
    return replace(result, model=solution.model, solution=solution, status=replace(result.status, at_bounds=names))


def as_factors(fitted: Any) -> Any:
    """The other way round, for files."""
    if not isinstance(fitted.solution, ClassSolution):
        return fitted
    return replace(fitted, model=fitted.solution.factors.model, solution=fitted.solution.factors)
