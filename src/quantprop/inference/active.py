"""Active choice of observations: `ask` where to observe next, `tell` what was observed there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from quantprop.core.data import inputs, row_weights
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.inferring import infer
from quantprop.inference.information import expected, of_mean
from quantprop.inference.predictive import NO_VARIANCE, Predictive
from quantprop.inference.results import Fitted
from quantprop.inference.shaped import ShapedSolution
from quantprop.inference.solution import Solution
from quantprop.inference.task import more_columns, task_of
from quantprop.kernels import Derivatives
from quantprop.likelihoods.base import encode, observed
from quantprop.runtime.arguments import checked, choice, whole

CRITERIA = ("information", "predictions", "level", "improvement", "upper")
SHORTLIST = 512  # candidates whose joint posterior a batch is chosen from
REDUCED = 0.1  # fraction by which variances are reduced to learn what their reduction tells about y

M = TypeVar("M", Solution, Fitted)


@checked(n=whole(1), criterion=choice(CRITERIA))
def ask(
    model: Any,
    candidates: Any,
    n: int = 1,
    criterion: str = "information",
    level: float | None = None,
    *,
    exposure: Any = None,
    trials: Any = None,
    output: int | None = None,
) -> Int[np.ndarray, " n"]:
    """Choose which candidates to observe next.

    A batch is chosen one by one. After each choice the variances of f are those expected after its observation, and the
    means stay. Of more than 512 candidates, a batch comes from the 256 best and 256 across the ranking of the others.

    Args:
        model: A `Solution`, a `Fitted`, or an estimator with one latent function.
        candidates: Inputs, k rows.
        n: Number of rows to choose.
        criterion: "information" on f; "predictions", information on y at the other candidates, which outliers have
            little of: of more than 512 candidates it sees some at random; "level", information on the event f > level;
            "improvement", the expected improvement of E[y] over its largest value at training rows; "upper", the 95 %
            quantile of E[y | f].
        level: Level of f, for criterion="level" only.
        exposure: Exposure of the new observations, where the likelihood has one.
        trials: Trials of the new observations, where the likelihood has them.
        output: Which y is observed, with `likelihoods.ByOutput`.

    Returns:
        Positions of the chosen rows, best first.

    >>> import numpy as np
    >>> from quantprop import Model, active, infer, kernels, likelihoods
    >>> model = Model(kernels.SquaredExponential(4.0), likelihoods.Probit())
    >>> solution = infer(model, np.array([[-1.0], [0.0]]), [-1, 1], "ep")
    >>> active.ask(solution, np.linspace(-3, 3, 7)[:, None], 2).tolist()
    [6, 0]
    """
    if (level is None) == (criterion == "level"):
        raise ValueError(f"level must be set with criterion='level', and only then; got {level!r} with {criterion!r}")
    solution = _solution_of(model)
    x = inputs(candidates, "candidates", features=solution.X.shape[1])
    if n > len(x):
        raise ValueError(f"n must be at most the number of candidates, {len(x)}; got {n}")
    scales = {"exposure": exposure, "trials": trials, "output": output}
    new, score = solution.predict_y(x, **scales), _score(solution, criterion, level, scales)
    if criterion == "predictions":
        some = np.random.default_rng(0).permutation(len(x))[: max(SHORTLIST, 2 * n)]
    else:
        found = score(new)
        if n == 1:
            return np.array([np.argmax(found)])
        some = _shortlist(found, n)
    return some[_batch(new, solution.predict(x[some], full_cov=True), some, n, score)]


def _solution_of(model: Any) -> Solution:
    """The solution of a model with one latent function, at fixed hyperparameters."""
    found = getattr(model, "posterior_", getattr(model, "solution", model))
    if not isinstance(found, Solution):
        raise TypeError("model must be a Solution, a Fitted or an estimator with one latent function at learned "
                        f"hyperparameters; got {type(model).__name__} with {type(found).__name__}: use two classes "
                        "or one output, and hyperparameters='point'")  # fmt: skip
    if found.model.likelihood.latents > 1:
        raise ValueError("ask is not supported for a likelihood with a varying parameter: choose rows by the variances "
                         "of predict_y, or fit one with a constant parameter")  # fmt: skip
    return found


def _score(solution: Solution, criterion: str, level: float | None, scales: dict[str, Any]) -> Callable:
    """The criterion as a function of the distribution of y and, for "predictions", the joint covariance of f."""
    if criterion == "predictions":
        return _elsewhere
    if criterion == "information":
        return lambda new, *_: expected(new).of_f
    if criterion == "level":
        return lambda new, *_: expected(new, level).of_event
    x = solution.X[solution.X[:, -1] == 0] if isinstance(solution.model.kernel, Derivatives) else solution.X
    best = np.max(solution.predict_y(x, **{k: v for k, v in scales.items() if np.ndim(v) == 0}).mean)
    return lambda new, *_: of_mean(new, best)[criterion == "upper"]


def _elsewhere(new: Predictive, covariance: Float[np.ndarray, "k k"]) -> Float[np.ndarray, " k"]:
    """Information of each y on the y of all candidates (Bickford Smith et al. 2023), to first order in the variances
    of f that it explains: v_j by Σ_ij² (v_i − E[Var(f_i | y_i)])/v_i².
    """
    v = np.maximum(new.latent.variance, NO_VARIANCE)
    less = Predictive(new.likelihood, Normal(new.latent.mean, (1.0 - REDUCED) * v), new.exposure, new.trials)
    found, left = expected(new), expected(less)
    return (v - found.variance) / v**2 * (covariance**2 @ ((found.of_f - left.of_f) / (REDUCED * v)))


def _shortlist(score: Float[np.ndarray, " k"], n: int) -> Int[np.ndarray, " m"]:
    """The best candidates, and others evenly across their ranking."""
    order, most = np.argsort(-score, kind="stable"), max(SHORTLIST, 2 * n)
    if len(order) <= most:
        return order
    return np.concatenate([order[: most // 2], order[np.linspace(most // 2, len(order) - 1, most // 2).astype(int)]])


def _batch(new: Predictive, joint: Normal, some: np.ndarray, n: int, score: Callable) -> list[int]:
    """The positions chosen one after the other; Σ loses what an observation of average information explains."""
    scales, covariance, chosen = (new.exposure[some], new.trials[some]), np.array(joint.covariance), []
    for _ in range(n):
        variance = np.maximum(np.diagonal(covariance), 0.0)
        found = score(Predictive(new.likelihood, Normal(joint.mean, variance), *scales), covariance)
        found[chosen] = -np.inf
        i = int(np.argmax(found))
        chosen.append(i)
        if (own := variance[i]) > NO_VARIANCE:
            one = Predictive(new.likelihood, Normal(joint.mean[[i]], variance[[i]]), *(part[[i]] for part in scales))
            covariance -= np.outer(covariance[i], covariance[i]) * (own - expected(one).variance[0]) / own**2
    return chosen


def tell(model: M, X: Any, y: Any, *, weights: Any = None, exposure: Any = None, trials: Any = None) -> M:
    """Add observed rows, at the same hyperparameters: `infer`, started from the sites of the earlier rows.

    Args:
        model: A `Solution` or a `Fitted`.
        X: Inputs of the new rows.
        y: Observations, as the likelihood codes them.
        weights: Weights of the new rows.
        exposure: Exposure of the new rows.
        trials: Trials of the new rows.

    Returns:
        The result for all rows, of the type given.

    >>> import numpy as np
    >>> from quantprop import Model, active, infer, kernels, likelihoods
    >>> model = Model(kernels.SquaredExponential(4.0), likelihoods.Probit())
    >>> solution = infer(model, np.array([[-1.0], [0.0]]), [-1, 1], "ep")
    >>> len(active.tell(solution, [[3.0]], [1]).X)
    3
    """
    given: dict[str, Any] = {"weights": weights, "exposure": exposure, "trials": trials}
    if isinstance(model, Fitted):
        return replace(model, solution=tell(model.solution, X, y, **given))
    if not isinstance(model, Solution):
        raise TypeError(f"model must be a Solution or a Fitted; got {type(model).__name__}: for an estimator pass "
                        "model.fitted_")  # fmt: skip
    if isinstance(model, ShapedSolution):
        rows = Derivatives.rows(inputs(X, "X", features=model.X.shape[1]))
        whole: Any = tell(model.whole, rows, np.column_stack([y, np.zeros(len(rows))]), **given)
        told = model.of(whole, model.of_signs)
        if (wrong := told.wrong(told.X)) > 0.5:
            warnings.warn(f"tell: the new rows contradict the constraint on the shape of f (largest probability of a "
                          f"wrong sign {wrong:.2g}), whose virtual rows stay where they are: fit again, which places "
                          "more of them", stacklevel=2)  # fmt: skip
        return told  # pyright: ignore[reportReturnType]
    task, n = task_of(model), len(model.X)
    likelihood, x = task.model.plain_likelihood, inputs(X, "X", features=model.X.shape[1])
    more = encode(likelihood, observed(y, likelihood, len(x)), (len(x),), exposure, trials)
    y, *scales = (np.concatenate([old[:n], new]) for old, new in zip(task.data, more, strict=True))
    given = dict(zip(("exposure", "trials"), scales, strict=True))
    total = np.concatenate([task.weight.total[:n], row_weights(weights, len(x))])
    sites = Natural(*(more_columns(part, len(x)) for part in (model.sites.nu, model.sites.tau)))
    return infer(
        model.model, np.concatenate([model.X, x]), y, model.method, sites=sites,
        weights=None if (total == 1.0).all() else total, **{name: given[name] for name in likelihood.scaled_by},
    )  # fmt: skip
