"""Every argument of every public function is checked where it enters.

A table says which calls there are and what each of their arguments must not be. Whatever comes out of a wrong one is a
ValueError or a TypeError whose text names the argument.
"""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import quantprop
from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRanker,
    GaussianProcessRegressor,
    Inducing,
    Model,
    PowerEP,
    checkpointed,
    datasets,
    fit,
    fit_many,
    infer,
    integrate,
    kernels,
    likelihoods,
    load,
    plots,
    predict_many,
    prior_predictive,
    project,
    projections,
    sharded,
)
from quantprop.learning.streamed import Arrays, fit_streamed
from quantprop.runtime.listing import Listing

mpl.use("Agg")
NAN, INF = np.nan, np.inf
N = 8
X = np.linspace(-2.0, 2.0, N)[:, None]
Y, COUNTS = np.sin(2.0 * X[:, 0]), np.arange(float(N))
PLANE = np.column_stack([X, X**2])
SIGNS = np.where(X[:, 0] > 0.3, 1.0, -1.0)

# --- what an argument must not be ------------------------------------------------------------------------------------

OBJECTS = [5, "nonsense", None, object(), [1.0], {}]
WHOLE = [1.5, -1, NAN, INF, "3", [2], 1j, True]  # and None where it is not a default
AT_LEAST_1 = [*WHOLE, 0]
POSITIVE = [0.0, -1.0, NAN, INF, "1", [1.0, 2.0], 1j, True]
AT_LEAST_0 = [-1.0, NAN, INF, "1", [1.0, 2.0], 1j, True]
CHOICE = ["nonsense", 3, None, ["a"], object()]
BETWEEN = [0.0, 1.0, -0.5, 1.5, NAN, "0.5", 1j]
LEVELS = [-0.1, 1.1, NAN, "a", 1j, None, [0.5, 2.0]]


def spoilt(array: Any, *more: Any) -> list[Any]:
    """An array made wrong in every way that has come up."""
    array = np.asarray(array, dtype=np.float64)
    first = (0,) * array.ndim

    def with_entry(value: Any, kind: Any = np.float64) -> Any:
        new = array.astype(kind)
        new[first] = value
        return new

    return [
        None,
        "nonsense",
        object(),
        {},
        1j,
        with_entry(1j, complex),
        with_entry("a", object),
        with_entry(None, object),
        with_entry(10**400, object),
        with_entry(object(), object),
        with_entry(NAN),
        array.astype(str),
        np.ma.masked_array(array, array == array[first]),
        [[1.0], [1.0, 2.0]],
        with_entry(1e308),
        with_entry(1e200),
        *more,
    ]


TINY = np.full(X.shape, 1e-320)
INPUTS = spoilt(X, X[:, :, None], X[:0], TINY, X * 1e200, np.full(X.shape, INF))
NEW = [x for x in INPUTS if x is not TINY]  # of a new input there may be one row, next to 0
COLUMN = Y[:, None]
TARGETS = spoilt(Y, Y[:3], COLUMN, Y * 1e200, Y * 1e-320, [10**400] * N, 1.0)
OBSERVED = [*spoilt(COUNTS)[:-2], COUNTS[:3]]  # however large they are
ROWS = [r for r in spoilt(np.ones(N), np.ones(3), -np.ones(N), np.ones((N, 2)), np.full(N, 1e200)) if r is not None]


THEIRS = ("X", "y", "random_state")  # arguments of estimators, which scikit-learn checks in its own words


class Call(NamedTuple):
    """A function, arguments it takes, and of some of them what it must refuse."""

    function: Callable
    good: dict[str, Any]
    wrong: dict[str, list[Any]]
    elsewhere: tuple[str, ...] = ()  # arguments whose errors are in words of others


@cache
def gaussian() -> Any:
    return fit(Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3)), X, Y, "ep", max_evaluations=3)


@cache
def with_points() -> Any:
    return infer(replace(gaussian().model, process=quantprop.Inducing(3)), X, Y, "ep")


@cache
def counts() -> Any:
    return infer(Model(kernels.SquaredExponential(), likelihoods.Poisson()), X, COUNTS, "ep")


@cache
def integrated() -> Any:
    return integrate(gaussian(), max_points=30)


@cache
def classes() -> Any:
    model = Model(kernels.SquaredExponential(), likelihoods.MultinomialProbit(3))
    return infer(model, X, np.arange(N) % 3, "ep")


@cache
def regressor() -> Any:
    return GaussianProcessRegressor(kernel=kernels.SquaredExponential(), optimizer=None, alpha=0.1).fit(X, Y)


@cache
def counter() -> Any:
    model = GaussianProcessRegressor(kernel=kernels.SquaredExponential(), optimizer=None, likelihood="poisson")
    return model.fit(X, COUNTS)


@cache
def classifier() -> Any:
    return GaussianProcessClassifier(kernel=kernels.SquaredExponential(), optimizer=None).fit(X, SIGNS)


@cache
def plane() -> Any:
    return GaussianProcessClassifier(kernel=kernels.SquaredExponential(), optimizer=None).fit(PLANE, SIGNS)


@cache
def ranker() -> Any:
    pairs = [[1, 0], [2, 1], [3, 2]]
    return GaussianProcessRanker(kernel=kernels.SquaredExponential(), optimizer=None).fit(X, pairs)


def base() -> dict[str, Any]:
    return {"model": gaussian().model, "X": X, "y": Y}


def predictive() -> Any:
    return counts().predict_y(X)


LEARN = {
    "method": CHOICE, "objective": CHOICE, "gradient": CHOICE, "tol": POSITIVE, "ftol": AT_LEAST_0,
    "max_evaluations": AT_LEAST_1,
}  # fmt: skip
INFER = {"X": INPUTS, "y": TARGETS, "weights": ROWS, "exposure": ROWS, "sites": OBJECTS[:2] + OBJECTS[3:],
         "model": OBJECTS}  # fmt: skip
DRAWS = {"n": WHOLE, "seed": WHOLE}


CALLS: dict[str, Callable[[], Call]] = {
    "infer": lambda: Call(
        infer,
        base(),
        {**INFER, "method": CHOICE, "schedule": CHOICE, "tol": POSITIVE, "max_sweeps": AT_LEAST_1, "trials": ROWS},
    ),
    "fit": lambda: Call(
        fit,
        {**base(), "max_evaluations": 2, "method": "ep"},
        {**INFER, **LEARN, "restarts": WHOLE, "seed": WHOLE, "gtol": POSITIVE},
    ),
    "fit_many": lambda: Call(
        fit_many,
        {"model": gaussian().model, "X": [X, X], "y": [Y, Y], "max_evaluations": 2, "method": "ep"},
        {
            **LEARN,
            "model": OBJECTS,
            "X": [[x, X] for x in INPUTS] + [None, 5, "ab", [X]],
            "y": [[Y, y] for y in TARGETS] + [None, 5, "ab", [Y]],
            "weights": [[w, None] for w in ROWS] + [5],
            "report": [5, "nonsense", None],
        },
    ),
    "fit_streamed": lambda: Call(
        fit_streamed,
        {
            "model": Model(kernels.SquaredExponential(), likelihoods.Probit(), process=Inducing(4)),
            "rows": Arrays(X, SIGNS),
            "max_evaluations": 2,
        },
        {
            "model": OBJECTS,
            "rows": OBJECTS,
            "method": CHOICE,
            "tol": POSITIVE,
            "ftol": AT_LEAST_0,
            "gtol": POSITIVE,
            "max_evaluations": AT_LEAST_1,
        },
    ),
    "integrate": lambda: Call(
        integrate, {"fitted": gaussian()}, {"fitted": OBJECTS, "max_points": AT_LEAST_1, "seed": WHOLE, "tol": POSITIVE}
    ),
    "project": lambda: Call(
        project,
        {"likelihood": likelihoods.Poisson(), "y": 2.0, "cavity": (0.0, 1.0)},
        {
            "likelihood": OBJECTS,
            "y": [NAN, "a", 1j, None, object(), -1.0, 10**400],
            "cavity": [5, None, (0.0,), (0.0, -1.0), (NAN, 1.0), (0.0, NAN), ("a", 1.0), (0.0, 1j), (0.0, 1.0, 2.0)],
            "projection": OBJECTS,
            "exposure": [0.0, NAN, "a", 1j, -1.0],
            "trials": [2.0],
        },
    ),
    "closeness": lambda: Call(
        quantprop.closeness,
        {"solution": with_points(), "rows": 8, "seed": 0},
        {"solution": [None, 1.0, gaussian().solution, gaussian()], "rows": AT_LEAST_1, "seed": WHOLE},
    ),
    "stack": lambda: Call(
        quantprop.stack, {"fitted": [gaussian()]}, {"fitted": [None, 1.0, "fit", [], [None], {"a": 1}]}
    ),
    "prior_predictive": lambda: Call(
        prior_predictive,
        {"model": Model(kernels.SquaredExponential(), likelihoods.Poisson()), "X": X, "n": 2},
        {"model": OBJECTS, "X": [None, "a"], "n": AT_LEAST_1, "seed": WHOLE, "exposure": [-1.0, NAN, "a"]},
    ),
    "predict_many": lambda: Call(
        predict_many,
        {"solutions": [gaussian().solution, gaussian().solution], "Xnew": [X, X]},
        {
            "solutions": [None, 5, [gaussian().solution], [gaussian().solution, 5]],
            "Xnew": [[x, X] for x in NEW] + [None, 5, [X]],
        },
    ),
    "load": lambda: Call(load, {}, {"path": [5.5, None, object(), [1]]}),
    "cache": lambda: Call(quantprop.cache, {}, {"folder": [5.5, object(), [1]]}),
    "sharded": lambda: Call(lambda mesh: sharded(mesh).__enter__(), {}, {"mesh": [5, "nonsense", [], [5], object()]}),
    "checkpointed": lambda: Call(
        lambda **given: checkpointed(**given).__enter__(),
        {"path": "x"},
        {"path": [5.5, None, object()], "minutes": AT_LEAST_0},
    ),
    "datasets.load": lambda: Call(datasets.load, {"name": "crabs"}, {"name": CHOICE, "variant": CHOICE}),
    # --- results
    "Solution.predict": lambda: Call(gaussian().solution.predict, {"Xnew": X}, {"Xnew": NEW}),
    "Solution.predict_y": lambda: Call(
        counts().predict_y, {"Xnew": X}, {"Xnew": NEW, "exposure": ROWS, "trials": ROWS, "output": [1.5, 3, "a", -1]}
    ),
    "Solution.sample": lambda: Call(gaussian().solution.sample, {"Xnew": X, "n": 2}, {"Xnew": NEW, **DRAWS}),
    "Solution.terms": lambda: Call(gaussian().solution.terms, {"Xnew": X}, {"Xnew": NEW}),
    "Solution.forecast": lambda: Call(
        counts().forecast,
        {"horizon": 2},
        {"horizon": [*AT_LEAST_1, None], "step": POSITIVE, "exposure": [np.ones(5), "a", -1.0]},
    ),
    "Effects.sample": lambda: Call(gaussian().solution.terms(X).sample, {"n": 2}, DRAWS),
    "Predictive.log_prob": lambda: Call(predictive().log_prob, {"y": COUNTS}, {"y": OBSERVED}),
    "Predictive.cdf": lambda: Call(predictive().cdf, {"y": COUNTS}, {"y": OBSERVED}),
    "Predictive.quantile": lambda: Call(predictive().quantile, {"q": 0.5}, {"q": LEVELS}),
    "Predictive.sample": lambda: Call(predictive().sample, {"n": 2}, DRAWS),
    "Mixed.quantile": lambda: Call(integrated().predict_y(X).quantile, {"q": 0.5}, {"q": LEVELS}),
    "Mixed.sample": lambda: Call(integrated().predict_y(X).sample, {"n": 2}, DRAWS),
    "Mixed.cdf": lambda: Call(integrated().predict_y(X).cdf, {"y": Y}, {"y": [Y[:3], "a", NAN, 1j, None, object()]}),
    "Mixed.log_prob": lambda: Call(
        integrated().predict_y(X).log_prob, {"y": Y}, {"y": [Y[:3], "a", NAN, 1j, None, object()]}
    ),
    "Integrated.predict": lambda: Call(integrated().predict, {"Xnew": X}, {"Xnew": NEW}),
    "Integrated.predict_y": lambda: Call(integrated().predict_y, {"Xnew": X}, {"Xnew": NEW, "trials": ROWS}),
    "Integrated.sample": lambda: Call(integrated().sample, {"Xnew": X, "n": 2}, {"Xnew": NEW, **DRAWS}),
    "Integrated.sample_y": lambda: Call(integrated().sample_y, {"Xnew": X, "n": 2}, {"Xnew": NEW, **DRAWS}),
    "Integrated.marginal": lambda: Call(integrated().marginal, {"name": "kernel.variance"}, {"name": CHOICE}),
    "NormalMixture.quantile": lambda: Call(integrated().predict(X).quantile, {"q": 0.5}, {"q": LEVELS}),
    "ClassSolution.predict": lambda: Call(classes().predict, {"Xnew": X}, {"Xnew": NEW}),
    "ClassSolution.predict_y": lambda: Call(classes().predict_y, {"Xnew": X}, {"Xnew": NEW}),
    "ClassSolution.sample": lambda: Call(classes().sample, {"Xnew": X, "n": 2}, {"Xnew": NEW, **DRAWS}),
    "ClassPredictive.log_prob": lambda: Call(
        classes().predict_y(X).log_prob, {"y": np.arange(N) % 3}, {"y": [NAN, "a", 7, -1, 1j, None, np.arange(3), 0.5]}
    ),
    "ClassPredictive.sample": lambda: Call(classes().predict_y(X).sample, {"n": 2}, DRAWS),
    "Fitted.save": lambda: Call(gaussian().save, {}, {"path": [5.5, None, object()]}),
    # --- parts
    "PowerEP": lambda: Call(PowerEP, {}, {"power": [0.0, 1.5, NAN, "a", None, 1j, [0.5]]}),
    "QP": lambda: Call(quantprop.QP, {}, {"p": [0.5, NAN, "a", None, 1j, INF]}),
    "Wasserstein": lambda: Call(projections.Wasserstein, {}, {"p": [0.5, NAN, "a", None, 1j, INF]}),
    "Inducing": lambda: Call(Inducing, {}, {"points": [0, -3, 1.5, "a", None, NAN, 1j]}),
    "Model": lambda: Call(
        Model,
        {"kernel": kernels.SquaredExponential(), "likelihood": likelihoods.Probit()},
        {"kernel": OBJECTS, "likelihood": OBJECTS, "process": OBJECTS, "mean": ["a", None, 1j, object()]},
    ),
    # --- estimators
    "ranker.fit": lambda: Call(
        GaussianProcessRanker(optimizer=None).fit,
        {"X": X, "pairs": [[0, 1]]},
        {
            "X": NEW,
            "pairs": [None, 5, [[0.5, 1.0]], [[0, 99]], [[1, 1]], [], "a", [[0, 1, 2]]],
            "sample_weight": [w for w in ROWS[:9]],
        },
        THEIRS,
    ),
    "ranker.predict_proba": lambda: Call(ranker().predict_proba, {"X": X, "others": X}, {"X": NEW}, THEIRS),
    "ranker.score": lambda: Call(
        ranker().score,
        {"X": X, "pairs": [[0, 1]]},
        {"X": NEW, "pairs": [None, 5, [[0, 99]], []], "sample_weight": [[-1.0], "a", [1.0, 2.0], [1j]]},
        THEIRS,
    ),
    "regressor.predict_quantiles": lambda: Call(
        regressor().predict_quantiles, {"X": X}, {"X": NEW, "q": LEVELS}, THEIRS
    ),
    "regressor.predict_interval": lambda: Call(
        regressor().predict_interval, {"X": X}, {"X": NEW, "coverage": [*BETWEEN, None]}, THEIRS
    ),
    "regressor.predictive_cdf": lambda: Call(
        regressor().predictive_cdf, {"X": X, "y": Y}, {"y": [Y[:3], "a", NAN, 1j, None, object()]}, THEIRS
    ),
    "regressor.log_predictive_density": lambda: Call(
        regressor().log_predictive_density, {"X": X, "y": Y}, {"y": [Y[:3], "a", NAN, 1j, None, object()]}, THEIRS
    ),
    "regressor.sample_y": lambda: Call(
        regressor().sample_y, {"X": X}, {"X": NEW, "n_samples": [*WHOLE, None], "random_state": [1.5, "a", -1]}, THEIRS
    ),
    "counter.predict": lambda: Call(counter().predict, {"X": X}, {"X": NEW, "exposure": ROWS, "trials": ROWS}, THEIRS),
    "counter.sample_y": lambda: Call(counter().sample_y, {"X": X}, {"n_samples": WHOLE, "exposure": ROWS}, THEIRS),
    "counter.score": lambda: Call(counter().score, {"X": X, "y": COUNTS}, {"X": NEW, "y": OBSERVED}, THEIRS),
    # --- pictures
    "plots.reliability": lambda: Call(
        plots.reliability,
        {"probability": [0.1, 0.7], "outcome": [0, 1]},
        {
            "probability": [[0.1, 2.0], "a", None, [0.1], [NAN, 0.1], [1j, 0.1]],
            "outcome": [[0, 3], "a", None, [0], [NAN, 1]],
            "bins": AT_LEAST_1,
        },
    ),
    "plots.pit": lambda: Call(
        plots.pit, {"predictive": [0.1, 0.7]}, {"predictive": ["a", None, [2.0], object(), [1j]], "bins": AT_LEAST_1}
    ),
    "plots.rootogram": lambda: Call(
        plots.rootogram,
        {"predictive": predictive(), "y": COUNTS},
        {"predictive": OBJECTS, "y": [None, "a", -COUNTS, COUNTS[:2]], "most": [-1, 1.5, "a", NAN, 10**9]},
    ),
    "plots.class_reliability": lambda: Call(
        plots.class_reliability,
        {"probability": [[0.5, 0.5]], "outcome": [1]},
        {
            "probability": ["a", None, [[2.0, -1.0]]],
            "outcome": [[7], None, "a", [0, 1]],
            "labels": [["a"], 5],
            "bins": AT_LEAST_1,
        },
    ),
    "plots.forecast": lambda: Call(
        plots.forecast,
        {"times": X[:, 0], "predictive": predictive()},
        {"times": [None, "a", X[:2, 0]], "predictive": OBJECTS, "levels": [[2.0], [], 0.5, ["a"], None]},
    ),
    "plots.class_probability": lambda: Call(
        plots.class_probability,
        {"source": plane(), "X": PLANE, "y": SIGNS, "points": 2},
        {"source": OBJECTS, "X": [X, None, "a"], "y": [None, "a", SIGNS[:3]], "points": AT_LEAST_1},
    ),
    "plots.class_regions": lambda: Call(
        plots.class_regions,
        {"source": plane(), "X": PLANE, "y": SIGNS, "points": 2},
        {"source": OBJECTS, "X": [X, None, "a"], "y": [None, "a", SIGNS[:3]], "points": AT_LEAST_1},
    ),
    "plots.posterior": lambda: Call(
        plots.posterior,
        {"source": gaussian().solution, "X": X, "y": Y},
        {"source": OBJECTS, "X": NEW, "y": [None, "a", Y[:3]], "of": CHOICE, "Xnew": NEW[1:]},
    ),
    "plots.site": lambda: Call(
        plots.site,
        {"likelihood": likelihoods.Probit(), "y": 1, "cavity": (0.0, 1.0)},
        {"likelihood": OBJECTS, "y": [NAN, "a", None, 0.5], "cavity": [5, None, (0.0,), (0.0, -1.0), ("a", 1.0)]},
    ),
    "plots.variance_ratio": lambda: Call(
        plots.variance_ratio,
        {"likelihood": likelihoods.Probit(), "y": 1, "points": 2},
        {
            "likelihood": OBJECTS,
            "y": [NAN, "a", None, 0.5],
            "mean": [5, None, (1.0, 0.0), ("a", "b"), (0.0, NAN)],
            "sd": [5, None, (2.0, 1.0), (-1.0, 1.0), ("a", "b")],
            "points": [*AT_LEAST_1, 1],
        },
    ),
    "plots.decomposition": lambda: Call(plots.decomposition, {"source": gaussian().solution}, {"source": OBJECTS}),
    "plots.effects": lambda: Call(plots.effects, {"source": gaussian().solution}, {"source": OBJECTS, "axes": [5, []]}),
    "plots.check": lambda: Call(
        plots.check,
        {"source": gaussian().solution, "draws": 2},
        {"source": OBJECTS, "draws": AT_LEAST_1, "seed": WHOLE, "axes": [5, []]},
    ),
    "plots.survival": lambda: Call(
        plots.survival,
        {"curves": Listing("curves", {name: [1.0, 0.5] for name in ("row", "time", "survival", "lower", "upper")})},
        {"curves": OBJECTS},
    ),
    "plots.effect": lambda: Call(
        plots.effect, {"source": gaussian().solution, "name": "se"}, {"source": OBJECTS, "name": CHOICE}
    ),
    "plots.hyperparameter": lambda: Call(
        plots.hyperparameter,
        {"source": integrated(), "name": "kernel.variance"},
        {"source": OBJECTS, "name": CHOICE, "point": ["a", [1.0, 2.0], 1j]},
    ),
    "plots.trace": lambda: Call(plots.trace, {"fitted": gaussian()}, {"fitted": OBJECTS}),
    "plots.variances": lambda: Call(
        plots.variances,
        {"ep_source": gaussian().solution, "qp_source": gaussian().solution, "Xnew": X},
        {"ep_source": OBJECTS, "qp_source": OBJECTS, "Xnew": NEW},
    ),
    "regressor.fit": lambda: Call(
        copy.deepcopy(regressor()).fit,
        {"X": X, "y": Y},
        {"X": INPUTS, "y": [y for y in TARGETS if y is not COLUMN], "sample_weight": ROWS},
        THEIRS,
    ),
    "regressor.predict": lambda: Call(regressor().predict, {"X": X}, {"X": NEW}, THEIRS),
    "classifier.fit": lambda: Call(
        copy.deepcopy(classifier()).fit,
        {"X": X, "y": SIGNS},
        {"X": INPUTS, "y": [None, SIGNS[:3], np.full(N, NAN), np.ma.masked_less(SIGNS, 0.0)], "sample_weight": ROWS},
        THEIRS,
    ),
    "classifier.predict": lambda: Call(classifier().predict, {"X": X}, {"X": NEW}, THEIRS),
}


def outcome(call: Call, name: str, value: Any) -> str:
    """What is wrong with how a call takes a wrong argument; empty if nothing is."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            call.function(**{**call.good, name: value})
        except (ValueError, TypeError) as error:
            named = re.search(rf"\b{name}(new)?\b", str(error)) or name in call.elsewhere
            return "" if named else f"{type(error).__name__} does not name it: {str(error)[:150]}"
        except Exception as error:  # which must not come out
            return f"{type(error).__name__}: {str(error)[:150]}"
    return "accepted"


def shown(value: Any) -> str:
    text = re.sub(r"\s+", " ", repr(value))
    return text if len(text) < 70 else f"{text[:40]} ... {text[-25:]}"


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_named(name):
    call = CALLS[name]()
    plt.close("all")
    found = [
        f"{argument}={shown(value)}: {fault}"
        for argument, wrong in call.wrong.items()
        for value in wrong
        if (fault := outcome(call, argument, value))
    ]
    assert not found, "\n".join([name, *found])


def test_the_table_is_whole():
    """Every public function has a line in it."""
    public = {name for name in quantprop.__all__ if inspect.isfunction(getattr(quantprop, name))}
    public |= {f"plots.{name}" for name in plots.__all__ if inspect.isfunction(getattr(plots, name))}
    assert public <= CALLS.keys() | {"save"}  # which is `Fitted.save`
