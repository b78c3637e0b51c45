"""Active choice of observations: `ask` where to observe next, `tell` what was observed there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from quantprop.core.data import inputs, row_weights
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.inferring import infer
from quantprop.inference.information import expected, of_mean
from quantprop.inference.mixture import Mixture
from quantprop.inference.predictive import NO_VARIANCE, Predictive
from quantprop.inference.results import Fitted
from quantprop.inference.shaped import ShapedSolution
from quantprop.inference.solution import Solution
from quantprop.inference.task import Task, more_columns, task_of
from quantprop.kernels import Derivatives
from quantprop.likelihoods.base import encode, observed
from quantprop.runtime.arguments import checked, choice, whole

CRITERIA = ("information", "predictions", "level", "improvement", "upper")
SHORTLIST = 512  # candidates whose joint posterior a batch is chosen from
REDUCED = 0.1  # fraction by which variances are reduced to learn what their reduction tells about y

M = TypeVar("M")
OTHER = "fit one class against the others, which has one latent function"


class InOwnTerms(NamedTuple):
    """Functions that take inputs, levels and observations in the terms of an estimator's users."""

    asked: Callable[..., tuple[Any, Any, Any]]  # posterior, inputs and level of f inside an estimator
    told: Callable[..., Any]  # the estimator with further rows


ESTIMATORS: dict[type, InOwnTerms] = {}  # by type; their modules register themselves


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

    Of several models, as in a `Stack` or an `Integrated`, criteria are averaged by weight. If a parameter varies with
    x, p(y | f) is averaged over the posterior of the function behind it.

    Args:
        model: An estimator with one latent function, a `Solution`, a `Fitted`, a `Stack` or an `Integrated`.
        candidates: Inputs, k rows, as the model takes them: of an estimator also a frame.
        n: Number of rows to choose.
        criterion: "information" on f; "predictions", information on y at the other candidates, which outliers have
            little of: of more than 512 candidates it sees some at random; "level", information on the event f > level;
            "improvement", the expected improvement of E[y] over its largest value at training rows; "upper", the 95 %
            quantile of E[y | f].
        level: Level of f, for criterion="level" only; of an estimator with normalize_y in the units of y.
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
    posterior, x, level = _inside(model, candidates, level)
    members, weights = _members(model, posterior)
    x = inputs(x, "candidates", features=members[0].X.shape[1])
    if n > len(x):
        raise ValueError(f"n must be at most the number of candidates, {len(x)}; got {n}")
    scales = {"exposure": exposure, "trials": trials, "output": output}
    new = [one.predict_y(x, **scales) for one in members]
    of_one = _criterion(posterior, members[0], criterion, level, scales)

    def score(each: Sequence[Predictive]) -> Float[np.ndarray, " k"]:
        return np.sum([w * of_one(one) for w, one in zip(weights, each, strict=True)], axis=0)

    if criterion == "predictions":
        some = np.random.default_rng(0).permutation(len(x))[: max(SHORTLIST, 2 * n)]
    else:
        found = score(new)
        if n == 1:
            return np.array([np.argmax(found)])
        some = _shortlist(found, n)
    joint = [one.predict(x[some], full_cov=True) for one in members]
    return some[_batch([one.given_latent(some, f) for one, f in zip(new, joint, strict=True)], n, score)]


def _in_own_terms(model: Any) -> InOwnTerms | None:
    """The functions of an estimator's type; None for other models."""
    return next((ESTIMATORS[kind] for kind in type(model).__mro__ if kind in ESTIMATORS), None)


def _inside(model: Any, candidates: Any, level: float | None) -> tuple[Any, Any, Any]:
    """The posterior of a model, with candidates and level in its terms."""
    if (terms := _in_own_terms(model)) is not None:
        return terms.asked(model, candidates, level)
    if isinstance(model, Fitted):
        _check_terms(model)
    return getattr(model, "solution", model), candidates, level


def _members(model: Any, posterior: Any) -> tuple[Sequence[Any], Any]:
    """The posteriors of one latent function that are averaged, and their weights."""
    found = (posterior.components, posterior.weights) if isinstance(posterior, Mixture) else ([posterior], [1.0])
    if not all(isinstance(one, Solution) for one in found[0]):
        raise TypeError("model must be a Solution, a Fitted, a Stack, an Integrated or an estimator, with one latent "
                        f"function; got {type(model).__name__} with {type(posterior).__name__}: {OTHER}")  # fmt: skip
    return found


def _criterion(
    posterior: Any, member: Solution, criterion: str, level: float | None, scales: dict[str, Any]
) -> Callable[[Predictive], Float[np.ndarray, " k"]]:
    """The criterion as a function of the distribution of y by one model, for "predictions" with a joint one of f."""
    if criterion == "predictions":
        return _elsewhere
    if criterion == "information":
        return lambda new: expected(new).of_f
    if criterion == "level":
        return lambda new: expected(new, level).of_event
    x = member.X[member.X[:, -1] == 0] if isinstance(member.model.kernel, Derivatives) else member.X
    best = np.max(posterior.predict_y(x, **{k: v for k, v in scales.items() if np.ndim(v) == 0}).mean)
    return lambda new: of_mean(new, best)[criterion == "upper"]


def _elsewhere(new: Predictive) -> Float[np.ndarray, " k"]:
    """Information of each y on the y of all candidates (Bickford Smith et al. 2023), to first order in the variances
    of f that it explains: v_j by Σ_ij² (v_i − E[Var(f_i | y_i)])/v_i².
    """
    v = np.maximum(new.latent.variance, NO_VARIANCE)
    less = new.given_latent(slice(None), Normal(new.latent.mean, (1.0 - REDUCED) * v))
    found, left = expected(new), expected(less)
    return (v - found.variance) / v**2 * (new.latent.covariance**2 @ ((found.of_f - left.of_f) / (REDUCED * v)))


def _shortlist(score: Float[np.ndarray, " k"], n: int) -> Int[np.ndarray, " m"]:
    """The best candidates, and others evenly across their ranking."""
    order, most = np.argsort(-score, kind="stable"), max(SHORTLIST, 2 * n)
    if len(order) <= most:
        return order
    return np.concatenate([order[: most // 2], order[np.linspace(most // 2, len(order) - 1, most // 2).astype(int)]])


def _batch(new: Sequence[Predictive], n: int, score: Callable) -> list[int]:
    """The positions chosen one after the other."""
    chosen: list[int] = []
    while True:
        found = np.array(score(new))
        found[chosen] = -np.inf
        chosen.append(int(np.argmax(found)))
        if len(chosen) == n:
            return chosen
        new = [_observed(one, chosen[-1]) for one in new]


def _observed(new: Predictive, i: int) -> Predictive:
    """The same after an observation of row i: Σ loses what one of average information explains."""
    mean, covariance = new.latent.mean, new.latent.covariance
    if (own := new.latent.variance[i]) <= NO_VARIANCE:
        return new
    left = expected(new.given_latent([i], Normal(mean[[i]], new.latent.variance[[i]]))).variance[0]
    covariance = covariance - np.outer(covariance[i], covariance[i]) * (own - left) / own**2
    variance = np.maximum(np.diagonal(covariance), 0.0)
    return new.given_latent(slice(None), Normal(mean, variance, covariance))


def tell(model: M, X: Any, y: Any, *, weights: Any = None, exposure: Any = None, trials: Any = None) -> M:
    """Add observed rows, at the same hyperparameters: `infer`, started from the sites of the earlier rows.

    Args:
        model: An estimator, a `Solution` or a `Fitted`.
        X: Inputs of the new rows, as the model takes them: of an estimator also a frame; of a ranker items.
        y: Observations: of an estimator as in its `fit`, in the same units or labels, of a ranker pairs of items;
            otherwise as the likelihood codes them.
        weights: Weights of the new rows.
        exposure: Exposure of the new rows.
        trials: Trials of the new rows.

    Returns:
        The result for all rows, of the type given; the one given does not change.

    >>> import numpy as np
    >>> from quantprop import GaussianProcessClassifier, active
    >>> model = GaussianProcessClassifier(optimizer=None).fit([[-1.0], [0.0]], ["no", "yes"])
    >>> model = active.tell(model, [[3.0]], ["no"])
    >>> model.predict([[-1.0], [0.0], [3.0]]).tolist()
    ['no', 'yes', 'no']
    """
    given: dict[str, Any] = {"weights": weights, "exposure": exposure, "trials": trials}
    if (terms := _in_own_terms(model)) is not None:
        return terms.told(model, X, y, **given)
    if isinstance(model, Fitted):
        _check_terms(model)
        return replace(model, solution=tell(model.solution, X, y, **given))
    if isinstance(model, Mixture):
        raise TypeError(f"tell adds rows to one model; got {type(model).__name__}, the average of several: fit again "
                        "with all rows, or tell a single one, such as stack.heaviest.fitted")  # fmt: skip
    if not isinstance(model, Solution):
        raise TypeError("model must be a Solution, a Fitted or an estimator, with one latent function; got "
                        f"{type(model).__name__}: {OTHER}")  # fmt: skip
    if isinstance(model, ShapedSolution):
        return _told_shaped(model, X, y, given)  # pyright: ignore[reportReturnType]
    x, y, rows = with_rows(task_of(model), X, y, **given)
    sites = Natural(*(more_columns(part, len(x) - len(model.X)) for part in (model.sites.nu, model.sites.tau)))
    return infer(model.model, x, y, model.method, sites=sites, **rows)  # pyright: ignore[reportReturnType]


def _check_terms(fitted: Fitted) -> None:
    """Raise if a result is only a part of its user's model, or has X and y in other terms."""
    if fitted.inside:
        raise ValueError(f"model is the inside of an estimator {fitted.inside}: pass the estimator itself")


def with_rows(
    task: Task, X: Any, y: Any, weights: Any = None, exposure: Any = None, trials: Any = None
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """X, y and the other columns of the rows of a task and of further ones, as `infer` takes them."""
    likelihood, n = task.model.plain_likelihood, len(task.x)
    x = inputs(X, "X", features=task.x.shape[1])
    more = encode(likelihood, observed(y, likelihood, len(x)), (len(x),), exposure, trials)
    y, *scales = (np.concatenate([old[:n], new]) for old, new in zip(task.data, more, strict=True))
    rows = {name: one for name, one in zip(("exposure", "trials"), scales, strict=True) if name in likelihood.scaled_by}
    total = np.concatenate([task.weight.total[:n], row_weights(weights, len(x))])
    if (total != 1.0).any():
        rows["weights"] = total
    return np.concatenate([task.x, x]), y, rows


def _told_shaped(model: ShapedSolution, X: Any, y: Any, given: dict[str, Any]) -> ShapedSolution:
    """The same under a constraint, whose virtual rows stay."""
    rows = Derivatives.rows(inputs(X, "X", features=model.X.shape[1]))
    whole: Any = tell(model.whole, rows, np.column_stack([y, np.zeros(len(rows))]), **given)
    told = model.of(whole, model.of_signs)
    if (wrong := told.wrong(told.X)) > 0.5:
        warnings.warn(f"tell: the new rows contradict the constraint on the shape of f (largest probability of a "
                      f"wrong sign {wrong:.2g}), whose virtual rows stay where they are: fit again, which places "
                      "more of them", stacklevel=4)  # fmt: skip
    return told
