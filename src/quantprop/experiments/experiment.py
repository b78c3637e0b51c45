"""One method in one experiment: learn, predict, and record what happened."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

import quantprop
from quantprop import PrecisionWarning, infer
from quantprop.core.gaussian import Normal
from quantprop.experiments.as_coded import as_coded
from quantprop.experiments.learning import Failed, Hyperparameters, Learned, by_the_text, hyperparameters, model_at
from quantprop.experiments.protocol import Experiment, TrainTest, follows_ep, model_of, split
from quantprop.experiments.rows import Row
from quantprop.inference.predictive import Predictive
from quantprop.likelihoods import moment_matched_negative_binomial

FAILURES = (ValueError, ArithmeticError)  # raised by the library for a failed fit; anything else is a bug
TOL = 1e-8  # inference, as in learning
MAX_COUNT = 10_000  # tried in search of a mode


def carry_out(experiment: Experiment, method: str, ep: Row | None = None) -> Row:
    """One method in one experiment. `ep` is EP's row of the same experiment, for methods that start from it.

    Never raises for a fit that fails: the row then has neither te nor ntll, and its status says why.
    """
    began = time.perf_counter()
    if ep is None:
        hyperparameters_of_ep(experiment, method, ep)  # raises where they are needed
    with _notes() as notes:
        try:
            result = _result(experiment, method, ep)
        except FAILURES as error:
            result = no_result(f"failed: {error}")
    return row_of(experiment, method, result, notes, time.perf_counter() - began)


def row_of(experiment: Experiment, method: str, result: dict[str, Any], notes: list[str], seconds: float) -> Row:
    result = {**result, "status": "; ".join([result["status"], *notes])}
    about = {**asdict(experiment), "method": method, "seed": experiment.seed}
    return Row(**about, **result, seconds=seconds, versions=versions())


@contextmanager
def _notes() -> Iterator[list[str]]:
    """Warnings of lost digits as text, each once, for the row they concern; other warnings go where they went."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrecisionWarning)
        yield notes
    for warning in caught:
        if not issubclass(warning.category, PrecisionWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif str(warning.message) not in notes:
            notes.append(str(warning.message))


@cache
def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("numpy", "scipy", "jax", "jaxlib")}
    own = {"quantprop": quantprop.__version__, "python": platform.python_version()}
    return {**own, **packages, "machine": platform.machine(), "device": jax.default_backend()}


def no_result(status: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("te", "ntll", "evidence", "sweeps", "evaluations"))
    return {**nothing, "hyperparameters": {}, "status": status, "converged": False, "forecasts": {}, "test": {}}


def _result(experiment: Experiment, method: str, ep: Row | None) -> dict[str, Any]:
    parts, at_ep = split(experiment), hyperparameters_of_ep(experiment, method, ep)
    if experiment.variant == "code" and method in ("ep", "qp"):
        result = as_coded(experiment, method, parts)
    else:
        result = by_the_text(experiment, method, parts, at_ep)
    predictive = result.solution.predict_y(parts.x_test)
    other = {"variance_at_ep": _variance_of_qp(experiment, parts, at_ep)} if method == "qp" else {}
    return described(result, predictive.latent, parts.y_test, forecasts(experiment, predictive, parts.y_test), other)


def hyperparameters_of_ep(experiment: Experiment, method: str, ep: Row | None) -> Hyperparameters:
    """The hyperparameters of EP, for a method that starts from them; none for others."""
    if not follows_ep(experiment.variant, method):
        return {}
    if ep is None:
        raise ValueError(f"{method} starts from EP's result in variant {experiment.variant}: run ep first")
    if ep.failed:
        raise Failed(f"EP, whose result this starts from, has none: {ep.status}")
    return ep.hyperparameters


def described(
    result: Learned, latent: Normal, y: np.ndarray, forecasts: dict[str, Forecast], more: dict[str, np.ndarray]
) -> dict[str, Any]:
    if not (np.isfinite(latent.mean).all() and np.isfinite(latent.variance).all()):
        raise Failed(f"predictions are not finite, although learning reported: {result.status}")
    chosen = next(iter(forecasts.values()))
    test = {"y": y, "mean": latent.mean, "variance": latent.variance, "log_prob": chosen.log_prob, **more}
    return {
        **_scores(chosen),
        "hyperparameters": hyperparameters(result.solution.model),
        "evidence": result.value,
        "sweeps": result.solution.sweeps,
        "evaluations": result.evaluations,
        "status": result.status,
        "converged": result.converged,
        "forecasts": {name: _scores(each) for name, each in forecasts.items()} if len(forecasts) > 1 else {},
        "test": {name: np.asarray(column).tolist() for name, column in test.items()},
    }


def forecasts(experiment: Experiment, predictive: Predictive, y: np.ndarray) -> dict[str, Forecast]:
    """Forecasts by name, the one that te and ntll are of first."""
    if experiment.dataset != "mining":
        return {"label": label(predictive, y)}
    point = mode(predictive)
    exact = Forecast(point, np.abs(point - y), predictive.log_prob(y))
    both = {"negative-binomial": negative_binomial(predictive.latent, y), "exact": exact}
    return dict(reversed(both.items())) if experiment.variant == "clean" else both


def _scores(forecast: Forecast) -> dict[str, float]:
    """Test error and negative test log-likelihood; a log-likelihood of minus infinity counts as what it is."""
    return {"te": float(np.mean(forecast.error)), "ntll": float(-np.mean(forecast.log_prob))}


def _variance_of_qp(experiment: Experiment, parts: TrainTest, at_ep: Hyperparameters) -> np.ndarray:
    """QP's latent predictive variance at EP's hyperparameters: the projections compared, and nothing else."""
    model = model_at(model_of(experiment, "qp", parts.x.shape[1]), at_ep)
    solution = infer(model, parts.x, parts.y, "qp", tol=TOL)
    if not solution.converged:
        warnings.warn(f"variance_at_ep: {solution.status}", PrecisionWarning, stacklevel=2)
    return solution.predict(parts.x_test).variance


class Forecast(NamedTuple):
    """At each test input: the predicted y, how wrong it is, and log p(y) of the true one."""

    point: Float[np.ndarray, " k"]
    error: Float[np.ndarray, " k"]
    log_prob: Float[np.ndarray, " k"]


def label(predictive: Predictive, y: Float[np.ndarray, " k"]) -> Forecast:
    """The sign of the latent mean."""
    point = np.where(predictive.latent.mean > 0, 1.0, -1.0)
    return Forecast(point, (point != y).astype(np.float64), predictive.log_prob(y))


def negative_binomial(latent: Normal, y: Float[np.ndarray, " k"]) -> Forecast:
    """The paper's forecast of a count with rate f²: a Poisson mixed by the gamma with the moments of f²."""
    counts = moment_matched_negative_binomial(latent)
    return Forecast(counts.mode, np.abs(counts.mode - y), counts.log_prob(y))


def mode(predictive: Predictive) -> Float[np.ndarray, " k"]:
    """The most probable count with rate f², f ~ N(m, v).

    Counts are tried upwards until none above can be more probable than the best so far: p(y) is at most what is left of
    the total, and at most max N(f | m, v) · ∫ f^{2y} e^{−f²}/y! df = Γ(y + ½)/y! / √(2πv), which falls with y.
    """
    shape = np.shape(predictive.latent.mean)
    best, point, left = np.full(shape, -np.inf), np.zeros(shape), np.ones(shape)
    peak = -0.5 * np.log(2.0 * np.pi * predictive.latent.variance)
    for count in range(MAX_COUNT):
        log_p = predictive.log_prob(float(count))
        best, point = np.maximum(best, log_p), np.where(log_p > best, float(count), point)
        left = left - np.exp(log_p)
        bound = np.minimum(np.log(np.maximum(left, 0.0) + 1e-300), peak + gammaln(count + 1.5) - gammaln(count + 2.0))
        if (bound < best).all():
            return point
    raise ValueError(f"no mode among the counts below {MAX_COUNT}: the predicted rate is too large")
