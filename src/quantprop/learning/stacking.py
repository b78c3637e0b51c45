"""Weights of several models of the same data, by the densities of left-out rows: `stack`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import at, box, declared, log_prior, packed
from quantprop.inference.classes import as_classes, as_factors
from quantprop.inference.inferring import infer
from quantprop.inference.results import Fitted
from quantprop.inference.solution import Solution
from quantprop.inference.stacked import Member, Stack
from quantprop.runtime.arguments import checked
from quantprop.runtime.precision import float64

STEP = 1e-3  # of a difference, in units of θ
TOLERANCE = 1e-9  # of the inference that differences are taken of
CONCENTRATION = 0.5  # a of the Dirichlet prior a Σ log w of the weights, which keeps every weight positive
WEIGHT_GAP = 1e-7  # nats: by how much other weights could be better at most
EQUAL = 1e-9  # largest difference between the densities of two models that count once


class LeftOut(NamedTuple):
    """Log densities of left-out rows by one model, corrected; and its effective number of hyperparameters."""

    loo: Float[np.ndarray, " n"]
    learned: float


@checked()
def stack(fitted: Sequence[Fitted] | Mapping[str, Fitted]) -> Stack:
    """Average learned models of the same data by how well they predict left-out rows.

    The weights maximise Σ_i s_i log Σ_k w_k p_k(y_i | the other rows) + ½ Σ_k log w_k, with s_i the weights of the
    rows (stacking: Yao, Vehtari, Simpson and Gelman 2018). The densities come from the cavities, at hyperparameters
    learned from row i too. They are lowered by g_iᵀ A⁻¹ g_i, with g_i = ∂ log p(y_i | the other rows, θ) / ∂θ and
    A = Σ_i s_i g_i g_iᵀ plus the precisions of the priors, which approximates the negative Hessian of the objective.

    Args:
        fitted: What `fit` returned for several models of the same X, y, weights and exposure, with the same or other
            likelihoods of y; with names if it is a mapping.

    Returns:
        The models and their weights, which predict like a Solution. Models without a proper density of every left-out
        row, models that have not converged, and models equal to an earlier one do not enter; `left_out` names them.

    >>> import numpy as np
    >>> from quantprop import Model, fit, kernels, likelihoods, stack
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> y = 2.0 * X[:, 0] + 0.3 * np.cos(9 * X[:, 0])
    >>> each = {"line": kernels.Linear(), "smooth": kernels.SquaredExponential()}
    >>> found = stack({name: fit(Model(k, likelihoods.Gaussian(0.3)), X, y, "ep") for name, k in each.items()})
    >>> found.heaviest.name
    'line'
    """
    if not isinstance(fitted, Mapping | Sequence) or not len(fitted):
        raise ValueError(f"fitted must hold one model or more, as fit returned them; got {fitted!r}")
    named = dict(fitted) if isinstance(fitted, Mapping) else {f"model {k + 1}": one for k, one in enumerate(fitted)}
    _check_same_data(named)
    entering, left_out = {}, {}
    for name, one in named.items():
        reason = _why_not(one)
        if reason:
            left_out[name] = reason
            continue
        found = corrected_loo(one)
        twin = next((other for other, (_, known) in entering.items()
                     if np.abs(known.loo - found.loo).max() < EQUAL), None)  # fmt: skip
        if twin is None:
            entering[name] = one, found
        else:
            left_out[name] = f"equal to {twin}"
    if not entering:
        raise ValueError(
            "no model can enter the stack: " + "; ".join(f"{name}: {why}" for name, why in left_out.items())
        )
    scores = np.stack([found.loo for _, found in entering.values()])
    rows = _row_weights(next(iter(entering.values()))[0], scores.shape[1])
    weights = best_weights(scores, rows)
    members = (
        Member(name, one, float(w), float(rows @ found.loo / rows.sum()), found.learned, found.loo)
        for w, (name, (one, found)) in zip(weights, entering.items(), strict=True)
    )
    return Stack(tuple(members), left_out)


def _check_same_data(named: Mapping[str, Fitted]) -> None:
    """Raise unless all models were learned from the same rows."""
    first = next(iter(named))
    for name, one in named.items():
        if not isinstance(one, Fitted):
            raise TypeError(
                f"fitted: {name} must be what fit returned (of an estimator: fitted_); got {type(one).__name__}"
            )
        for what, of in (
            ("X", lambda s: s.X),
            ("y", _targets),
            ("weights", lambda s: s.weights),
            ("exposure", _exposure),
        ):
            mine, other = of(one.solution), of(named[first].solution)
            if not np.array_equal(np.asarray(mine, float), np.asarray(other, float), equal_nan=True):
                raise ValueError(
                    f"all models must be learned from the same rows, but {what} of {name} and {first} differ"
                )


def _targets(solution: Any) -> Any:
    if not isinstance(solution, Solution):
        return solution.y
    if solution.data is None:
        raise ValueError("a model holds no observations (its file is of an earlier version): fit it again")
    return solution.data.y


def _exposure(solution: Any) -> Any:
    return solution.data.exposure if isinstance(solution, Solution) and solution.data is not None else 1.0


_DATA = {"X": lambda s: s.X, "y": _targets, "weights": lambda s: s.weights, "exposure": _exposure}


def _row_weights(fitted: Fitted, n: int) -> np.ndarray:
    weights = fitted.solution.weights
    return np.ones(n) if weights is None else np.asarray(weights)


def _why_not(fitted: Fitted) -> str:
    """The reason why a model cannot enter; empty if it can."""
    if not fitted.converged:
        return f"learning ended {fitted.status.reason}, inference {fitted.solution.status.reason}"
    rows = _row_weights(fitted, len(fitted.solution.loo))
    improper = int(np.sum(~np.isfinite(fitted.solution.loo) & (rows > 0)))
    return f"{improper} rows have an improper cavity" if improper else ""


# --- the correction --------------------------------------------------------------------------------------------------


@float64
def corrected_loo(fitted: Fitted) -> LeftOut:
    """log p(y_i | the other rows) less g_iᵀ A⁻¹ g_i: to first order, what row i adds to it by way of θ."""
    factors = as_factors(fitted)
    parts = declared(factors.model)
    theta, loo = packed(parts), fitted.solution.loo
    if not len(theta):
        return LeftOut(loo, 0.0)
    rows = _row_weights(fitted, len(loo))
    g = _slopes(factors.solution, parts, theta)
    g[rows == 0] = 0.0
    curvature = (rows[:, None] * g).T @ g - np.asarray(jax.hessian(lambda t: log_prior(parts, t))(theta))
    values, vectors = np.linalg.eigh(curvature)
    seen = values > len(values) * np.finfo(float).eps * values[-1]  # others do not change any density
    taken = np.sum((g @ vectors[:, seen]) ** 2 / values[seen], axis=1)
    return LeftOut(loo - taken, float(rows @ taken))


def _slopes(solution: Solution, parts: Any, theta: Float[np.ndarray, " theta"]) -> Float[np.ndarray, "n theta"]:
    """∂ log p(y_i | the other rows) / ∂θ by one-sided differences, into the bounds."""
    data, bounds = solution.data, box(parts)
    assert data is not None
    scale = {"exposure": data.exposure, "trials": data.trials}
    used = {name: scale[name] for name in solution.model.likelihood.scaled_by}

    def loo(at_theta: np.ndarray) -> np.ndarray:
        found = infer(at(parts, at_theta), solution.X, data.y, solution.method, tol=TOLERANCE, sites=solution.sites,
                      weights=solution.weights, **used)  # fmt: skip
        return as_classes(found).loo

    here, columns = loo(theta), []
    for j, value in enumerate(theta):
        step = STEP if value + STEP <= bounds[j, 1] else -STEP
        columns.append((loo(np.where(np.arange(len(theta)) == j, value + step, theta)) - here) / step)
    return np.stack(columns, axis=1)


# --- the weights -----------------------------------------------------------------------------------------------------


def best_weights(logs: Float[np.ndarray, "k n"], rows: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
    """The maximum of Σ_i s_i log Σ_k w_k p_ik + a Σ_k log w_k over the simplex, by expectation maximisation.

    F is concave, so that no other weights are better by more than max_k ∂F/∂w_k − Σ_k w_k ∂F/∂w_k.
    """
    densities = np.exp(logs - logs.max(axis=0))
    w = np.full(len(logs), 1.0 / len(logs))
    while True:
        slopes = densities @ (rows / (w @ densities)) + CONCENTRATION / w
        if slopes.max() - w @ slopes <= WEIGHT_GAP:
            return w
        w = w * slopes / (w @ slopes)
