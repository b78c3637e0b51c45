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
from quantprop.model import Model
from quantprop.priors import Classes, ClassesInducing

Function = TypeVar("Function", bound=Callable[..., Any])


def by_factors(function: Function) -> Function:
    """A function of (model, X, y, ..., weights=) that several classes reach as scalar data, and leave as classes."""

    @wraps(function)
    def translated(model: Any, X: Any, y: Any, *args: Any, weights: Any = None, **more: Any) -> Any:
        if not of_classes(model):
            return function(model, X, y, *args, weights=weights, **more)
        return as_classes(function(*factors_of(model, X, y, weights), *args, **more))

    return cast(Function, translated)


def each_by_factors(function: Function) -> Function:
    """The same for a function of one model for all or one per problem, and of lists with one entry per problem."""

    @wraps(function)
    def translated(model: Any, X: Any, y: Any, *args: Any, weights: Any = None, **more: Any) -> Any:
        models = [model] * len(X) if isinstance(model, Model) else list(model)
        several = [of_classes(one) for one in models]
        if not any(several):
            return function(model, X, y, *args, weights=weights, **more)
        if not all(several):
            raise ValueError(f"{function.__name__} takes models of three or more classes by themselves: call it twice")
        counts = [None] * len(X) if weights is None else list(weights)
        made = [factors_of(*of_one) for of_one in zip(models, X, y, counts, strict=True)]
        factors = (list(column) for column in zip(*made, strict=True))
        return as_classes(function(*factors, *args, **more))

    return cast(Function, translated)


def of_classes(model: Model) -> bool:
    """Whether a datum sees the functions of all classes; a kernel of several functions is refused elsewhere."""
    if isinstance(model.likelihood, ClassLikelihood):
        return True
    if isinstance(model.kernel, PerClass) and not isinstance(model.process, (Classes, ClassesInducing)):
        raise ValueError(
            f"kernel: PerClass has a function for each class, and the {model.plain_likelihood.name} likelihood sees "
            "one: give MultinomialProbit or Softmax, or a kernel of one function"
        )
    return False


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
